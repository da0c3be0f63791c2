"""testbed evidence figures: redraw figures from tables, without torch."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.errors import UserError


def figures(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Figures to draw.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Draw every figure that has its table.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Results folder or folder of tables; default: the committed tables.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for PDF, PNG and manifest.json.")] = Path("out"),
    json: Annotated[bool, typer.Option("--json", help="Print what was drawn as JSON.")] = False,
) -> None:
    """Draw figures as PDF and PNG, byte for byte the same every time.

    Examples:
    testbed evidence figures --all

    testbed evidence figures staleness --data results/staleness
    """
    if not names and not every:
        raise UserError(
            "No figure was given. Give names (`testbed list figures`) or --all; "
            "a sweep of yours is drawn by: testbed plot RESULTS"
        )
    from paper_figs.save_figures import figures as draw

    saved = draw(names or (), data, out, progress=lambda line: print(line, file=sys.stderr))
    if json:
        show.as_json(
            [{"name": s.name, "pdf": str(s.pdf), "png": str(s.png), "caption": s.caption} for s in saved]
        )
        return
    for each in saved:
        print(f"{each.png}\n{each.pdf}")
