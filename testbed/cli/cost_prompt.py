"""Print the cost of a sweep before it starts; ask for confirmation above an hour."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UserError
from testbed.execution import cost
from testbed.execution.threads import cores

if TYPE_CHECKING:
    from testbed.config.run import Run
    from testbed.execution.cost import Cost

ASK = 3600.0
"""Ask for confirmation above this estimated time (s)."""

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation above an hour.")]


def cost_of(
    parts: "Iterable[tuple[Sequence[Run], Path]]",
    workers: int | None = None,
    shard: str = "1/1",
    extend: bool = False,
) -> "Cost":
    """Return the remaining work of sweeps, each with its results folder; raise UserError for bad cells."""
    from testbed.execution.preflight import prepare

    plans = ((prepare(cells, shard, folder, extend=extend)[1], folder) for cells, folder in parts)
    left = [pack for packs, folder in plans for pack in cost.unfinished(packs, folder)]
    on_gpu = any(pack.cells[0].device == "cuda" for pack in left)
    return cost.cost(left, workers or (1 if on_gpu or workers == 0 else cores()))


def agree(found: "Cost", *, yes: bool, quiet: bool, at_most: bool = False) -> None:
    """Print the cost; above an hour ask for confirmation, or raise UserError if nobody can answer.

    at_most: the sweep may stop earlier.
    """
    text = f"{'At most ' if at_most else ''}{found}"
    if not quiet:
        print(text, file=sys.stderr, flush=True)
    if yes or found.seconds is None or found.seconds <= ASK:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{text} That is above an hour: give --yes to go on, or a smaller sweep.")
    typer.confirm("Go on?", abort=True, err=True)
