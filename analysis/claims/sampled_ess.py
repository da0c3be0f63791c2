"""Claims about the ESS that a run can measure, judged by the one that a tabular world can compute."""

from __future__ import annotations

import pandas as pd

from analysis.claims.base import Evidence, claim, exact, mean_above_zero
from analysis.collapse import ESS, ESS_FLOOR, need
from analysis.condense import TOKEN_ESS
from analysis.ess import EXACT, NEAR, overstatement


@claim(
    "sampled-ess-never-below-floor",
    source="(sum w)^2 / sum w^2 >= 1 for weights w >= 0",
    kind="exact",
    table="ess-collapse",
    statement="The Kish ESS of N sampled sequences never reads below 1/N, however dead the estimate is.",
)
def never_below_floor(table: pd.DataFrame) -> Evidence:
    """Return 1 - N ESS in every row, and require that the exact ESS itself went below 1/N somewhere."""
    need(table, [ESS, ESS_FLOOR, EXACT])
    dead = int((table[EXACT] < table[ESS_FLOOR]).sum())
    # Five digits in the table: equal numbers may differ by one unit of the last digit.
    note = f"largest 1 - N ESS; the exact ESS is below 1/N in {dead} of {len(table)} rows"
    return exact(1.0 - table[ESS] / table[ESS_FLOOR], 1e-4, note)


@claim(
    "sampled-ess-overstates-near-floor",
    source="this project; the plug-in estimate of 1 / E w^2 misses the rare large weights",
    kind="statistical",
    table="ess-collapse",
    statement=f"Where the exact Kish ESS is 1/N to {NEAR:g}/N, the sampled one reads too high on average.",
)
def overstates(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of log(sampled / exact)."""
    found = overstatement(table)
    note = f"mean over seeds of log(sampled / exact), {int(found['rows'].sum())} rows"
    return mean_above_zero(found["log_ratio"], note)


@claim(
    "token-ess-hides-collapse",
    source="this project; verl logs the token-level ESS",
    kind="statistical",
    table="ess-collapse",
    statement=f"Where the exact sequence ESS is at most {NEAR:g}/N, the sampled token ESS is above 1/2.",
)
def token_hides(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of token ESS - 1/2 in the rows with a dead sequence ESS."""
    need(table, ["seed", TOKEN_ESS, EXACT, ESS_FLOOR])
    rows = table[table[EXACT] <= NEAR * table[ESS_FLOOR]]
    by_seed = (rows[TOKEN_ESS] - 0.5).groupby(rows["seed"]).mean()
    return mean_above_zero(by_seed, f"mean over seeds of token ESS - 1/2, {len(rows)} rows")
