"""Commands of the evidence: what this package adds to the command line (`testbed.cli.extensions`)."""

from analysis.commands.kinds import KINDS
from testbed.cli.extensions import Extension, read_commands

EXTENSION = Extension(
    commands=read_commands(__file__),
    kinds=KINDS,
    parts={
        "sweep": "analysis.experiment:sweep",
        "summarize": "analysis.commands.summary_table:summarize",
        "print_summary": "analysis.commands.summary_table:print_summary",
        "next_steps": "analysis.commands.summary_table:next_steps",
        "progress_table": "analysis.commands.progress_table:ProgressTable",
        "wall_clock": "analysis.tables.wall_clock:wall_clock",
        "diagnose": "analysis.logs.diagnosis:diagnose",
    },
)
