"""TP-GRPO in training: samples to a success rate with rewards for answers, thoughts or tokens."""

from functools import cache

import numpy as np
import pandas as pd
from scipy import special

from analysis.lab import PILOT, Bools, Experiment, Floats, Frame, Plot, Seeds, asks, inside, of_seeds, tuned
from testbed.rng import generator

NAME = "step-reward-training"
SOURCE = "TP-GRPO (2025), thought-level process rewards; abstract"
LENGTH = 6
LEVELS = {"answer": LENGTH, "thought": 3, "token": 1}
SEEDS, PILOTS, GROUP, MOST, WANTED = 1024, 32, 8, 2000, 0.8
RATES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
FEWER = 1.25
ERRORS = {"perfect": 0.0, "erring": 0.2}
"""Probability that a judge is wrong about a thought or token."""


def rewards(right_GT: Bools, width: int, wrong_GC: Bools) -> Floats:
    """Return the reward-to-go of each step, [G, T]: the answer's plus that of thoughts of `width` steps.

    The answer is checked without error; all thoughts together, some misjudged, earn as much as it.
    """
    whole_GC = right_GT.reshape(len(right_GT), -1, width).all(-1) ^ wrong_GC
    ahead_GC = np.cumsum(whole_GC[:, ::-1], axis=1)[:, ::-1] * width / LENGTH
    return np.repeat(ahead_GC, width, axis=1) + right_GT.all(-1, keepdims=True)


def samples(seed: int, width: int, error: float, rate: float) -> int:
    """Return the answers drawn until six steps of random difficulty all succeed with probability .8.

    Stops at 16,000; a step's initial logit is normal.
    """
    draw, theta_T = generator(seed, f"{NAME}/{width}/{error}"), generator(seed, NAME).normal(size=LENGTH)
    for step in range(MOST):
        chance_T = special.expit(theta_T)
        if chance_T.prod() >= WANTED:
            # A world that is solved at the start counts as one batch, since the logarithm of 0 has no mean.
            return max(1, step) * GROUP
        right_GT = draw.random((GROUP, LENGTH)) < chance_T
        # The answer itself is checked without error: the judge rates only parts.
        wrong_GC = draw.random((GROUP, LENGTH // width)) < (0.0 if width == LENGTH else error)
        ahead_GT = rewards(right_GT, width, wrong_GC)
        adv_GT = ahead_GT - ahead_GT.mean(0)
        theta_T = theta_T + rate * (adv_GT * (right_GT - chance_T)).mean(0)
    return MOST * GROUP


def log_samples(seeds: Seeds, level: str, judge: str, rate: float) -> Floats:
    """Return the log of `samples`, [R]."""
    return np.log([samples(seed, LEVELS[level], ERRORS[judge], rate) for seed in seeds])


@cache
def rate_of(level: str, judge: str) -> tuple[float, bool]:
    """Return the rate with the fewest samples on pilot worlds, and whether it is an end of its grid."""
    seeds = tuple(range(PILOT, PILOT + PILOTS))
    knobs, ends = tuned(lambda rate: -float(log_samples(seeds, level, judge, rate).mean()), {"rate": RATES})
    return knobs["rate"], ends


def rows(seeds: Seeds) -> Frame:
    """Return samples to a success of .8 by level of reward and judge, each at its rate."""
    found = []
    for level in LEVELS:
        for judge in ERRORS:
            rate, ends = rate_of(level, judge)
            said = {"arm": f"{level}, {judge}", "level": level, "judge": judge, "rate": rate}
            log_R = log_samples(seeds, level, judge, rate)
            found.append(pd.DataFrame({"seed": seeds, **said, "log_samples": log_R, "at end": int(ends)}))
    frame = pd.concat(found, ignore_index=True)
    return frame.assign(samples=np.exp(frame["log_samples"]).round())


EXPERIMENT = Experiment(
    question="Do rewards for thoughts reach a success rate from fewer samples, with a judge that errs too?",
    source=SOURCE,
    differs="six independent steps, REINFORCE with the group's mean; a thought is three steps, right if all "
    "are, where the source joins neighbors of equal correctness; a judge errs at random, as often about a "
    "thought as about a token; the rewards of thoughts do not adapt to the policy's capability",
    compute=of_seeds(NAME, rows, SEEDS, {"group": GROUP, "pilots": PILOTS, "most": MOST * GROUP}),
    keys=("run", "seed", "arm", "level", "judge"), metrics=("samples", "log_samples", "rate", "at end"),
    margins={"factor of samples": FEWER},
    figure=Plot(
        "distribution", x="level: rewards for", y="samples: samples to 0.8", arm=("judge",),
        says="Shows answers drawn until six independent steps succeed together with probability 0.8, by "
        "REINFORCE with the group's mean as baseline, each arm at its best rate; rewards are for the answer "
        "alone, also for each thought of three steps, or also for each token; the judge of thoughts and "
        "tokens never errs (perfect) or misjudges every fifth (erring).",
    ),
    systems=("TP-GRPO",),
)  # fmt: skip

asks(EXPERIMENT,
    ("thought-rewards-learn-from-fewer-samples", "With a judge that never errs, rewards for thoughts and for "
     "the answer reach a success of 0.8 from fewer samples than a reward for the answer alone, by a factor "
     "of 1.25, each at its best rate of pilot worlds.",
     {"level": "answer"}, {"level": "thought"}, {"over": {"judge": "perfect"}}),
    ("an-erring-judge-of-thoughts-still-saves-samples", "With a judge that is wrong about every fifth "
     "thought, rewards for thoughts and for the answer reach a success of 0.8 from fewer samples than a "
     "reward for the answer alone, by a factor of 1.25, each at its best rate of pilot worlds.",
     {"level": "answer"},
     {"level": "thought"}, {"over": {"judge": "erring"}}),
    ("thoughts-bear-an-erring-judge-better-than-tokens", "With a judge that is wrong about every fifth "
     "thought or token, rewards for thoughts take fewer samples than rewards for tokens, by a factor of "
     "1.25, each at its best rate of pilot worlds.", {"level": "token"},
     {"level": "thought"},
     {"over": {"judge": "erring"}, "gates": {"tuned": inside(level=("thought", "token"), judge="erring")}}),
    outcome="log_samples", by=float(np.log(FEWER)),
)  # fmt: skip
