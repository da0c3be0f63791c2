"""Sampled ESS against exact ESS: the range in which the sampled one is accurate."""

import math

import pandas as pd

from analysis.tables.outcomes import ESS, ESS_FLOOR, need

EXACT = "exact/ess_kish_sequence"

NEAR = 10.0
"""An exact ESS is "near the floor" from 1/N up to this many times 1/N."""


def deepest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the row of every (recipe, lag, seed) in which the exact ESS is smallest, the first of equals.

    Rows are chosen by the exact ESS alone, so the sampled ESS in them is not selected for being low or high.
    """
    need(frame, ["recipe", "lag", "seed", "step", EXACT])
    ordered = frame.sort_values([EXACT, "step"], kind="stable")
    return ordered.drop_duplicates(["recipe", "lag", "seed"]).sort_values(["recipe", "lag", "seed"])


def overstatement(frame: pd.DataFrame, near: float = NEAR) -> pd.DataFrame:
    """Return, per seed, log_ratio: the mean of log(sampled / exact) where 1/N <= exact <= near/N.

    Below 1/N the sampled ESS is larger by construction, so those rows are left out. rows says how many
    remain.
    """
    need(frame, ["seed", EXACT, ESS, ESS_FLOOR])
    floors = frame[EXACT] / frame[ESS_FLOOR]
    rows = frame[(floors >= 1.0) & (floors <= near)]
    log_ratio = (rows[ESS] / rows[EXACT]).map(math.log)
    grouped = log_ratio.groupby(rows["seed"])
    return pd.DataFrame({"log_ratio": grouped.mean(), "rows": grouped.size()}).reset_index()
