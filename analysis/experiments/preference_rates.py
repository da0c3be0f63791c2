"""Learning rates for losses on pairs and their rivals by lag and width; its seeds serve nothing else."""

from __future__ import annotations

from dataclasses import replace

from analysis.experiment import Experiment
from analysis.starting_runs import LAB
from analysis.tuning import tuning_seeds
from testbed.config.run import Run, grid

OLD = 64
BASE = replace(LAB, steps=400)
NARROW = (("width", 16),)
"""Half the default width of 32."""
KEYS = ("recipe", "policy_args", "lag")


def arm_cells() -> tuple[Run, ...]:
    """Return a cell per arm: three losses at width 32, online DPO at 16 too; on-policy and at lag 64."""
    rivals = grid(BASE, recipe=["online_dpo", "rloo", "grpo"], lag=[0, OLD])
    others = grid(replace(BASE, recipe="online_dpo", policy_args=NARROW), lag=[0, OLD])
    return (*rivals, *others)


def cells() -> tuple[Run, ...]:
    """Online DPO, RLOO and GRPO, on-policy and at lag 64, at three rates, 2 seeds for tuning."""
    seeds = list(tuning_seeds(2))
    return tuple(
        cell for run in arm_cells() for cell in grid(run, learning_rate=[3e-4, 1e-3, 3e-3], seed=seeds)
    )


EXPERIMENT = Experiment(
    "preference-rates",
    question="Which learning rate suits losses on pairs, on-policy and on old data, by width?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
