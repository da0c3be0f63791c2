"""Claims about a trainer in full precision on rollouts of lower precision, and about two repairs."""

from __future__ import annotations

import pandas as pd

from analysis.claims.base import Evidence, claim, mean_above_zero, more_often, on_most
from analysis.claims.equivalence import at_floor, equivalent

JET_RL = "Jet-RL, arXiv:2601.14243 (abstract)"
MARGIN = 0.05
"""Accuracy. Set before the sweep was run."""
ARMS = {
    "full": ("off", "default", "rec_oneside"),
    "fp8": ("fp8-tensor+fp8-activations", "default", "rec_oneside"),
    "noise": ("layer-noise", "default", "rec_oneside"),
    "unified": ("off", "precision=fp8-tensor+fp8-activations matrices=all", "rec_oneside"),
    "fp8 TIS": ("fp8-tensor+fp8-activations", "default", "tis"),
    "noise TIS": ("layer-noise", "default", "tis"),
}
"""Arms of the table fp8-training by rollout engine, precision of the policy and recipe."""


def arms(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a column per arm, a row per seed."""
    columns = {}
    for name, (engine, precision, recipe) in ARMS.items():
        rows = table[
            (table["mismatch"] == engine) & (table["policy_args"] == precision) & (table["recipe"] == recipe)
        ]
        columns[name] = rows.set_index("seed")[value]
    return pd.DataFrame(columns)


def _collapses_more(table: pd.DataFrame, arm: str) -> Evidence:
    found = arms(table, "collapsed") > 0.5
    accuracy = arms(table, "accuracy").mean()
    note = (
        f"collapsed on {int(found[arm].sum())} of {len(found)} seeds, with full-precision rollouts on "
        f"{int(found['full'].sum())}; mean final accuracy {accuracy[arm]:.3f} against {accuracy['full']:.3f}"
    )
    return more_often(list(found[arm]), list(found["full"]), note)


@claim(
    "fp8-rollouts-collapse-a-full-precision-trainer",
    source=JET_RL,
    kind="statistical",
    table="fp8-training",
    statement=(
        "On the toy LLM, rollouts with e4m3 weights and activations make an uncorrected full-precision "
        "trainer collapse on more seeds than full-precision rollouts do."
    ),
)
def fp8_collapse(table: pd.DataFrame) -> Evidence:
    """Return the McNemar evidence over seeds."""
    return _collapses_more(table, "fp8")


@claim(
    "strong-rollout-noise-collapses-the-trainer",
    source=f"{JET_RL}; with noise seven times the error of e4m3 weights in its place",
    kind="statistical",
    table="fp8-training",
    statement=(
        "Rollouts whose weights are off by a fifth of their root mean square make the uncorrected trainer "
        "collapse on more seeds than full-precision rollouts do."
    ),
)
def noise_collapse(table: pd.DataFrame) -> Evidence:
    """Return the McNemar evidence over seeds."""
    return _collapses_more(table, "noise")


@claim(
    "fp8-rollouts-collapse-most-seeds",
    source=f"{JET_RL}; the share was chosen after the table was seen",
    kind="statistical",
    table="fp8-training",
    statement=(
        "On the toy LLM, rollouts with e4m3 weights and activations make an uncorrected full-precision "
        "trainer collapse on more than half of all seeds, full-precision rollouts not."
    ),
)
def fp8_collapses_most(table: pd.DataFrame) -> Evidence:
    """Return the binomial evidence over seeds."""
    return _collapses_most(table, "fp8")


@claim(
    "strong-rollout-noise-collapses-most-seeds",
    source=f"{JET_RL}; with strong noise in its place; the share was chosen after the table was seen",
    kind="statistical",
    table="fp8-training",
    statement=(
        "Rollouts whose weights are off by a fifth of their root mean square make the uncorrected trainer "
        "collapse on more than half of all seeds, full-precision rollouts not."
    ),
)
def noise_collapses_most(table: pd.DataFrame) -> Evidence:
    """Return the binomial evidence over seeds."""
    return _collapses_most(table, "noise")


def _collapses_most(table: pd.DataFrame, arm: str) -> Evidence:
    found = arms(table, "collapsed").dropna() > 0.5
    return on_most(
        list(found[arm] & ~found["full"]), "share of seeds that collapsed in this arm alone, less 1/2"
    )


@claim(
    "tis-repairs-strong-rollout-noise",
    source="truncated importance sampling, verl documentation of rollout correction",
    kind="statistical",
    table="fp8-training",
    statement="Under the same noise token-level TIS with cap 2 ends at a higher accuracy than no correction.",
)
def tis_repairs(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the difference of final accuracies."""
    found = arms(table, "accuracy")
    means = found.mean()
    note = f"{means['noise TIS']:.3f} against {means['noise']:.3f}; full precision {means['full']:.3f}"
    return mean_above_zero(found["noise TIS"] - found["noise"], note)


@claim(
    "one-precision-on-both-sides-costs-nothing",
    source=f"{JET_RL}: one FP8 flow for rollout and training",
    kind="statistical",
    table="fp8-training",
    statement=(
        "With FP8 on both sides, and with TIS under FP8 rollouts, the final accuracy is within 0.05 of that "
        "of training in full precision."
    ),
)
def unified(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of final accuracies, paired by seed, a group per repair."""
    found = arms(table, "accuracy")
    pairs = {name: found[name] - found["full"] for name in ("unified", "fp8 TIS")}
    means = ", ".join(f"{name} {x_N.mean():+.3f}" for name, x_N in pairs.items())
    floored = [name for name in pairs if at_floor([found[name], found["full"]], MARGIN)]
    return equivalent(pairs, MARGIN, f"0.05 less the mean change in accuracy: {means}", floored)
