"""testbed objectives compare: objectives side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.extensions import part
from testbed.objectives import objective

if TYPE_CHECKING:
    from testbed.registry import Entry


def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Objectives, variants or file.py:function.")
    ],
    figure: Annotated[
        Path | None, typer.Option(help="Draw all effective weights together into this .png or .pdf file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare objectives: settings, and effective weights at several log-ratios and on a worked example.

    The name of a paper's objective stands for itself and all its variants.

    Examples: testbed objectives compare m2po

    testbed objectives compare ppo_clip cispo --figure both.png
    """
    from testbed.cli import objective_table, show

    entries = with_variants(names)
    rows = [objective_table.row(entry) for entry in entries]
    if figure is not None:
        axes = {entry.name: objective_table.main_axis(entry) for entry in entries}
        part("draw_weights")(axes, figure)
    if json:
        show.as_json(rows)
        return
    objective_table.report(rows)
    print(f"Figure: {figure}" if figure else "All curves together: --figure FILE.png")


def with_variants(names: list[str]) -> "list[Entry]":
    """Return the entries, each once; the name of a base includes its variants."""
    known = [objective[name].name for name in names]
    entries = [objective[each] for name in known for each in (name, *objective.variants(name))]
    return list({entry.name: entry for entry in entries}.values())
