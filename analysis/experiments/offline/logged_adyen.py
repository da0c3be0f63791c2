"""Generations of greedy bandits on delayed feedback: the oscillation of the Adyen payment bandits."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    all_exceed,
    columns,
    exact,
    of_seeds,
    short_of,
    slopes,
)
from envs.bandits import bandit, mean_rewards
from envs.finite_mdp import FiniteMDP
from testbed.offline.bandits import delayed_generations, oscillation
from testbed.rng import keys

NAME = "logged-adyen"
SEEDS, GENERATIONS, ROUNDS = 24, 24, 300
DELAYS, EXPLORE = (0, 1, 2, 4), (0.02, 0.1, 0.3)
RISE, MARGIN = 0.01, 0.1


def world(seed: int) -> FiniteMDP:
    """5 contexts, 4 ways to route a payment, most of which succeed: mean rewards from 0.8 to 1."""
    return bandit(contexts=5, arms=4, means=(0.8 + 0.2 * mean_rewards(5, 4, None, seed)).tolist())


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return oscillation and value over the second half of 24 generations, by delay and exploration."""
    half = GENERATIONS // 2
    for delay in DELAYS:
        found = []
        for seed in seeds:
            policy_KRSA, value_KR = delayed_generations(
                world(seed), np.repeat(keys((seed,), "adyen"), len(EXPLORE)), generations=GENERATIONS,
                rounds=ROUNDS, delay=delay, window=1, explore=np.array(EXPLORE),
            )  # fmt: skip
            found.append((oscillation(policy_KRSA[half:]), value_KR[half:].mean(0)))
        turned_RE, value_RE = (np.array([each[i] for each in found]) for i in (0, 1))
        for index, explore in enumerate(EXPLORE):
            both = {"oscillation": turned_RE[:, index], "value": value_RE[:, index]}
            yield columns(seeds, delay=delay, explore=explore, **both)


EXPERIMENT = Experiment(
    NAME,
    question="Do policies of delayed, batched bandits oscillate more with delay and with skewed exploration?",
    source="Vangara & Egg (2024), Contextual bandits in payment processing, arXiv:2412.00569",
    differs="random routes in 5 contexts; the oracle is a mean per context and route over one generation",
    compute=of_seeds(NAME, rows, SEEDS, {"generations": GENERATIONS, "rounds": ROUNDS, "window": 1}),
    keys=("run", "seed", "delay", "explore"),
    metrics=("oscillation", "value"),
    margins={"rise per generation of delay": RISE, "rise from 0.3 to 0.02 uniform exploration": MARGIN},
    figure=Plot(
        "final by dial",
        x="delay: delay of feedback, generations",
        y="oscillation: turned over per generation",
        arm=("explore",),
    ),
    systems=("Adyen payment bandits",),
)


@EXPERIMENT.claim(source="construction; derived here")
def delay_splits_generations_into_chains() -> Evidence:
    """With a window of one, generation g depends on generation g - delay - 1 alone: without noise the first
    delay + 1 generations are uniform, and oscillation is 0 at rest and 1 when everything turns.
    """
    gaps, plain = [], world(0)
    for delay in (0, 1, 3):
        policy_KRSA, _ = delayed_generations(
            plain, keys((1,), "chains"), generations=10, rounds=400, delay=delay, window=1, explore=0.1
        )
        gaps.append(np.abs(policy_KRSA[: delay + 1] - 0.25).max())
        gaps.append(short_of(float(np.abs(policy_KRSA[delay + 1] - 0.25).max()), 0.5))
    turns_KRSA = np.eye(4)[np.arange(6) % 2][:, None, None]
    gaps += [abs(oscillation(turns_KRSA)[0] - 1), oscillation(np.ones((3, 1, 2, 4)) / 4)[0]]
    half_KRSA = 0.5 * turns_KRSA + 0.125
    return exact([*gaps, abs(oscillation(half_KRSA)[0] - 0.5)], 1e-12, "largest distance")


EXPERIMENT.claim(
    "oscillation-grows-with-delay", statement="It rises by 0.01 per generation of delay, at each exploration."
)(all_exceed(RISE, "rise per generation of delay", slopes, "delay", "oscillation", {"explore": EXPLORE}))

EXPERIMENT.claim(
    "oscillation-grows-with-skew",
    "With 0.02 uniform exploration it is higher by 0.1 than with 0.3, at each delay.",
).compare("oscillation", {"explore": 0.02}, {"explore": 0.3}, by=MARGIN, over={"delay": DELAYS})
