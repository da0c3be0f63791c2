"""TP-GRPO in training: samples to a success rate with rewards for answers, thoughts or tokens."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis.experiments.weights.step_rewards import LENGTH, LEVELS, SOURCE
from analysis.lab import Evidence, Experiment, Plot, Seeds, all_exceed, difference, of_seeds
from envs.arrays import Floats
from testbed.rng import generator

NAME = "step-reward-training"
SEEDS, GROUP, RATE, MOST, WANTED = 24, 8, 0.5, 4000, 0.8
FEWER = 1.25
ERRORS = {"perfect": 0.0, "erring": 0.2}
"""Chance that a judge of thoughts or tokens is wrong about one."""


def rewards(right_GT: NDArray[np.bool_], width: int, wrong_GC: NDArray[np.bool_]) -> Floats:
    """Return what is earned from each step on, [G, T]: thoughts of `width` steps, some judged wrongly."""
    whole_GC = right_GT.reshape(len(right_GT), -1, width).all(-1) ^ wrong_GC
    ahead_GC = np.cumsum(whole_GC[:, ::-1], axis=1)[:, ::-1] * width / LENGTH
    return np.repeat(ahead_GC, width, axis=1)


def samples(seed: int, width: int, error: float) -> int:
    """Return the answers drawn until six steps, right by halves at first, succeed with chance .8 together."""
    draw, theta_T = generator(seed, f"{NAME}/{width}/{error}"), np.zeros(LENGTH)
    for step in range(MOST):
        chance_T = special.expit(theta_T)
        if chance_T.prod() >= WANTED:
            return step * GROUP
        right_GT = draw.random((GROUP, LENGTH)) < chance_T
        # The answer itself is checked without error: the judge is of parts alone.
        wrong_GC = draw.random((GROUP, LENGTH // width)) < (0.0 if width == LENGTH else error)
        ahead_GT = rewards(right_GT, width, wrong_GC)
        adv_GT = ahead_GT - ahead_GT.mean(0)
        theta_T = theta_T + RATE * (adv_GT * (right_GT - chance_T)).mean(0)
    return MOST * GROUP


def rows(seeds: Seeds) -> pd.DataFrame:
    """Return samples to a success of .8 by level of reward and judge."""
    found = [
        (seed, level, judge, samples(seed, width, error))
        for seed in seeds
        for level, width in LEVELS.items()
        for judge, error in ERRORS.items()
    ]
    frame = pd.DataFrame(found, columns=["seed", "level", "judge", "samples"])
    return frame.assign(log_samples=np.log(frame["samples"]))


EXPERIMENT = Experiment(
    NAME,
    question="Do rewards for thoughts reach a success rate from fewer samples, with a judge that errs too?",
    source=SOURCE,
    differs="six independent steps in two thoughts, REINFORCE with the group's mean; a judge errs at random",
    compute=of_seeds(NAME, rows, SEEDS, {"group": GROUP, "rate": RATE, "most": MOST * GROUP}),
    keys=("run", "seed", "level", "judge"),
    metrics=("samples", "log_samples"),
    margins={"factor of samples": FEWER},
    figure=Plot("distribution", x="level: rewards for", y="samples: samples to 0.8", arm=("judge",)),
    systems=("TP-GRPO",),
)


def _fewer(table: pd.DataFrame, first: str, second: str, judge: str) -> dict[str, Floats]:
    return difference(
        table, "log_samples", {"level": second, "judge": judge}, {"level": first, "judge": judge}
    )


@EXPERIMENT.claim()
def thought_rewards_learn_from_fewer_samples(table: pd.DataFrame) -> Evidence:
    """A perfect judge of thoughts takes fewer samples to a success of 0.8 than answers, by 1.25."""
    return all_exceed(
        float(np.log(FEWER)),
        "mean log factor of samples",
        _fewer,
        "thought",
        "answer",
        "perfect",
    )(table)


EXPERIMENT.claim(
    "an-erring-judge-of-thoughts-still-saves-samples",
    statement="So does a judge who is wrong about every fifth thought.",
)(
    all_exceed(
        float(np.log(FEWER)),
        "mean log factor of samples",
        _fewer,
        "thought",
        "answer",
        "erring",
    )
)

EXPERIMENT.claim(
    "thoughts-bear-an-erring-judge-better-than-tokens",
    statement="With a judge who errs that often thoughts take fewer samples than tokens, by 1.25.",
)(all_exceed(float(np.log(FEWER)), "mean log factor of samples", _fewer, "thought", "token", "erring"))
