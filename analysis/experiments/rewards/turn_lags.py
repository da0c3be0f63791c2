"""ST-PPO over lags: token, turn and sequence ratios, with and without the correction for what is clipped."""

from dataclasses import replace

import pandas as pd

from analysis.experiments.rewards.turn_training import GAME, LOSS, SOURCE
from analysis.lab import Evidence, Experiment, Part, Stop, arm, arms, happens_mostly, median_exceeds, paired
from testbed.config.run import Run, grid

OLD = 64
LOSSES = ("ppo_clip", "s_ppo", "turn_ppo", "st_ppo", "gspo_token")
CLIP = 0.02
"""Share of tokens by which the clip of turns must fire less. Set before the table was made."""


def cells() -> tuple[Run, ...]:
    """Five ratios on data 64 steps old, and two of them on fresh data."""
    start = replace(GAME, steps=120, log_every=12)
    return tuple(
        cell
        for lag, losses in ((OLD, LOSSES), (0, ("ppo_clip", "st_ppo")))
        for cell in grid(start, lag=[lag], recipe_args=[(("loss", loss),) for loss in losses], seed=[0])
    )


EXPERIMENT = Experiment(
    "turn-lags",
    question="Which ratio keeps PPO with a critic alive on turns that are 64 steps old?",
    source=SOURCE,
    differs="a transformer of 4,000 weights that guesses numbers in four turns; 120 steps; lags 0 and 64",
    cells=cells,
    stop=Stop(block=8, cap=32, begun_with=16),
    keys=("lag", LOSS, "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "mean actor/clip_share"),
    margins={"share of clipped tokens": CLIP},
    figure="turn-lags",
    systems={"ST-PPO": Part()},
)


@EXPERIMENT.claim()
def token_ppo_collapses_at_lag_64(table: pd.DataFrame) -> Evidence:
    """At lag 64 PPO over tokens collapses, and neither S-PPO nor ST-PPO does, on more than half of all
    seeds.
    """
    where = {loss: {"lag": OLD, LOSS: loss} for loss in ("ppo_clip", "s_ppo", "st_ppo")}
    lost = arms(table, "collapsed", where) > 0.5
    shares = ", ".join(f"{name} {x_N.mean():.2f}" for name, x_N in lost.items())
    event_N = lost["ppo_clip"] & ~lost["s_ppo"] & ~lost["st_ppo"]
    return happens_mostly(event_N, f"share of seeds on which that is so; collapsed: {shares}")


@EXPERIMENT.claim()
def old_turns_are_clipped_less_than_old_tokens(table: pd.DataFrame) -> Evidence:
    """At lag 64 ST-PPO cuts fewer tokens than PPO over tokens, by 0.02 of all in the median."""
    less_N = -paired(
        table, "mean actor/clip_share", {"lag": OLD, LOSS: "st_ppo"}, {"lag": OLD, LOSS: "ppo_clip"}
    )
    return median_exceeds(less_N, CLIP, "median over seeds of the share cut less by ST-PPO, less 0.02")


@EXPERIMENT.claim()
def st_ppo_ends_above_ppo_at_lag_64(table: pd.DataFrame) -> Evidence:
    """At lag 64 ST-PPO ends with a higher accuracy than PPO over tokens, on most seeds."""
    gain_N = paired(table, "accuracy", {"lag": OLD, LOSS: "st_ppo"}, {"lag": OLD, LOSS: "ppo_clip"})
    medians = {x: arm(table, "accuracy", {"lag": OLD, LOSS: x}).median() for x in LOSSES}
    note = ", ".join(f"{name} {value:.3f}" for name, value in medians.items())
    return median_exceeds(gain_N, 0.0, f"median over seeds of the gain in accuracy; medians {note}")
