"""Add the drawing commands, and the `--figure` options of core commands, to the command line."""

from typing import Any

from testbed.cli.extensions import Command, Extension, Kind


def _figures() -> list[dict[str, Any]]:
    from paper_figs.figure_registry import FIGURES

    return [
        {"name": name, "table": entry.promises["data"], "what": entry.promises["caption"]}
        for name, entry in FIGURES.items()
    ]


EXTENSION = Extension(
    commands=(
        Command("Start", "demo", "Run a tour of stale-data RL, in minutes.", "paper_figs.commands.demo:demo"),
        Command("Read", "plot", "Draw a results folder.", "paper_figs.commands.plot_command:plot"),
        Command(
            "Read", "report", "Write one page about a results folder.", "paper_figs.commands.report:report"
        ),
        Command(
            "Objectives", "card", "Write the report card of an objective.", "paper_figs.commands.card:card"
        ),
        Command(
            "Systems and evidence",
            "diagnose",
            "Read a training log: ESS, tails, KL, warnings.",
            "paper_figs.commands.diagnose:diagnose",
        ),
        Command("Systems and evidence", "evidence figures", "", "paper_figs.commands.figures:figures"),
        Command("Systems and evidence", "evidence pages", "", "paper_figs.commands.pages:write_pages"),
    ),
    kinds={
        "figures": Kind(
            "figures of the committed tables",
            _figures,
            "paper_figs analysis/experiments",
            r"^@figure\(|figure=Plot\(",
            several=True,
            use="testbed evidence figures {}",
        )
    },
    parts={
        "draw_bias": "paper_figs.commands.one_file:draw_bias",
        "draw_lags": "paper_figs.commands.one_file:draw_lags",
        "draw_weights": "paper_figs.commands.one_file:draw_weights",
        "write_arena_page": "paper_figs.arena_row_page:write",
    },
)
