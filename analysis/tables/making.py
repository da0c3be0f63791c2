"""Make all tables: an experiment's runs, or its computation, become NAME.csv beside the others.

Equal results give equal bytes, and a table that is not made again stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging import preregistration as preset
from analysis.judging import rule
from analysis.judging.claims import is_statistical, look
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import (
    MANIFEST,
    Table,
    is_committed,
    load_committed,
    load_results,
    results_folders,
)
from analysis.tables.condensed import describe
from testbed.config.run import Run
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.execution.progress import Progress

RESULTS = Path("out/experiments")
"""Folder of the runs behind tables, with a folder per experiment."""


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

    Args: experiment: owner of the table. folders: results folders, or folders of such, to read instead of
    running anything. root: folder of the runs; those in root/NAME are not run again. workers: as in
    testbed.execution.runner.run_sweep. progress: as there. partial: read folders although some of their
    cells have no result.

    Raises: UserError: the experiment makes no table; folders were given for a computed table; a cell has
    no result, because a table of survivors favors arms that fail.
    """
    if not experiment.keys:
        raise UserError(f"Experiment '{experiment.name}' makes no table: it is judged without one.")
    if experiment.compute is not None:
        if folders:
            raise UserError(f"The table of '{experiment.name}' is computed, not made from a results folder.")
        return replace(experiment.compute(), made={"preset": preset.design(experiment), "machines": []})
    source = EXPERIMENTS[experiment.runs] if experiment.runs else experiment
    found = list(folders) or [run(source, root, workers=workers, progress=progress)]
    if not partial:
        for folder in found:
            _finished(folder)
    from testbed.results import store

    parts = [part for folder in found for part in results_folders(folder)]
    machines = {json.dumps(machine): machine for part in parts for machine in store.made_on(part)}
    known = dict({} if folders else preset.read(source, root)) if experiment is source else {}
    made = {"preset": known, "machines": [machines[key] for key in sorted(machines)]}
    return replace(_of_folders(experiment, found), made=made)


def _of_folders(experiment: Experiment, folders: Sequence[Path]) -> Table:
    rows = pd.concat([load_results(folder) for folder in folders], ignore_index=True)
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
    """Run the missing cells behind an experiment's table; return the results folder, root/NAME.

    With a stopping rule it holds a results folder per block of seeds. Raises UserError for failed cells.
    """
    from testbed.results.store import folder_for

    preset.commit(experiment, root)
    experiment.make_ready(quiet=True)
    folder = folder_for(root, experiment.name)
    if experiment.stop is None:
        _run(experiment.table_cells(), folder, workers, progress)
        return folder
    asked = [name for name, entry in experiment.claims.items() if is_statistical(entry)]
    parts: list[Path] = []
    for blocks in (experiment.stop.seeds(), experiment.stop.fresh_seeds()):
        for _, new in blocks:
            parts.append(folder / f"{new.start}-{new.stop - 1}")
            _run(experiment.cells_at(new), parts[-1], workers, progress)
            if not undecided(experiment, asked, _of_folders(experiment, parts)):
                break
        # Fresh seeds are spent only on claims with evidence in the first run.
        found = {name: look(experiment.claims[name], _of_folders(experiment, parts).frame) for name in asked}
        asked = [name for name in asked if rule.strongest(found[name]) >= rule.WORTH_A_REPLICATION]
        if not asked:
            break
    return folder


def undecided(experiment: Experiment, claims: Sequence[str], table: Table) -> list[str]:
    """Return the claims that need more seeds, of the first run or of both together.

    A first run has enough evidence at rule.FIRST_RUN for any word; both runs at rule.ENOUGH for a word that
    the fresh seeds confirm.
    """
    found = {name: look(experiment.claims[name], table.frame) for name in claims}
    return [
        name
        for name, each in found.items()
        if (rule.leaning(each)[1] < rule.ENOUGH if each.runs else rule.strongest(each) < rule.FIRST_RUN)
    ]


def _run(cells: tuple[Run, ...], folder: Path, workers: int | None, progress: Progress | None) -> None:
    from testbed.execution.runner import run_sweep

    status = run_sweep(cells, folder, workers=workers, progress=progress)
    if status.done < status.planned:
        raise UserError(
            f"{status.planned - status.done} of {status.planned} cells have no result, so there is no table. "
            f"Why: testbed status {folder}"
        )


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


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, released with the process; do nothing if there is no folder or no lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def add_tables(made: Mapping[str, Table], data: Path) -> list[Path]:
    """Write tables beside the folder's others, which stay as they are, and return their paths.

    The previous file of a rewritten table may be missing or broken. Processes that add to one folder take
    turns.

    Raises UserError when it cannot be written.
    """
    with _alone(data):
        listed = json.loads((data / MANIFEST).read_text())["tables"] if is_committed(data) else {}
        others = [name for name in listed if name not in made]
        kept = load_committed(others, data) if others else {}
        write_tables({**kept, **made}, data)
    return [data / f"{name}.csv" for name in made]
