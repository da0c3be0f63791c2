"""Losses on pairs under lag: does online DPO lose least, and less the wider the network?"""

import pandas as pd

from analysis.experiments.lag.small_rates import KEYS, NAME, OLD, pairs
from analysis.lab import Arm, Evidence, Experiment, Part, Stop, arm, median_exceeds
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

SOURCE = "Noukhovitch et al. (2024), Asynchronous RLHF, arXiv:2410.18252"


def cells() -> tuple[Run, ...]:
    """Online DPO, RLOO and GRPO, on-policy and at lag 64, each at its best rate of `small-rates`."""
    return tuned(pairs(), NAME, KEYS)


EXPERIMENT = Experiment(
    "preference-lag",
    question="Does online DPO lose less to old data than PPO's clip does, and less the wider the network?",
    source=SOURCE,
    differs=(
        "a checked answer in place of a reward model; the best and the worst of 8 answers, not of 2; "
        "exact lag; widths 16 and 32; rates from three on 2 seeds"
    ),
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=(*KEYS, "seed"),
    metrics=("accuracy", "best", "start", "area", "collapsed", "val/kl_start_k3"),
    figure="preference-lag",
    systems={"Asynchronous RLHF": Part("robustness by loss and width; not the speed of its pipeline")},
)


def lost(table: pd.DataFrame, recipe: str, width: int = 16) -> pd.Series:
    """Return the final accuracy lost to the lag, per seed, of a recipe at a width."""
    fields: Arm = {"recipe": recipe, "policy_args": f"width={width}"}
    fresh, old = (arm(table, "accuracy", {**fields, "lag": lag}) for lag in (0, OLD))
    return fresh - old


def _loses_less(table: pd.DataFrame, rival: str) -> Evidence:
    ours, theirs = lost(table, "online_dpo"), lost(table, rival)
    middle = f"online DPO loses {ours.median():.3f}, {rival} {theirs.median():.3f}"
    note = f"accuracy lost less in the median; {middle}"
    return median_exceeds(theirs - ours, 0.0, note)


@EXPERIMENT.claim()
def online_dpo_loses_less_to_lag_than_rloo(table: pd.DataFrame) -> Evidence:
    """At lag 64 online DPO loses less final accuracy than RLOO with PPO's clip, on most seeds."""
    return _loses_less(table, "rloo")


@EXPERIMENT.claim()
def online_dpo_loses_less_to_lag_than_grpo(table: pd.DataFrame) -> Evidence:
    """At lag 64 online DPO loses less final accuracy than GRPO, on most seeds."""
    return _loses_less(table, "grpo")


@EXPERIMENT.claim()
def wider_networks_lose_less_to_lag(table: pd.DataFrame) -> Evidence:
    """At lag 64 online DPO loses less final accuracy at width 32 than at width 16, on most seeds."""
    narrow, wide = (lost(table, "online_dpo", width) for width in (16, 32))
    middle = f"width 16 loses {narrow.median():.3f}, width 32 {wide.median():.3f}"
    note = f"accuracy lost less in the median; {middle}"
    return median_exceeds(narrow - wide, 0.0, note)
