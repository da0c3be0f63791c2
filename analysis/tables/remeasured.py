"""Measure what gates need and older tables lack, on repeated runs of the same arms.

`python -m analysis.tables.remeasured 8 NAME…` repeats the arms compared by an experiment's claims with open
gates `long enough` or `drift`, on the first 8 seeds of both runs of its table. It writes, arm by arm, the
file that analysis.tables.committed.remeasured reads. Existing runs stay.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging.claims import REPLICATION, examine, is_statistical
from analysis.judging.gates import checked
from analysis.judging.table_gates import NOT_RECORDED
from analysis.tables.cell_table import arms_of, cell_table
from analysis.tables.committed import REMEASURED, load_committed
from analysis.worlds.tuned_training import Family
from testbed.config.run import Run

RISE = ("accuracy", "rise accuracy")
DRIFT = ("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share")
AGE = "mean staleness/age_mean_token"
Again = Callable[[Sequence[int]], pd.DataFrame]
"""A function that makes an arm's rows at some seeds."""


def arms(experiment: Experiment) -> Iterator[tuple[Mapping[str, Any], Again]]:
    """Yield the table's columns of every arm, of cells or of a `Family`, and the function that repeats it."""
    if experiment.cells is None:
        module = sys.modules[EXPERIMENTS.module(experiment.name)]
        family = next(each for each in vars(module).values() if isinstance(each, Family))
        for name in family.ways:
            yield {"arm": name}, partial(_of_family, family, name)
        return
    for cell in dict.fromkeys(replace(cell, seed=0) for cell in experiment.cells()):
        yield arms_of([""], [cell], experiment.keys)[""], partial(_of_cell, experiment, cell)


def _of_family(family: Family, name: str, seeds: Sequence[int]) -> pd.DataFrame:
    """Return an arm's rows; the mean age of its data gives the lag that its table lacks."""
    found = family.table((*RISE, *DRIFT, AGE), seeds, (name,)).rename(columns={AGE: "lag"})
    return found[["arm", "seed", *RISE, *(("lag", *DRIFT) if found["lag"].any() else ())]]


def _of_cell(experiment: Experiment, cell: Run, seeds: Sequence[int]) -> pd.DataFrame:
    from testbed.training.loop import train_pack

    rows = pd.DataFrame(train_pack(tuple(replace(cell, seed=seed) for seed in seeds)))
    found = cell_table(experiment.name, rows, experiment.keys, (*RISE, *DRIFT)).frame
    return found.drop(columns="diverged")


def compared(experiment: Experiment, frame: pd.DataFrame) -> list[Mapping[str, Any]]:
    """Return the arms compared by claims for which some gate was not recorded."""
    found = []
    for entry in experiment.claims.values():
        if is_statistical(entry):
            seen = examine(entry, frame)
            if any(NOT_RECORDED in each.why for each in checked(entry, frame, seen)):
                found += [each.where for each in seen.read]
    return found


def first_seeds(experiment: Experiment, frame: pd.DataFrame, count: int) -> list[int]:
    """Return the first `count` seeds of each run of a table."""
    fresh = frame["seed"].min() + REPLICATION // 2 if experiment.stop is None else experiment.stop.fresh
    seeds = sorted({int(seed) for seed in frame["seed"]})
    runs = ([seed for seed in seeds if (seed < fresh) == first] for first in (True, False))
    return [seed for run in runs for seed in run[:count]]


def measure(experiment: Experiment, frame: pd.DataFrame, count: int, path: Path) -> None:
    """Make the missing runs of the compared arms, and write them beside the existing ones."""
    wanted, seeds = compared(experiment, frame), first_seeds(experiment, frame, count)
    known = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for arm, again in arms(experiment):
        if not any(all(arm.get(key) == value for key, value in where.items()) for where in wanted):
            continue
        there = known
        for key, value in arm.items():
            there = there[there[key] == value] if len(there) else there
        missing = [seed for seed in seeds if not len(there) or seed not in set(there["seed"])]
        if missing:
            known = pd.concat([known, again(missing)], ignore_index=True)
            known = known.sort_values([*arm, "seed"], ignore_index=True)
            known.to_csv(path, index=False, float_format="%.5g")
            print(experiment.name, *arm.values(), f"{len(missing)} runs", flush=True)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        table = load_committed([each])[each].frame
        measure(EXPERIMENTS[each], table, int(sys.argv[1]), REMEASURED / f"{each}.csv")
