"""ST-PPO in training: PPO over tokens and over turns on old data, with a tool and a critic."""

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, Stop, arms, happens_mostly, median_exceeds, paired
from testbed.config.run import Run, grid

SOURCE = "Li et al. (2025), ST-PPO, arXiv:2511.20718"
GAME = Run(
    task="guess", policy="toy", policy_args=(("heads", 2), ("layers", 1), ("width", 16)), recipe="ppo",
    prompts=8, group=8, steps=240, learning_rate=1e-2, optimizer="adam", max_grad_norm=1.0,
    warm_start_steps=60, evaluation_prompts=32, log_every=20, critic="head", lag=32,
)  # fmt: skip
LOSS = "recipe_args.loss"
LOSSES = ("ppo_clip", "turn_ppo", "st_ppo")


def cells() -> tuple[Run, ...]:
    """PPO over tokens, over turns, and over turns with the correction for what is clipped."""
    return grid(GAME, recipe_args=[(("loss", loss),) for loss in LOSSES], seed=[0])


EXPERIMENT = Experiment(
    "turn-training",
    question="Does PPO over turns learn from old data of several turns where PPO over tokens does not?",
    source=SOURCE,
    differs=(
        "a transformer of 4,000 weights that guesses numbers in four turns, one lag, GAE from a linear "
        "critic on "
        "its own hidden states; the learning rate and the lag were chosen on a pilot"
    ),
    cells=cells,
    stop=Stop(block=8, cap=32, begun_with=16),
    keys=(LOSS, "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "mean actor/clip_share"),
    figure=Plot("distribution", x=f"{LOSS}: loss", y="accuracy: final accuracy"),
    systems={"ST-PPO": Part("accuracy and collapse at one lag; not the lags from 0 to 64")},
)


@EXPERIMENT.claim()
def turn_ppo_learns_more_from_old_turns(table: pd.DataFrame) -> Evidence:
    """At lag 32 Turn-PPO ends with a higher accuracy than PPO over tokens, on most seeds."""
    gain_N = paired(table, "accuracy", {LOSS: "turn_ppo"}, {LOSS: "ppo_clip"})
    return median_exceeds(gain_N, 0.0, "median over seeds of the accuracy of Turn-PPO less that of PPO")


@EXPERIMENT.claim()
def st_ppo_learns_more_from_old_turns(table: pd.DataFrame) -> Evidence:
    """At lag 32 ST-PPO ends with a higher accuracy than PPO over tokens, on most seeds."""
    gain_N = paired(table, "accuracy", {LOSS: "st_ppo"}, {LOSS: "ppo_clip"})
    return median_exceeds(gain_N, 0.0, "median over seeds of the accuracy of ST-PPO less that of PPO")


@EXPERIMENT.claim()
def token_ppo_collapses_on_old_turns(table: pd.DataFrame) -> Evidence:
    """At lag 32 PPO over tokens collapses and ST-PPO does not on more than half of all seeds."""
    lost = arms(table, "collapsed", {loss: {LOSS: loss} for loss in LOSSES}) > 0.5
    note = "share of seeds on which PPO over tokens collapsed and ST-PPO did not"
    return happens_mostly(lost["ppo_clip"] & ~lost["st_ppo"], note)
