"""Sampled ESS, which a run can measure, beside the exact ESS of a tabular world, as data grow old."""

import pandas as pd

from analysis.lab import Evidence, Experiment, Frame, Plot, exact
from analysis.sweeps.base_runs import CHAIN
from analysis.tables.committed import Table
from analysis.tables.condensed import ESS_COLLAPSE, TOKEN_ESS, condense
from analysis.tables.outcomes import ESS, ESS_FLOOR, need
from analysis.tables.sampled_ess import EXACT, NEAR, overstatement
from testbed.config.run import Run, grid


def cells() -> tuple[Run, ...]:
    """REINFORCE on a chain at eight lags, 4 seeds."""
    return grid(CHAIN, lag=[0, 2, 4, 8, 16, 32, 64, 128], seed=range(4))


DEPTH = 1e-4
"""Multiple of the floor 1/N: smaller exact values are drawn at it."""


def curves(rows: Frame) -> Table:
    """Return exact and sampled ESS per recipe, lag, seed and step."""
    return condense(rows)["ess-collapse"]


EXPERIMENT = Experiment(
    question="Does the ESS that a run measures say when its data are too old to learn from?",
    source="this project", cells=cells, fresh=range(1000, 1016), from_rows=curves,
    keys=("recipe", "lag", "seed", "step"), metrics=ESS_COLLAPSE,
    figure=Plot(
        "scatter", x=f"{EXACT}: exact sequence ESS (share of N)", y=f"{ESS}: sampled sequence ESS",
        arm=("lag: lag",), log="xy", equal=True, floor=ESS_FLOOR,
        of=lambda table: table.assign(**{EXACT: table[EXACT].clip(lower=DEPTH * table[ESS_FLOOR])}),
        says="Shows the Kish ESS of sequence ratios in a finite MDP, sampled against exact, for every lag, "
        "seed and logged step; solid line: both are equal; dashed line: the floor 1/N, near which a sampled "
        "ESS says that the estimate is unreliable, but not by how much; exact values below a ten-thousandth "
        "of the floor are drawn there.",
    ),
)  # fmt: skip


@EXPERIMENT.claim(
    "sampled-ess-never-below-floor", source="(sum w)^2 / sum w^2 >= 1 for weights w >= 0", kind="identity"
)
def sampled_ess_never_below_floor(table: Frame) -> Evidence:
    """The Kish ESS of N sampled sequences never reads below 1/N, however dead the estimate is."""
    need(table, [ESS, ESS_FLOOR, EXACT])
    dead = int((table[EXACT] < table[ESS_FLOOR]).sum())
    # Five digits in the table: equal numbers may differ by one unit of the last digit.
    note = f"largest 1 - N ESS; the exact ESS is below 1/N in {dead} of {len(table)} rows"
    return exact(1.0 - table[ESS] / table[ESS_FLOOR], 1e-4, note)


EXPERIMENT.claim(
    "sampled-ess-overstates-near-floor",
    f"Where the exact Kish ESS is 1/N to {NEAR:g}/N, the sampled one reads too high on average.",
    source="this project; the plug-in estimate of 1 / E w^2 misses the rare large weights",
).compare(lambda table: overstatement(table)["log_ratio"], typical="mean")


def above_half(table: Frame) -> pd.Series:
    """Return the mean token ESS minus 1/2 in the rows with a dead sequence ESS, by seed."""
    need(table, ["seed", TOKEN_ESS, EXACT, ESS_FLOOR])
    rows = table[table[EXACT] <= NEAR * table[ESS_FLOOR]]
    return (rows[TOKEN_ESS] - 0.5).groupby(rows["seed"]).mean()


EXPERIMENT.claim(
    "token-ess-hides-collapse",
    f"Where the exact sequence ESS is at most {NEAR:g}/N, the sampled token ESS is above 1/2.",
    source="this project; verl logs the token-level ESS",
).compare(above_half, typical="mean")
