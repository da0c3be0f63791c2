"""testbed status: how far a results folder is, and why cells failed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def status(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="First rebuild a lost or damaged sweep.json.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Count what is planned, done, failed and pending in a results folder.

    --repair makes a lost or damaged sweep.json again, from its second copy or from the results.

    Examples:
    testbed status results/staleness

    testbed status results/staleness --repair
    """
    from testbed.cli import show
    from testbed.cli.run import counts, settled
    from testbed.errors import counted
    from testbed.results.store import Store

    if repair:
        from testbed.results.repair import repair as rebuild

        print(rebuild(folder), file=sys.stderr)
    store = Store(folder)
    found = store.status()
    failures = list(store.failures().values())
    if json:
        rows = [{"pack": f.pack, "kind": f.kind, "message": f.message} for f in failures]
        show.as_json({"folder": str(folder), **counts(found), "damaged": found.damaged, "failures": rows})
        return
    print(settled(found))
    if found.damaged:
        print(f"{counted(found.damaged, 'pending cell')} had a damaged result; the next run makes it again.")
    for failure in failures:
        together = f"{len(failure.cells)} cells, which fail together: " if len(failure.cells) > 1 else ""
        print(f"{failure.kind}: {failure.message} ({together}pack {failure.pack})")
