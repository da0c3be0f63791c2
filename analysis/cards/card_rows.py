"""Sum up the runs of card-training for report cards, a row per objective."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pandas as pd

from analysis.experiments.cards.card_training import ARMS, LAGS, OTHER_RATES, RATE, TUNED_AT
from analysis.judging.intervals import median_interval

Row: TypeAlias = dict[str, float]

SHOWN = tuple(arm for arm in ARMS if not arm.startswith("rate "))
"""Arms whose outcome is a line of its own; the others are what a tuned objective may choose."""
TUNED = f"lag {TUNED_AT}, tuned"
SAFE = 0.1
"""Accuracy that an objective may lose to a lag that is safe for it."""
LEARNED = 0.2
"""Accuracy on fresh data from which on there is something to lose; the start has .05."""
DECIDED = {5: 5, 8: 7}
"""Seeds on one side of the others' median, by how many there are, that decide on which side an objective
lies. Of an objective at that median a side is named with chance 1/32 + 5/256 = 5.1%, wherever one stops."""


def training_rows(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row per recipe of the table card-training: medians over seeds, each with its interval.

    Columns "NAME", "NAME low" and "NAME high" of: accuracy by arm; accuracy at lag 64 at a tuned rate; the
    largest safe lag; steps on fresh data to accuracy .5, infinite where the median seed never gets there.
    "seeds ARM", and "collapsed": the share of the runs of SHOWN. An arm without runs has no columns.
    """
    return pd.DataFrame.from_dict(
        {str(recipe): _row(part) for recipe, part in cells.groupby("recipe")}, orient="index"
    )


def _row(cells: pd.DataFrame) -> Row:
    by_arm = {str(arm): part.set_index("seed").sort_index() for arm, part in cells.groupby("arm")}
    accuracy = {arm: part["accuracy"] for arm, part in by_arm.items()}
    row: Row = {}
    for arm in SHOWN:
        if arm in by_arm:
            row |= _interval(f"accuracy {arm}", accuracy[arm]) | {f"seeds {arm}": len(accuracy[arm])}
    row["collapsed"] = float(cells.loc[cells["arm"].isin(SHOWN), "collapsed"].mean())
    if f"lag {TUNED_AT}" in by_arm:
        row |= _interval(f"accuracy {TUNED}", tuned(accuracy))
    if "on-policy" in by_arm:
        row |= safe_lag(accuracy)
        steps = by_arm["on-policy"]["steps_to 0.5"].fillna(np.inf)
        row |= {"steps on-policy": float(np.median(steps))}
        row |= {"steps on-policy low": float(steps.min()), "steps on-policy high": float(steps.max())}
    return row


def _interval(name: str, values: pd.Series) -> Row:
    found = median_interval(values)
    return {name: found.center, f"{name} low": found.low, f"{name} high": found.high}


def tuned(accuracy: Mapping[str, pd.Series]) -> pd.Series:
    """Return every seed's accuracy at lag 64 at the rate that is best on the mean of the other seeds.

    Chosen on its own seed as well, a rate would look better than it is. Equal rates: the common one.
    """
    rates = {RATE: f"lag {TUNED_AT}"} | {rate: f"rate {rate:g}" for rate in OTHER_RATES}
    known = pd.DataFrame({rate: accuracy[arm] for rate, arm in rates.items() if arm in accuracy}).dropna()
    others = (known.sum() - known).round(9)  # sums of equal numbers are equal
    return pd.Series({seed: known.at[seed, others.loc[seed].idxmax()] for seed in known.index})


def safe_lag(accuracy: Mapping[str, pd.Series]) -> Row:
    """Return the largest lag up to which the median of what a seed loses stays within SAFE.

    low, high: the same of the upper and of the lower end of that median's interval. NaN for an objective
    that does not learn on fresh data.
    """
    fresh = accuracy["on-policy"]
    names = ("safe lag", "safe lag low", "safe lag high")
    if fresh.median() < LEARNED:
        return dict.fromkeys(names, float("nan"))
    safe = np.zeros(3)
    holds = np.ones(3, dtype=bool)
    for lag in LAGS:
        if f"lag {lag}" not in accuracy:
            break
        lost = median_interval((fresh - accuracy[f"lag {lag}"]).dropna())
        holds &= np.array([lost.center, lost.high, lost.low]) <= SAFE
        safe[holds] = lag
    return dict(zip(names, map(float, safe), strict=True))


def side(accuracy: pd.Series, typical: float) -> str:
    """Return "above" or "below" where the seeds decide on which side of the others' median one lies, or "".

    Looks are those of DECIDED, in the order of the seeds: a side found at the first one stays.
    """
    values_N = accuracy.sort_index().to_numpy()
    for count, needed in DECIDED.items():
        if values_N.size < count:
            break
        for name, wins in (("above", values_N > typical), ("below", values_N < typical)):
            if wins[:count].sum() >= needed:
                return name
    return ""
