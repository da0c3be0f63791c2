"""Claims about what stale data do to training, judged on the committed staleness table."""

from __future__ import annotations

import pandas as pd

from analysis.claims.base import Evidence, claim, mean_above_zero, more_often, on_most
from analysis.collapse import cells


@claim(
    "reinforce-collapses-where-grpo-holds",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161",
    kind="statistical",
    table="staleness",
    statement="At the largest lag, unclipped REINFORCE collapses on more seeds than clipped GRPO does.",
)
def reinforce_collapses(table: pd.DataFrame) -> Evidence:
    """Return the McNemar evidence over seeds, which share their random numbers between the two recipes."""
    pair, lag = _pairs_at_the_largest_lag(table)
    note = (
        f"lag {lag}: reinforce collapsed on {int(pair['reinforce'].sum())}, grpo on "
        f"{int(pair['grpo'].sum())} of {len(pair)} seeds; effect is the difference among seeds where one of "
        "them did"
    )
    return more_often(list(pair["reinforce"]), list(pair["grpo"]), note)


@claim(
    "reinforce-collapses-where-grpo-holds-on-most-seeds",
    source="as reinforce-collapses-where-grpo-holds; the share was chosen after the table was seen",
    kind="statistical",
    table="staleness",
    statement=(
        "At the largest lag, unclipped REINFORCE collapses and clipped GRPO does not on more than half of "
        "all seeds."
    ),
)
def reinforce_collapses_mostly(table: pd.DataFrame) -> Evidence:
    """Return the binomial evidence over seeds."""
    pair, lag = _pairs_at_the_largest_lag(table)
    alone = pair["reinforce"] & ~pair["grpo"]
    return on_most(list(alone), f"share of seeds on which reinforce alone collapsed at lag {lag}, less 1/2")


def _pairs_at_the_largest_lag(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Whether a seed collapsed, a column per recipe, and the lag."""
    found = cells(table)
    worst = found[found["lag"] == found["lag"].max()]
    pair = worst.pivot(index="seed", columns="recipe", values="collapsed")
    return pair.reindex(columns=["reinforce", "grpo"]).dropna() > 0.5, int(worst["lag"].max())


@claim(
    "staleness-costs-grpo-accuracy",
    source="Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161, figure 1",
    kind="statistical",
    table="staleness",
    statement="GRPO ends with lower accuracy at the largest lag than at the smallest one.",
)
def staleness_costs(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of final accuracy at the smallest lag minus that at the largest lag."""
    found = (
        cells(table[table["recipe"] == "grpo"])
        if (table["recipe"] == "grpo").any()
        else cells(table).iloc[:0]
    )
    final = found.pivot(index="seed", columns="lag", values="final").dropna()
    if final.shape[1] < 2:
        return mean_above_zero([], "no grpo cells at two lags")
    lags = sorted(final.columns)
    note = f"mean over seeds of final accuracy at lag {lags[0]} minus lag {lags[-1]}"
    return mean_above_zero(final[lags[0]] - final[lags[-1]], note)
