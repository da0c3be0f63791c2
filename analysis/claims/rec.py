"""Claims of REC: the clip matters, the importance weight does not; judged on two committed sweeps.

A one-sided clip keeps a token with A < 0 whatever its ratio above 1, and an importance weight then multiplies
its gradient without bound; a weight of 1 does not. Two claims of equality therefore follow the first: where
the region is two-sided, and where a tenth of the learning rate keeps ratios near 1. Both were put down after
the table rec was seen and before the cells of rec-bounded were run. The two-sided one cannot be decided
there: what it drops is also what would pull tokens back, and both arms lose all accuracy at every lag above
0, where they are equal whatever the weights do.
"""

from __future__ import annotations

import pandas as pd

from analysis.claims.base import Evidence, claim, more_often, on_most
from analysis.claims.equivalence import at_floor, equivalent

SOURCE = "Yao et al. (2025), Group-relative REINFORCE is secretly an off-policy algorithm, arXiv:2509.24203"
MARGIN = 0.05
"""Accuracy. Set before the sweeps were run."""
WEIGHT, WEIGHTS = "recipe_args.weight", ("none", "importance")


def of_arm(table: pd.DataFrame, value: str, recipe: str, weight: str) -> pd.Series:
    """Return a value of the cells with this recipe and importance weight, indexed by lag and seed."""
    rows = table[(table["recipe"] == recipe) & (table[WEIGHT] == weight)]
    return rows.set_index(["lag", "seed"])[value]


def same_accuracy(none: pd.Series, importance: pd.Series) -> Evidence:
    """Return the evidence that importance weights leave final accuracies alone, paired by seed, per lag.

    Lags at which neither arm is clear of accuracy 0 say nothing, see `at_floor`.
    """
    difference = (importance - none).dropna()
    groups = {f"lag {lag}": x_N.to_numpy() for lag, x_N in difference.groupby(level="lag")}
    floored = [
        f"lag {lag}"
        for lag in difference.index.unique(level="lag")
        if at_floor([arm.xs(lag, level="lag").dropna() for arm in (none, importance)], MARGIN)
    ]
    level = none.groupby(level="lag").mean()
    means = ", ".join(
        f"{level[lag]:.2f}{x_N.mean():+.3f} at lag {lag}" for lag, x_N in difference.groupby(level="lag")
    )
    note = f"{MARGIN:g} less the mean change in final accuracy by importance weights; accuracy {means}"
    return equivalent(groups, MARGIN, note, floored)


@claim(
    "rec-importance-weights-change-nothing",
    source=SOURCE,
    kind="statistical",
    table="rec",
    statement=(
        "With REC's one-sided clip, importance weights change the toy LLM's final accuracy by less than "
        "0.05 on average at every lag, on-policy and offline included."
    ),
)
def weights_change_nothing(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the two clipped arms."""
    return same_accuracy(*(of_arm(table, "accuracy", "rec", weight) for weight in WEIGHTS))


@claim(
    "rec-bounded-importance-weights-change-nothing",
    source="this project, after the refutation of rec-importance-weights-change-nothing",
    kind="statistical",
    table="rec-bounded",
    statement=(
        "With a two-sided region, where kept weights lie between 0.8 and 1.2, importance weights change the "
        "toy LLM's final accuracy by less than 0.05 on average at every lag."
    ),
)
def bounded_weights_change_nothing(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the two arms with a two-sided region."""
    return same_accuracy(*_bounded(table, "twoside"))


@claim(
    "rec-slow-importance-weights-change-nothing",
    source="this project, after the refutation of rec-importance-weights-change-nothing",
    kind="statistical",
    table="rec-bounded",
    statement=(
        "With REC's one-sided clip at a tenth of the learning rate, importance weights change the toy LLM's "
        "final accuracy by less than 0.05 on average at every lag."
    ),
)
def slow_weights_change_nothing(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the two one-sided arms at the small learning rate."""
    return same_accuracy(*_bounded(table, "oneside"))


def _bounded(table: pd.DataFrame, keep: str) -> list[pd.Series]:
    rows = table[table["recipe_args.keep"] == keep].assign(recipe="rec")
    return [of_arm(rows, "accuracy", "rec", weight) for weight in WEIGHTS]


@claim(
    "rec-clip-prevents-collapse",
    source=SOURCE,
    kind="statistical",
    table="rec",
    statement=(
        "On offline data the toy LLM collapses on more seeds when REC's clip is taken away, all else being "
        "equal."
    ),
)
def clip_prevents_collapse(table: pd.DataFrame) -> Evidence:
    """Return the McNemar evidence over seeds at the largest lag, which share their random numbers."""
    found = _lost_offline(table)
    note = (
        f"collapsed without the clip on {int(found['open'].sum())}, with it on "
        f"{int(found['clipped'].sum())} of {len(found)} seeds; effect is the difference among seeds where "
        "one of them did"
    )
    return more_often(list(found["open"]), list(found["clipped"]), note)


@claim(
    "rec-clip-prevents-collapse-on-most-seeds",
    source=f"{SOURCE}; the share was chosen after the table was seen",
    kind="statistical",
    table="rec",
    statement=(
        "On offline data the toy LLM collapses without REC's clip and does not with it on more than half of "
        "all seeds."
    ),
)
def clip_prevents_most_collapses(table: pd.DataFrame) -> Evidence:
    """Return the binomial evidence over seeds at the largest lag."""
    found = _lost_offline(table)
    note = "share of seeds that collapsed without the clip alone, less 1/2"
    return on_most(list(found["open"] & ~found["clipped"]), note)


def _lost_offline(table: pd.DataFrame) -> pd.DataFrame:
    """Whether a seed collapsed at the largest lag: columns open (no clip) and clipped."""
    offline = table[table["lag"] == table["lag"].max()]
    lost = {
        "open": of_arm(offline, "collapsed", "rec_oneside", "none"),
        "clipped": of_arm(offline, "collapsed", "rec", "none"),
    }
    return pd.DataFrame(lost).dropna() > 0.5
