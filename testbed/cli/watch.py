"""testbed watch: how a sweep that runs elsewhere is doing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from testbed.cli.progress_table import ProgressTable
    from testbed.execution.progress import Progress


def watch(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="A results folder.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Look once, and print as JSON.")] = False,
) -> None:
    """Follow a sweep that another process or machine runs, by arm, until it is done.

    Example: testbed watch results/staleness
    """
    from testbed.cli import show
    from testbed.cli.progress_table import ProgressTable
    from testbed.cli.run import counts
    from testbed.execution.progress import Progress, choose
    from testbed.results.store import Store

    store = Store(folder)
    board = ProgressTable(name for cells in store.packs.values() for name in cells)
    display = Progress() if once or json else choose(board=lambda: board)
    _follow(folder, board, display, None if once or json else every)
    if json:
        found = {**counts(store.status()), "done_with_parts": round(display.settled - display.failed, 1)}
        show.as_json({"folder": str(folder), **found, "arms": board.rows()})
        return
    show.table(board.rows())
    print(f"{display.done_of_planned} done, {display.failed} failed.")


def _follow(folder: Path, board: ProgressTable, display: Progress, every: float | None) -> None:
    """Feed the board and the display with what appears in the folder, until nothing is pending."""
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
