"""Run a sweep and write its table, a row per cell: python -m paper_figs.sweep_tables NAME [--workers 1].

The sweeps are the files of testbed/sweeps. What the results folder already holds is not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.cell_table import cell_table
from analysis.load import COMMITTED, Table, load_results
from paper_figs.export import add_tables
from testbed.errors import UserError
from testbed.execution.progress import Progress, choose
from testbed.execution.runner import run_sweep
from testbed.results.store import folder_for
from testbed.sweeps import SWEEP_TABLES

RESULTS = Path("out/sweeps")


def results(name: str, root: Path, *, workers: int | None = None, progress: Progress | None = None) -> Path:
    """Run what is missing of a sweep and return its results folder, root/name.

    Raises UserError for an unknown sweep, and when a cell has failed: a table of survivors flatters.
    """
    cells = SWEEP_TABLES[name].function()
    folder = folder_for(root, name)
    status = run_sweep(cells, folder, workers=workers, progress=progress)
    if status.done < status.planned:
        raise UserError(
            f"{status.planned - status.done} of {status.planned} cells have no result, so there is no table. "
            f"Why: testbed status {folder}"
        )
    return folder


def table(name: str, folder: Path) -> Table:
    """Return the table of a sweep from its results folder."""
    promises = SWEEP_TABLES[name].promises
    return cell_table(name, load_results(folder), promises["keys"], promises["metrics"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module; exit code 0, or 2 with one line about what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m paper_figs.sweep_tables", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join(SWEEP_TABLES))
    parser.add_argument("--workers", type=int, help="worker processes; default one per core")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default {RESULTS}")
    parser.add_argument("--data", type=Path, default=COMMITTED, help="folder of the committed tables")
    given = parser.parse_args(arguments)
    try:
        for name in given.names:
            folder = results(name, given.results, workers=given.workers, progress=choose())
            print(*add_tables({name: table(name, folder)}, given.data), sep="\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
