"""REC with bounded importance weights: by a two-sided region, or nearly, by a tenth of the learning rate."""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Run, grid
from testbed.sweeps import TOY, sweep_table
from testbed.sweeps.rec import LAGS

CASES = (("twoside", TOY.learning_rate), ("oneside", TOY.learning_rate / 10))


@sweep_table(
    "rec-bounded",
    source="Yao et al. (2025), arXiv:2509.24203",
    keys=("recipe_args.keep", "learning_rate", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "mean actor/clip_share"),
)
def cells() -> tuple[Run, ...]:
    """REC with and without importance weights: two-sided, or one-sided at a tenth of the learning rate."""
    return tuple(
        cell
        for keep, rate in CASES
        for weight in ("none", "importance")
        for cell in grid(
            replace(TOY, recipe="rec", recipe_args=(("keep", keep), ("weight", weight)), learning_rate=rate),
            lag=LAGS,
            seed=range(16),
        )
    )
