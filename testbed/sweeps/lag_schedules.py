"""Schedules of equal mean lag: does it matter how the ages are spread around their mean?"""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Run, grid
from testbed.sweeps import sweep_table

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, log_every=5)
"""A token tree that synchronous training solves in 200 steps; every ratio law is known exactly."""
SCHEDULES = ("exact", "periodic", "uniform", "two-point", "geometric")


@sweep_table(
    "lag-schedules",
    source="this project",
    keys=("recipe", "staleness", "lag", "seed"),
    metrics=(
        "exact/value",
        "mean exact/value",
        "mean exact/ess_kish_sequence",
        "min exact/ess_kish_sequence",
        "mean staleness/age_mean_token",
    ),
)
def cells() -> tuple[Run, ...]:
    """Five laws of ages with the same mean, two recipes, two lags and 32 seeds."""
    return tuple(
        cell
        for recipe in ("reinforce", "grpo")
        for cell in grid(replace(TREE, recipe=recipe), staleness=SCHEDULES, lag=[4, 16], seed=range(32))
    )
