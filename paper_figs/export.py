"""Condense results folders into the small committed tables: python -m paper_figs.export RESULTS_FOLDER …"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from analysis.condense import condense, describe
from analysis.load import (
    COMMITTED,
    MANIFEST,
    Table,
    is_committed,
    load_committed,
    load_results,
    results_folders,
)
from testbed.errors import UserError
from testbed.results import store


def export(folders: Sequence[Path], out: Path = COMMITTED, *, partial: bool = False) -> dict[str, Table]:
    """Write NAME.csv for every table the results can fill, and manifest.json; return all of the folder.

    Equal results give equal bytes. Tables that these results do not fill stay as they are.

    Raises:
        UserError: nothing to read, nothing that fills a table, cells that differ in more than recipe, lag,
        seed;
            cells without result, unless `partial`.
    """
    if not partial:
        for folder in folders:
            _finished(folder)
    frame = pd.concat([load_results(folder) for folder in folders], ignore_index=True)
    tables = {**(load_committed(folder=out) if is_committed(out) else {}), **condense(frame)}
    write_tables(tables, out)
    return tables


def _finished(folder: Path) -> None:
    """Raise UserError when planned cells have no result: a table of survivors flatters what fails."""
    for each in results_folders(folder):
        counted = store.status(each)
        if counted.done < counted.planned:
            raise UserError(
                f"{each}: {counted.planned - counted.done} of {counted.planned} cells have no result "
                f"({counted.failed} failed, {counted.pending} pending). Run the sweep again to finish it, or "
                "give --partial."
            )


def write_tables(tables: Mapping[str, Table], out: Path) -> None:
    """Write the tables as CSV files with their manifest."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            (out / f"{name}.csv").write_bytes(table.csv)
        (out / MANIFEST).write_text(json.dumps(describe(tables), indent=2) + "\n")
    except OSError as error:
        raise UserError(
            f"{out} cannot be written: {error.strerror}. Give another folder with --out."
        ) from error


def add_tables(made: Mapping[str, Table], data: Path) -> list[Path]:
    """Write tables beside the folder's others, which stay as they are, and return their paths.

    One that is made again may have been missing or broken. Raises UserError when it cannot be written.
    """
    listed = json.loads((data / MANIFEST).read_text())["tables"] if is_committed(data) else {}
    others = [name for name in listed if name not in made]
    kept = load_committed(others, data) if others else {}
    write_tables({**kept, **made}, data)
    return [data / f"{name}.csv" for name in made]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module; exit code 0, or 2 with one line about what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m paper_figs.export", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RESULTS_FOLDER")
    parser.add_argument("--out", type=Path, default=COMMITTED, help="folder of the committed tables")
    parser.add_argument("--partial", action="store_true", help="export though some cells have no result")
    given = parser.parse_args(arguments)
    try:
        tables = export(given.folders, given.out, partial=given.partial)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name, table in sorted(tables.items()):
        print(f"{given.out / name}.csv  {len(table.frame)} rows, {len(table.csv) / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
