"""Commands of the evidence: what this package adds to the command line (`testbed.cli.extensions`)."""

from analysis.commands.kinds import KINDS
from testbed.cli.extensions import Command, Extension

EXTENSION = Extension(
    commands=(
        Command("Run", "tune", "Choose each recipe's learning rate.", "analysis.commands.tune:tune"),
        Command(
            "Read", "compare", "Compare the arms of a sweep by seed.", "analysis.commands.compare:compare"
        ),
        Command("Read", "power", "Say how many seeds decide a gap.", "analysis.commands.power:power"),
        Command("Arena", "arena", "Compare recipes on stale data, each tuned alike.", ""),
        Command("Arena", "arena show", "", "analysis.commands.arena_commands:show_table"),
        Command("Arena", "arena run", "", "analysis.commands.arena_commands:run_arena"),
        Command("Arena", "arena add", "", "analysis.commands.arena_commands:add"),
        Command(
            "Arena", "advise", "Say which method suits the drift of a log.", "analysis.commands.advise:advise"
        ),
        Command(
            "Look up", "ask", "Answer a question from what was judged.", "analysis.commands.ask:ask_words"
        ),
        Command("Systems and evidence", "evidence", "Run experiments, judge claims, draw figures.", ""),
        Command(
            "Systems and evidence", "evidence run", "", "analysis.commands.evidence_commands:run_experiments"
        ),
        Command("Systems and evidence", "evidence judge", "", "analysis.commands.judge:judge_claims"),
        Command(
            "Systems and evidence", "evidence questions", "", "analysis.commands.questions:answer_questions"
        ),
    ),
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
