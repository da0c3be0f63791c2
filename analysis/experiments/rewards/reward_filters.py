"""Which samples of a group to learn from when the proxy is least reliable at middling scores (PF-PPO)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import stats

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    columns,
    exact,
    must_exceed,
    of_seeds,
)
from envs.arrays import Floats
from testbed.rng import generator

NAME = "reward-filters"
OTHERS = {"kept": ("all", "best", "best and random")}
SEEDS, CONTEXTS, ANSWERS, GROUP, STEPS, RATE = 24, 8, 24, 5, 40, 1.0
NOISE, WIDTH = 1.5, 0.6
"""Of the proxy at middling gold rewards, and how far that middle reaches."""
MARGIN = 0.05
"""Gold reward, of 1 standard deviation. Set before the table was made."""


def world(seed: int) -> tuple[Floats, Floats]:
    """Return gold rewards, standard normal, and a proxy that is noisy where gold is middling, [S, A]."""
    rng = generator(seed, NAME)
    gold_SA, noise_SA = rng.normal(size=(2, CONTEXTS, ANSWERS))
    return gold_SA, gold_SA + NOISE * np.exp(-((gold_SA / WIDTH) ** 2)) * noise_SA


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return R^2 of the filtered samples at the start and the gold reward after 40 steps, by filter."""
    from testbed.offline.imperfect_rewards import KEPT, climb, filtered_law, reliability

    for seed in seeds:
        gold_SA, proxy_SA = world(seed)
        start_SA = np.full((CONTEXTS, ANSWERS), 1 / ANSWERS)
        for keep in KEPT:
            r2 = reliability(filtered_law(start_SA, proxy_SA, GROUP, keep), proxy_SA, gold_SA)
            pi_SA = climb(start_SA, proxy_SA, group=GROUP, keep=keep, steps=STEPS, rate=RATE)
            yield columns((seed,), kept=keep, r2=r2, gold=float((pi_SA * gold_SA).sum(-1).mean()))


EXPERIMENT = Experiment(
    NAME,
    question="Does R^2 of the filtered samples tell which filter ends with the most gold reward?",
    source="Shen and Zhang (2024), PF-PPO, arXiv:2409.06957",
    differs=(
        "a bandit of 24 answers with a made proxy; expected steps at one learning rate, without PPO's clip"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"group": GROUP, "steps": STEPS, "rate": RATE}),
    keys=("run", "seed", "kept"),
    metrics=("r2", "gold"),
    margins={"gold reward": MARGIN, "rank correlation": 0.0},
    figure=Plot("distribution", x="kept", y="gold", x_label="samples kept of five", y_label="gold reward"),
    systems={
        "PF-PPO": Part(
            claims=("r2-ranks-the-filters", "best-and-worst-has-the-highest-r2", "best-and-worst-wins"),
        )
    },
)


@EXPERIMENT.claim(
    "filtered-laws-are-those-of-a-drawn-group",
    source="derived here",
    statement=(
        "Best, worst and random of a group have the laws that counting all groups of three gives, and leave "
        "the mean score of best and worst apart by the range of the group."
    ),
)
def counted() -> Evidence:
    """Return distances of the laws from an enumeration of all groups of 3 of 5 answers, 4 worlds."""
    from itertools import product

    from testbed.offline.imperfect_rewards import filtered_law

    gaps = []
    for seed in range(4):
        rng = generator(seed, "filter laws")
        pi_A, score_A = rng.dirichlet(np.ones(5)), rng.permutation(5).astype(np.float64)
        law = {keep: np.zeros(5) for keep in ("best", "best and worst", "best and random")}
        for group in product(range(5), repeat=3):
            chance = float(np.prod(pi_A[list(group)]))
            best, worst = max(group, key=lambda a: score_A[a]), min(group, key=lambda a: score_A[a])
            law["best"][best] += chance
            for name, others in (("best and worst", [worst] * 3), ("best and random", list(group))):
                law[name][best] += chance / 2
                for other in others:
                    law[name][other] += chance / 6
        for name, law_A in law.items():
            found_SA = filtered_law(pi_A[None], score_A[None], 3, name)
            gaps.append(float(np.abs(found_SA[0] - law_A).max()))
    return exact(gaps, 1e-12, "largest distance of a probability")


@EXPERIMENT.claim(
    "r2-ranks-the-filters",
    statement="Over the four filters the rank correlation of R^2 and the final gold reward is positive.",
)
def ranks(table: pd.DataFrame) -> Evidence:
    """Return the evidence about Spearman's correlation within each seed, in both runs."""
    found = {}
    for run, rows_ in table.groupby("run"):
        each = [float(stats.spearmanr(x["r2"], x["gold"]).statistic) for _, x in rows_.groupby("seed")]
        found[str(run)] = np.array(each)
    return must_exceed(found, 0.0, "rank correlation within a seed")


EXPERIMENT.claim(
    "best-and-worst-has-the-highest-r2",
    "Best and worst have a higher R^2 than best, best and random, and all samples.",
).compare("r2", {"kept": "best and worst"}, OTHERS)

EXPERIMENT.claim(
    "best-and-worst-wins",
    "Best and worst end with 0.05 more gold reward than best, best and random, and all samples.",
).compare("gold", {"kept": "best and worst"}, OTHERS, by=MARGIN)

EXPERIMENT.claim(
    "filters-earn-something", "Each filter ends with 0.5 of gold reward, the start being at 0."
).compare("gold", {"kept": ("all", "best", "best and worst", "best and random")}, by=0.5)


@EXPERIMENT.claim(
    "false-positives-cap-what-a-filter-reaches",
    source="derived here",
    statement=(
        "Where a verifier passes wrong answers with chance f, filtering by it brings the success rate s to "
        "s / (s + f (1 - s)) and no further; RL on the same verdicts goes to 1 as its KL penalty falls, "
        "unless some wrong answer always passes."
    ),
)
def false_positives() -> Evidence:
    """Return distances from the rate, and of RL's success at beta = 0.01 from 1, or from the share of right
    ones.
    """
    from testbed.offline.imperfect_rewards import accepted_law, lenient_verifier
    from testbed.offline.preferences import tilt

    gaps = []
    for seed in range(4):
        pi_SA = generator(seed, "verified").dirichlet(np.ones(6), size=1)
        right_SA = np.array([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]])
        success = float((pi_SA * right_SA).sum())
        for f in (0.0, 0.1, 0.5):
            pass_SA = lenient_verifier(right_SA, np.full((1, 6), f))
            found = float((accepted_law(pi_SA, pass_SA) * right_SA).sum())
            gaps.append(abs(found - success / (success + f * (1 - success))))
            gaps.append(1.0 - float((tilt(pi_SA, pass_SA, 0.01) * right_SA).sum()))
        fooled_SA = lenient_verifier(right_SA, np.eye(6)[2:3])
        share = success / (success + pi_SA[0, 2])
        gaps.append(abs(float((tilt(pi_SA, fooled_SA, 0.01) * right_SA).sum()) - share))
    return exact(gaps, 1e-9, "largest distance of a success rate")
