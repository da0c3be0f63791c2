"""Add the drawing commands, and the `--figure` options of core commands, to the command line."""

from typing import Any

from testbed.cli.extensions import Extension, Kind, read_commands


def _figures() -> list[dict[str, Any]]:
    from paper_figs.figure_registry import FIGURES

    return [
        {"name": name, "table": entry.promises["data"], "what": entry.promises["caption"]}
        for name, entry in FIGURES.items()
    ]


EXTENSION = Extension(
    commands=read_commands(__file__),
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
