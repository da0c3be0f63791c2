"""REC: is it the clip or the importance weight that keeps group-relative REINFORCE alive on stale data?

A one-sided clip keeps a token with A < 0 whatever its ratio above 1, and an importance weight then multiplies
its gradient without bound; a weight of 1 does not. Two claims of equality therefore follow the first, in
rec_bounded.
"""

from dataclasses import replace

import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Stop,
    arm,
    at_floor,
    happens_more_often,
    happens_mostly,
    median_within,
)
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Arguments, Run, grid

SOURCE = "Yao et al. (2025), Group-relative REINFORCE is secretly an off-policy algorithm, arXiv:2509.24203"
MARGIN = 0.05
WEIGHT, WEIGHTS = "recipe_args.weight", ("none", "importance")

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


def cells() -> tuple[Run, ...]:
    """REC with and without its clip and its importance weight, and REINFORCE, at four lags."""
    return tuple(
        cell
        for recipe, arguments in ARMS
        for cell in grid(replace(TOY, recipe=recipe, recipe_args=arguments), lag=LAGS, seed=[0])
    )


EXPERIMENT = Experiment(
    "rec",
    question=(
        "Is it the clip or the importance weight that keeps group-relative REINFORCE alive on stale data?"
    ),
    source="Yao et al. (2025), arXiv:2509.24203",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells,
    stop=Stop(cap=32),
    keys=("recipe", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "actor/entropy", "mean actor/clip_share"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "final by setting",
        x="lag: lag (optimizer steps)",
        y="accuracy: final accuracy",
        arm=("recipe", "recipe_args.weight: weight"),
        names={str(TOY.steps): "offline"},
        says="Shows final accuracy of a transformer of 26,000 weights on running sums by age of the data, "
        "offline being all from the first weights: REC is REINFORCE with a group baseline that drops tokens "
        "out of its clip range, REC, one side the same with a range so wide that nothing is dropped, each "
        "with importance weights or none; REINFORCE has neither.",
    ),
    systems={
        "REC (Group-relative REINFORCE is off-policy)": Part(
            "the clip against the importance weight; not a much wider clip range"
        )
    },
)


def of_arm(table: pd.DataFrame, value: str, recipe: str, weight: str) -> pd.Series:
    """Return a value of the cells with this recipe and importance weight, indexed by lag and seed."""
    return arm(table, value, {"recipe": recipe, WEIGHT: weight}, by=["lag", "seed"])


def same_accuracy(none: pd.Series, importance: pd.Series) -> Evidence:
    """Return the evidence that importance weights leave final accuracies alone, paired by seed, per lag.

    Lags at which neither arm is clear of accuracy 0 say nothing, see `at_floor`.
    """
    difference = (importance - none).dropna()
    groups = {f"lag {lag}": x_N.to_numpy() for lag, x_N in difference.groupby(level="lag")}
    level = none.groupby(level="lag").median()
    changes = ", ".join(
        f"{level[lag]:.2f}{x_N.median():+.3f} at lag {lag}" for lag, x_N in difference.groupby(level="lag")
    )
    note = f"median change in final accuracy by importance weights; medians {changes}"
    floored = [
        f"lag {lag}"
        for lag in difference.index.unique(level="lag")
        if at_floor([one.xs(lag, level="lag").dropna() for one in (none, importance)], MARGIN)
    ]
    return median_within(groups, MARGIN, note, floored)


@EXPERIMENT.claim(source=SOURCE)
def rec_importance_weights_change_nothing(table: pd.DataFrame) -> Evidence:
    """With REC's one-sided clip, importance weights change the toy LLM's final accuracy by less than 0.05 in
    the median over seeds, at every lag, on-policy and offline included.
    """
    return same_accuracy(*(of_arm(table, "accuracy", "rec", weight) for weight in WEIGHTS))


@EXPERIMENT.claim(source=SOURCE)
def rec_clip_prevents_collapse(table: pd.DataFrame) -> Evidence:
    """On offline data the toy LLM collapses on more seeds when REC's clip is taken away, all else being
    equal.
    """
    opened, clipped = lost_offline(table)
    both = pd.DataFrame({"open": opened, "clipped": clipped}).dropna() > 0.5
    note = (
        f"collapsed without the clip on {int(both['open'].sum())}, with it on "
        f"{int(both['clipped'].sum())} of {len(both)} seeds; effect is the share among seeds where "
        "one of them did"
    )
    return happens_more_often(opened, clipped, note)


@EXPERIMENT.claim(source=f"{SOURCE}; the share was chosen on a pilot")
def rec_clip_prevents_collapse_on_most_seeds(table: pd.DataFrame) -> Evidence:
    """On offline data the toy LLM collapses without REC's clip and does not with it on more than half of all
    seeds.
    """
    opened, clipped = lost_offline(table)
    both = pd.DataFrame({"open": opened, "clipped": clipped}).dropna() > 0.5
    note = "share of seeds that collapsed without the clip alone"
    return happens_mostly(both["open"] & ~both["clipped"], note)


def lost_offline(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return whether a seed collapsed at the largest lag, without the clip and with it."""
    offline = table[table["lag"] == table["lag"].max()]
    opened, clipped = (of_arm(offline, "collapsed", recipe, "none") for recipe in ("rec_oneside", "rec"))
    return opened, clipped
