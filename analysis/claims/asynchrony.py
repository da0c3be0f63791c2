"""Claims about how asynchronous to be, judged on pipelines whose traces drove a learner (pipeline-learning).

Settings, the learning rate and the level were chosen with seeds 100 to 102, which the table does not hold. A
unit is a seed, of the learner and of the pipeline that it follows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.claims.base import Evidence, claim, everywhere

TABLE = "pipeline-learning"
SOURCE = "this testbed: testbed pipeline --then run; docs/pipeline.md"
RATE = 16.0
LATE = 10.0
"""A run that never has the level counts as its last second where it should be slow, as LATE times that where
it should be fast."""


def gain(table: pd.DataFrame, recipe: str, slow: str, fast: str, rate: float = RATE) -> NDArray[np.float64]:
    """Return log(seconds of the slow setting / seconds of the fast one) to the level, per seed."""
    rows = table[(table["recipe"] == recipe) & (table["learning_rate"] == rate)]
    slower, faster = (rows[rows["setting"] == name].sort_values("seed") for name in (slow, fast))
    if list(slower["seed"]) != list(faster["seed"]):
        raise ValueError(f"{recipe}: the settings {slow} and {fast} have other seeds.")
    slow_N = slower[["seconds", "end"]].min(axis=1).to_numpy(dtype=np.float64)
    late_N = LATE * faster["end"].to_numpy(dtype=np.float64)
    log_N: NDArray[np.float64] = np.log(slow_N / np.minimum(faster["seconds"], late_N))
    return log_N


def faster(gains: dict[str, NDArray[np.float64]]) -> Evidence:
    """Return evidence that the mean log speed-up is above zero in every arm; the note gives the speed-ups."""
    found = everywhere(gains, "mean log speed-up")
    speeds = ", ".join(f"{np.exp(log_N.mean()):.2f} {name}" for name, log_N in gains.items())
    worst = found.note.rpartition("; worst: ")[2]
    return replace(found, note=f"mean log speed-up in the worst arm, {worst}; speed-ups {speeds}")


@claim(
    "time-to-accuracy-is-best-between-the-ends",
    source=SOURCE,
    kind="statistical",
    table=TABLE,
    statement=(
        "With GRPO's clip a pipeline of middling asynchrony (mean lag 6) reaches a return of 0.9 sooner than "
        "synchronous training and sooner than the most asynchronous pipeline (mean lag 22)."
    ),
)
def between_the_ends(table: pd.DataFrame) -> Evidence:
    """Return the evidence about both log speed-ups, per seed."""
    middle = "streaming, 32 slots"
    ends = {"over synchronous": "synchronous", "over 256 slots": "streaming, 256 slots"}
    gains = {name: gain(table, "grpo", end, middle) for name, end in ends.items()}
    return faster(gains)


@claim(
    "best-asynchrony-depends-on-the-objective",
    source=SOURCE,
    kind="statistical",
    table=TABLE,
    statement=(
        "Of the same two pipelines, the one with mean lag 2 reaches a return of 0.9 sooner with GSPO's clip, "
        "the 2.5 times faster one with mean lag 22 with importance weights."
    ),
)
def depends_on_the_objective(table: pd.DataFrame) -> Evidence:
    """Return the evidence about both log speed-ups, per seed."""
    young, old = "capacity η=2", "streaming, 256 slots"
    gains = {
        "of lag 2 with gspo": gain(table, "gspo", old, young),
        "of lag 22 with importance weights": gain(table, "importance_reinforce", young, old),
    }
    return faster(gains)


@claim(
    "one-update-of-lag-pays",
    source=SOURCE,
    kind="statistical",
    table=TABLE,
    statement=(
        "With stragglers (σ = 1 of log length) AReaL's rule with η = 1, mean lag 1, reaches a return of 0.9 "
        "sooner than synchronous training with each of five objectives at both learning rates."
    ),
)
def one_update_pays(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the log speed-ups of all objectives and learning rates, per seed."""
    arms = table[["recipe", "learning_rate"]].drop_duplicates().itertuples(index=False)
    gains = {
        f"{recipe} at {rate:g}": gain(table, recipe, "synchronous", "capacity η=1", rate)
        for recipe, rate in arms
    }
    return faster(gains)
