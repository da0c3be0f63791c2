"""Measure what gates ask and an older table lacks, on runs of the same arms made again.

`python -m analysis.tables.remeasured 8 NAME…` runs the arms that claims of an experiment compare, on the
first 8 seeds of both runs of its table, and writes what analysis.tables.committed.remeasured reads.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from analysis.experiment import EXPERIMENTS
from analysis.judging.claims import examine, is_statistical
from analysis.tables.cell_table import arms_of, cell_table
from analysis.tables.committed import REMEASURED, load_committed
from analysis.worlds.tuned_training import Family

RISE = ("accuracy", "rise accuracy")
DRIFT = ("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share")


def measure(name: str, count: int) -> Iterator[pd.DataFrame]:
    """Yield the rows of each compared arm, on `count` seeds of a run; of cells, or of a `Family`."""
    from testbed.training.loop import train_pack

    experiment, frame = EXPERIMENTS[name], load_committed([name])[name].frame
    judged = [entry for entry in experiment.claims.values() if is_statistical(entry)]
    wanted = [each.where for entry in judged for each in examine(entry, frame).read]
    first = frame["seed"].min() + 500_000 if experiment.stop is None else experiment.stop.fresh
    parts = (sorted({s for s in frame["seed"] if (s >= first) is again}) for again in (False, True))
    seeds = [seed for part in parts for seed in part[:count]]
    if experiment.cells is None:
        module = sys.modules[EXPERIMENTS.module(name)]
        family = next(each for each in vars(module).values() if isinstance(each, Family))
        for arm in dict.fromkeys(where["arm"] for where in wanted):
            yield family.table(RISE, seeds, (arm,))[["arm", "seed", *RISE]]
        return
    keys = [key for key in experiment.keys if key != "seed"]
    for cell in dict.fromkeys(replace(cell, seed=0) for cell in experiment.cells()):
        arm = arms_of([""], [cell], keys)[""]
        if any(all(arm.get(key) == value for key, value in where.items()) for where in wanted):
            rows = pd.DataFrame(train_pack(tuple(replace(cell, seed=seed) for seed in seeds)))
            yield cell_table(name, rows, experiment.keys, (*RISE, *DRIFT)).frame


if __name__ == "__main__":
    for each in sys.argv[2:]:
        found = pd.concat(measure(each, int(sys.argv[1])))
        found.to_csv(REMEASURED / f"{each}.csv", index=False, float_format="%.5g")
