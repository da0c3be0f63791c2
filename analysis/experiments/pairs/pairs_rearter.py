"""Iterated DPO over refresh intervals, and look-ahead for step scores that an older policy made (ReARTeR)."""

from collections.abc import Iterator
from functools import partial

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
from analysis.worlds.offline_worlds import DISCOUNT, random_policies, random_worlds
from analysis.worlds.preference_worlds import PairWorld, tabular_world
from envs.arrays import Floats
from testbed.offline.tabular import ahead, fitted_q
from testbed.rng import generator

NAME = "pairs-rearter"
SEEDS, STEPS, LABELS, BETA = 24, 128, 1024, 0.3
INTERVALS = (1, 4, 16, 64, 128)
RISE, MARGIN = 0.005, 0.05
"""Regret per doubling of the interval, and regret. Set before the table was made."""


def draw(
    step: int, history: list[Floats], *, found: PairWorld, seed: int, interval: int
) -> tuple[Floats, Floats] | None:
    """Every `interval` steps new pairs of the policy, as many as keep the number of labels equal."""
    if step % interval:
        return None
    pi_RSA = np.exp(history[-1])
    rng = generator(seed, "iterated", step)
    return found.judged(found.pairs(pi_RSA, LABELS * interval // STEPS, rng), rng)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the final regret, by refresh interval, at 1024 labels and 128 steps."""
    for seed in seeds:
        found = tabular_world(seed, spread_S=2.0)
        for interval in INTERVALS:
            sets = partial(draw, found=found, seed=seed, interval=interval)
            _, history = found.train(sets, steps=STEPS, rate=10.0, beta=BETA)
            measured = {"doublings": np.log2(interval), "regret": found.regret(history[-1])}
            yield columns((seed,), interval=interval, **measured)


EXPERIMENT = Experiment(
    NAME,
    question="Does iterated preference optimization lose with the interval at which its pairs are made anew?",
    source="Sun et al. (2025), ReARTeR: retrieval-augmented reasoning with trustworthy process rewarding",
    differs=(
        "a table over 36 pairs of context and answer; equal labels at every interval; step scores are V^mu"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"labels": LABELS, "steps": STEPS, "beta": BETA}),
    keys=("run", "seed", "interval"),
    metrics=("doublings", "regret"),
    margins={"rise of regret per doubling": RISE, "regret": MARGIN},
    figure=Plot("final by dial", x="interval: steps between refreshes", y="regret: final regret"),
    systems=("ReARTeR",),
)


@EXPERIMENT.claim(source="contraction of the optimality operator, Puterman (1994), section 6.2")
def look_ahead_shrinks_the_bias_of_early_step_scores() -> Evidence:
    """Step scores made by an older policy, V^mu, are too low for the best policy; each step of look-ahead
    leaves at most gamma of the largest error and never makes a score worse, and 8 steps leave under half.
    """
    seeds = tuple(range(12))
    worlds, mu_RSA = random_worlds(seeds), random_policies(seeds, 8, 4, "older policy")
    best_RS = fitted_q(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT).max(-1)
    score_RS = (mu_RSA * worlds.q(mu_RSA)).sum(-1)
    first_R = (best_RS - score_RS).max(-1)
    excess = [float((score_RS - best_RS).max()), short_of(float(first_R.min()), 0.5)]
    for _ in range(8):
        deeper_RS = (worlds.reward_RSA + DISCOUNT * ahead(worlds.moves_RSAS, score_RS)).max(-1)
        shrunk_R = (best_RS - deeper_RS).max(-1) - DISCOUNT * (best_RS - score_RS).max(-1)
        excess += [float(x.max()) for x in (shrunk_R, score_RS - deeper_RS, deeper_RS - best_RS)]
        score_RS = deeper_RS
    left_R = (best_RS - score_RS).max(-1) / first_R
    return exact([*excess, max(0.0, float(left_R.max()) - 0.5)], 1e-9, "largest excess over a bound")


EXPERIMENT.claim(
    "regret-grows-with-the-refresh-interval",
    statement="It rises by 0.005 per doubling of the interval or more.",
)(all_exceed(RISE, "rise of regret per doubling", slopes, "doublings", "regret", {}))

EXPERIMENT.claim(
    "never-refreshed-pairs-lose", "Pairs made once, of the reference, end with 0.05 more regret than with 16."
).compare("regret", {"interval": 128}, {"interval": 16}, by=MARGIN)
