"""testbed status: count finished cells of a results folder, and say why cells failed."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.extensions import part
from testbed.cli.run_sweep import counts, settled
from testbed.errors import UserError, counted
from testbed.execution.progress import Progress, choose

if TYPE_CHECKING:
    from testbed.results.store import Status, Store


def status(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="A results folder.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the sweep, by arm, until it is done.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between updates.")] = 2.0,
    arms: Annotated[
        bool, typer.Option("--arms", help="Also count by arm, with parts of running cells.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="First rebuild a lost or damaged sweep.json.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Count planned, done, failed and pending cells of a results folder; --watch follows a running sweep.

    --repair rebuilds a lost or damaged sweep.json from its second copy or from the results.

    Examples:
    testbed status results/staleness

    testbed status results/staleness --watch

    testbed status results/staleness --repair
    """
    from testbed.results.store import Store

    if watch and json:
        raise UserError(
            "--watch prints to a terminal and does not go with --json. For one report as JSON give --arms "
            "--json."
        )
    if repair:
        from testbed.results.repair import repair as rebuild

        print(rebuild(folder), file=sys.stderr)
    store = Store(folder)
    shown = _by_arm(store, folder, every if watch else None) if watch or arms else {}
    found = store.status()
    failures = list(store.failures().values())
    if json:
        rows = [{"pack": f.pack, "kind": f.kind, "message": f.message} for f in failures]
        facts = {**counts(found), **shown, "damaged": found.damaged, "failures": rows}
        show.as_json({"folder": str(folder), **facts})
        return
    if shown:
        show.table(shown["arms"])
        print(f"{shown['done_of_planned']} done, {found.failed} failed.")
    _print(found, store)


def _print(found: "Status", store: "Store") -> None:
    print(settled(found))
    if found.damaged:
        print(f"{counted(found.damaged, 'pending cell')} had a damaged result; the next run makes it again.")
    for failure in store.failures().values():
        many = len(failure.cells)
        together = f"{many} cells that share one pack and fail together: " if many > 1 else ""
        print(f"{failure.kind}: {failure.message} ({together}pack {failure.pack})")


def _by_arm(store: "Store", folder: Path, every: float | None) -> dict[str, Any]:
    """Return rows by arm and cells done, parts included; with seconds in `every`, follow until the end."""
    board = part("progress_table")([name for cells in store.packs.values() for name in cells])
    display = Progress() if every is None else choose(board=lambda: board)
    _follow(folder, board, display, every)
    return {
        "arms": board.rows(),
        "done_with_parts": round(display.settled - display.failed, 1),
        "done_of_planned": display.done_of_planned,
    }


def _follow(folder: Path, board: Any, display: Progress, every: float | None) -> None:
    """Feed the board and the display with new results in the folder, until nothing is pending."""
    from testbed.results.store import RESULT, Store

    seen, shown = set[str](), set[str]()
    try:
        display.start(0, 0)
        while True:
            store = Store(folder)  # its plan may have been extended
            display.planned = sum(map(len, store.packs.values()))
            names = os.listdir(folder / "packs") if (folder / "packs").is_dir() else []
            there = {match[1] for name in names if (match := RESULT.fullmatch(name))}
            for pack in there & store.packs.keys() - seen:
                if (content := store.result(pack)) is not None:
                    seen.add(pack)
                    board.add(content)
                    display.finished(pack, len(store.packs[pack]))
            running = {} if store.packs.keys() <= seen else store.running()
            for pack in shown - running.keys():
                board.steps(store.packs[pack], 0.0)
                display.drop(pack)
            for pack, share in running.items():
                board.steps(store.packs[pack], share)
                display.steps(pack, store.packs[pack], share)
            shown = set(running)
            failed = [each for name, each in store.failures().items() if name not in seen]
            display.failed = sum(len(each.cells) for each in failed)
            display.show()
            if every is None or display.done + display.failed >= display.planned:
                return
            time.sleep(every)
    finally:
        display.close()
