"""The whipping effect: do stale data shorten answers where the reward does not care about their length?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.claims import Evidence
from analysis.comparisons import paired
from analysis.experiment import Experiment, Part, Stop
from analysis.plot import Plot
from analysis.sequential import median_stays_below
from analysis.starting_runs import LAB
from testbed.config.run import Run, grid

SOURCE = "ReMix (2025), arXiv:2507.06892: the whipping effect, off-policy drift prefers shorter responses"
OLD = 64
LENGTH = "val/response_length"
BASE = replace(LAB, task="length", policy_args=(("width", 16),), steps=300, learning_rate=3e-3)


def cells() -> tuple[Run, ...]:
    """GRPO, truncated sequence weights and REINFORCE on the length task, on-policy and at lag 64."""
    return grid(BASE, recipe=["grpo", "vcpo", "reinforce"], lag=[0, OLD], seed=[0])


EXPERIMENT = Experiment(
    "whipping",
    question="Do stale data shorten answers where the reward does not care about their length?",
    source=SOURCE,
    differs=(
        "a task whose reward is length-neutral, so that nothing but the objective can move the length; one "
        "learning rate; lag in place of replay"
    ),
    cells=cells,
    stop=Stop(cap=16),
    keys=("recipe", "lag", "seed"),
    metrics=(
        "accuracy",
        "start",
        "length_collapsed",
        LENGTH,
        f"first {LENGTH}",
        f"min {LENGTH}",
        "val/entropy",
    ),
    figure=Plot(
        "final by dial",
        x="lag",
        y=LENGTH,
        arm=("recipe",),
        x_label="lag (optimizer steps)",
        y_label="length of answers (tokens)",
    ),
    systems={
        "ReMix (Squeeze the Soaked Sponge)": Part("the whipping effect of lag; rollouts saved: see reuse")
    },
)


def _shorter(table: pd.DataFrame, recipe: str) -> Evidence:
    arm = {"recipe": recipe}
    change_N = paired(table, LENGTH, {**arm, "lag": OLD}, {**arm, "lag": 0})
    rows = table[table["recipe"] == recipe].groupby("lag")[LENGTH].median()
    note = (
        f"tokens by which answers are shorter in the median; lengths {rows[OLD]:.2f}, {rows[0]:.2f} on-policy"
    )
    return median_stays_below(change_N, 0.0, note)


@EXPERIMENT.claim(
    "lag-shortens-the-answers-of-grpo",
    statement=(
        "Under a length-neutral reward GRPO's answers are shorter at lag 64 than on-policy, on most seeds."
    ),
)
def grpo_shorter(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the change in final length, paired by seed."""
    return _shorter(table, "grpo")


@EXPERIMENT.claim(
    "lag-shortens-the-answers-of-truncated-weights",
    statement=(
        "With truncated sequence weights (VCPO), whose size falls with length, answers are shorter at lag 64 "
        "than on-policy under a length-neutral reward, on most seeds."
    ),
)
def weights_shorter(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the change in final length, paired by seed."""
    return _shorter(table, "vcpo")


@EXPERIMENT.claim(
    "lag-shortens-the-answers-of-reinforce",
    statement=(
        "Under a length-neutral reward REINFORCE's answers are shorter at lag 64 than on-policy, on most "
        "seeds."
    ),
)
def reinforce_shorter(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the change in final length, paired by seed."""
    return _shorter(table, "reinforce")
