"""The one door of tables: an experiment's runs, or its computation, become NAME.csv beside the others.

Equal results give equal bytes, and a table that is not made again stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analysis.cell_table import cell_table
from analysis.condense import describe
from analysis.experiment import EXPERIMENTS, Experiment
from analysis.load import MANIFEST, Table, is_committed, load_committed, load_results, results_folders
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.execution.progress import Progress

RESULTS = Path("out/experiments")
"""Where the runs behind tables are kept, a folder per experiment."""


def make(
    experiment: Experiment,
    folders: Sequence[Path] = (),
    *,
    root: Path = RESULTS,
    workers: int | None = None,
    progress: Progress | None = None,
    partial: bool = False,
) -> Table:
    """Return an experiment's table: computed, read from results folders, or from runs made now.

    Args:
        experiment: whose table it is.
        folders: results folders, or folders of such, to read in place of running anything.
        root: where runs are kept; what root/NAME already holds is not run again.
        workers: as in testbed.execution.runner.run_sweep.
        progress: as there.
        partial: read folders though some of their cells have no result.

    Raises:
        UserError: the experiment makes no table; folders for one that is computed; a cell without result, as
            a table of survivors flatters what fails.
    """
    if not experiment.keys:
        raise UserError(f"Experiment '{experiment.name}' makes no table; it is judged without one.")
    if experiment.compute is not None:
        if folders:
            raise UserError(f"The table of '{experiment.name}' is computed, it is made of no results folder.")
        return experiment.compute()
    source = EXPERIMENTS[experiment.runs] if experiment.runs else experiment
    found = list(folders) or [run(source, root, workers=workers, progress=progress)]
    if not partial:
        for folder in found:
            _finished(folder)
    rows = pd.concat([load_results(folder) for folder in found], ignore_index=True)
    if experiment.from_rows is not None:
        return experiment.from_rows(rows)
    return cell_table(experiment.name, rows, experiment.keys, experiment.metrics)


def run(
    experiment: Experiment,
    root: Path = RESULTS,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Run what is missing of the cells behind an experiment's table; return the results folder, root/NAME.

    Raises UserError when a cell has failed.
    """
    from testbed.execution.runner import run_sweep
    from testbed.results.store import folder_for

    folder = folder_for(root, experiment.name)
    status = run_sweep(experiment.table_cells(), folder, workers=workers, progress=progress)
    if status.done < status.planned:
        raise UserError(
            f"{status.planned - status.done} of {status.planned} cells have no result, so there is no table. "
            f"Why: testbed status {folder}"
        )
    return folder


def _finished(folder: Path) -> None:
    """Raise UserError when planned cells have no result."""
    from testbed.results import store

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
            f"{out} cannot be written: {error.strerror}. Give another folder with --data."
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
