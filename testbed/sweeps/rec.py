"""REC: is it the clip or the importance weight that keeps group-relative REINFORCE alive on stale data?"""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Arguments, Run, grid
from testbed.sweeps import TOY, sweep_table

OPEN: Arguments = (
    ("advantage", "group_mean"),
    ("aggregation", "token_mean"),
    ("eps_low", 1.0),
    ("eps_high", 1e9),
)
"""The recipe rec with a region that holds every token: nothing is ever dropped, and all else is the same."""

ARMS: tuple[tuple[str, Arguments], ...] = (
    ("rec", (("weight", "none"),)),
    ("rec", (("weight", "importance"),)),
    ("rec_oneside", (*OPEN, ("weight", "none"))),
    ("rec_oneside", (*OPEN, ("weight", "importance"))),
    ("reinforce", ()),
)
LAGS = (0, 16, 64, TOY.steps)
"""The last one is offline: all data come from the first weights."""


@sweep_table(
    "rec",
    source="Yao et al. (2025), arXiv:2509.24203",
    keys=("recipe", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "actor/entropy", "mean actor/clip_share"),
)
def cells() -> tuple[Run, ...]:
    """REC with and without its clip and its importance weight, and REINFORCE, at four lags and 16 seeds."""
    return tuple(
        cell
        for recipe, arguments in ARMS
        for cell in grid(replace(TOY, recipe=recipe, recipe_args=arguments), lag=LAGS, seed=range(16))
    )
