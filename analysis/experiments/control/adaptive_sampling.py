"""PROPS: a behavior that takes more of what the data have too little of, against independent draws."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import (
    Evidence,
    Experiment,
    Groups,
    Plot,
    combinations,
    difference,
    must_exceed,
    of_keys,
)
from envs.mdps import garnet
from testbed.offline.improvement import softmax

NAME = "adaptive-sampling"
SEEDS, LEVELS, ACTIONS, UPDATES, BATCH, RATE = 80, (64, 256, 1024), 8, 30, 16, 3.0
STEPS = {"independent": 0.0, "adaptive": 1.0}
"""Step of the behavior against the data's excess; 0 draws from the target itself."""
FACTOR, RATES = 0.9, (-0.8, -0.6)
"""Ratio of sampling errors; exponents of the sample size."""


def make(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return the sampling error by world and size, and the value of a bandit learner fed such batches."""
    from testbed.offline.sampling import adaptive_sampling

    worlds = {
        "bandit": garnet(states=1, actions=ACTIONS, branching=1, horizon=1, seed=0),
        "random MDP": garnet(discount=0.9, seed=0, horizon=16),
    }
    for name, world in worlds.items():
        rng = np.random.default_rng(0)
        pi_RSA = np.repeat(softmax(rng.normal(size=(1, world.states, world.actions))), len(key_R), axis=0)
        for sampling, step in STEPS.items():
            _, error_ER = adaptive_sampling(
                world, pi_RSA, key_R, steps=LEVELS[-1], every=LEVELS[0], step_size=step
            )
            frame, _ = combinations(key_R, world=[name], sampling=[sampling], samples=LEVELS)
            kept = [level // LEVELS[0] - 1 for level in LEVELS]
            frame["error"], frame["value"] = error_ER[kept].ravel(), np.nan
            if name == "bandit":
                last = frame["samples"] == LEVELS[-1]
                frame.loc[last, "value"] = _learned(world.mean_reward_SA[0], step, key_R)
            yield frame


def _learned(reward_A: NDArray[np.float64], step: float, key_R: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Mean value over 30 gradient steps, each on a batch of 16 pulls: logits += rate n/N (r - mean r)."""
    from testbed.offline.sampling import adaptive_sampling

    world = garnet(states=1, actions=ACTIONS, branching=1, horizon=1, seed=0)
    logits_RSA, values = np.zeros((len(key_R), 1, ACTIONS)), []
    for update in range(UPDATES):
        pi_RSA = softmax(logits_RSA)
        values.append((pi_RSA[:, 0] * reward_A).sum(-1))
        counts, _ = adaptive_sampling(
            world, pi_RSA, key_R + np.uint64(update), steps=BATCH, every=BATCH, step_size=step
        )
        share_RSA = counts.visit_RSA / BATCH
        centered_RSA = reward_A - (share_RSA * reward_A).sum(-1, keepdims=True)
        logits_RSA = logits_RSA + RATE * share_RSA * centered_RSA
    return np.mean(values, axis=0)


EXPERIMENT = Experiment(
    NAME,
    question="Does adaptive sampling look more on-policy than sampling on policy?",
    source="Corrado & Hanna (2023), PROPS; Zhong et al. (2022), ROS",
    differs="tables; the behavior's step is bounded by KL where PROPS clips a ratio",
    compute=of_keys(NAME, make, SEEDS, {"batch": BATCH, "updates": UPDATES}),
    keys=("run", "world", "sampling", "samples", "seed"),
    metrics=("error", "value"),
    margins={
        "ratio of sampling errors that counts as lower": FACTOR,
        "exponent of adaptive samples": RATES[0],
        "exponent of independent samples": RATES[1],
    },
    figure=Plot(
        "curves by arm", x="samples", y="error: total variation from on-policy", arm=("world", "sampling"),
        log="xy", names={"random MDP": "MDP"},
    ),
    systems=("PROPS",),
)  # fmt: skip


EXPERIMENT.claim(
    "adaptive-sampling-has-less-sampling-error",
    """At 64, 256 and 1024 samples the data's total variation from on-policy is at most 0.9 of that of
    independent draws, on a bandit and a random MDP, in the first run and the replication.""",
).compare(
    "error",
    {"sampling": "adaptive"},
    {"sampling": "independent"},
    times=FACTOR,
    below=True,
    over={"world": ("bandit", "random MDP"), "samples": LEVELS},
)


@EXPERIMENT.claim(source="this project; Zhong et al. (2022) for the limit")
def adaptive_sampling_errs_by_one_over_n(table: pd.DataFrame) -> Evidence:
    """On a bandit the sampling error falls from 64 to 1024 samples faster than n^-0.8 when adaptive, and
    slower than n^-0.6 when independent, in the first run and the replication.
    """
    groups: Groups = {}
    for sampling, limit, sign in (("adaptive", RATES[0], -1.0), ("independent", RATES[1], 1.0)):
        fixed = {"world": "bandit", "sampling": sampling}
        found = difference(table, "error", {"samples": 1024}, {"samples": 64}, **fixed, log=True)
        groups |= {f"{sampling}, {run}": sign * (x_N / np.log(16.0) - limit) for run, x_N in found.items()}
    return must_exceed(groups, 0.0, "exponent beyond its limit")


EXPERIMENT.claim(
    "adaptive-sampling-learns-faster",
    """Gradient steps on adaptive batches of 16 pulls have a mean value over training that is higher
    than on independent ones, in the first run and the replication.""",
).compare(
    "value",
    {"sampling": "adaptive"},
    {"sampling": "independent"},
    over={"world": "bandit", "samples": LEVELS[-1]},
)
