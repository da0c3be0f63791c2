"""testbed merge: combine results folders into one."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.cli.run_sweep import counts, settled


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Results folders, left unchanged.")
    ],
    out: Annotated[Path, typer.Option(help="The new results folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Combine the cells of results folders in a new folder, each cell once.

    Example: testbed merge results/mine results/more-seeds --out results/both
    """
    from testbed.results.merging import merge as merged

    status = merged(folders, out)
    if json:
        show.as_json({"folder": str(out), **counts(status)})
    else:
        print(f"{out}: {settled(status)}")
