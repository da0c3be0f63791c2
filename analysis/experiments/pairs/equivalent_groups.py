"""OORL: reinforcement from tests together with preferences among groups of equivalent answers (GEPO)."""

import itertools
from functools import lru_cache

import numpy as np
from scipy import special

from analysis.lab import Floats, Grid, Groups, Seeds, TunedArms, asks, generator, strips

NAME = "equivalent-groups"
SEEDS, WORLDS, PILOTS, FRESH, STEPS = 256, 6, 128, 170_000, 60
ASKED, PAIRED, PROMPTS, ANSWERS, RIGHT, WIDTH, SHOWN = 8, 16, 24, 8, 3, 12, 2
"""Prompts below ASKED get answers and tests, those below PAIRED groups of SHOWN right and wrong answers; the
others are unseen. Of 8 answers, 3 are right and equivalent. Seeds are offset past an earlier table's."""
MORE = 0.02
"""Margin of accuracy on unseen prompts. Set before the table was made, as the grids were."""
TWICE = tuple(2.0**i for i in range(-10, 14))
RATE = {"rate": TWICE[10:]}
CLONES = {**RATE, "weight": TWICE[:11]}
PAIRS = {**RATE, "weight": TWICE[3:15], "beta": TWICE[3:20]}
MEANS = {**PAIRS, "beta": TWICE}
SPREAD = {**MEANS, "spread": (0.0, *(x / 8 for x in TWICE[:8]))}
MIDDLE = [
    {"rate": rate, "weight": weight, "beta": beta}
    for rate, weight, beta in itertools.product((32.0, 256.0), (0.125, 1.0, 8.0), (0.015625, 0.25, 4.0, 64.0))
]
SPREADS = [{**at, "spread": 2.0**i} for at in MIDDLE for i in (-10, -7)]
GROUPS, OFF = "tests and equivalent groups", "tests and mixed groups"
ARMS: dict[str, Grid] = {
    "tests alone": RATE, "tests and cloning": CLONES, "tests and pairs": PAIRS, "tests and groups": MEANS,
    GROUPS: SPREAD, OFF: {**MEANS, "spread": (2.0**-10,)},
}  # fmt: skip
STARTS = {
    "tests and pairs": MIDDLE, "tests and groups": MIDDLE,
    GROUPS: SPREADS, OFF: SPREADS[::2],
}  # fmt: skip
"""Cloning: of the right answers shown; pairs: DPO; groups: GEPO, with `spread` the weight of its variance;
mixed: GEPO where a coin decides which shown answers are right."""


@lru_cache(4096)
def world(seed: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """Return features [S, A, F], the reference, the right answers, the shares of right and wrong answers
    shown, and these by a coin, [S, A].

    Right answers share a direction among all prompts. A third of the features is style: equivalent answers
    differ three times as much in it as in the others, and the reference follows it.
    """
    rng = generator(seed, NAME)
    right_SA = (rng.random((PROMPTS, ANSWERS)).argsort(-1) < RIGHT).astype(np.float64)
    scale_F = np.where(np.arange(WIDTH) < WIDTH // 3, 3.0, 1.0)
    feature_SAF = scale_F * rng.normal(size=(PROMPTS, ANSWERS, WIDTH)) / np.linalg.norm(scale_F)
    meaning_F, style_F = rng.normal(size=WIDTH), np.where(scale_F > 1, rng.normal(size=WIDTH), 0.0)
    feature_SAF += 0.3 * right_SA[..., None] * meaning_F / np.linalg.norm(meaning_F)
    paired_S1 = ((np.arange(PROMPTS) >= ASKED) & (np.arange(PROMPTS) < PAIRED))[:, None]
    good_SA, bad_SA = (
        paired_S1 * ((-rng.random(is_SA.shape) * is_SA).argsort(-1).argsort(-1) < SHOWN) / SHOWN
        for is_SA in (right_SA, 1 - right_SA)
    )
    order_SA = np.where(good_SA + bad_SA > 0, rng.random(good_SA.shape), 2.0).argsort(-1).argsort(-1)
    coin_SA = paired_S1 * (order_SA < SHOWN) / SHOWN
    ref_SA = special.softmax(2 * feature_SAF @ style_F, axis=-1)
    return feature_SAF, ref_SA, right_SA, good_SA, bad_SA, coin_SA


def preferred(
    arm: str, ratio_RSA: Floats, good_RSA: Floats, bad_RSA: Floats, beta: float, spread: float
) -> Floats:
    """Return an arm's ascent direction in log pi from shown answers, given log pi/ref, [R, S, A]."""
    if arm.endswith("cloning"):
        return good_RSA
    if arm.endswith("pairs"):
        apart_RSAA = beta * (ratio_RSA[..., :, None] - ratio_RSA[..., None, :])
        pull_RSAA = good_RSA[..., :, None] * bad_RSA[..., None, :] * special.expit(-apart_RSAA)
        return np.asarray(beta * (pull_RSAA.sum(-1) - pull_RSAA.sum(-2)))
    mean_RS1, other_RS1 = ((ratio_RSA * x_RSA).sum(-1, keepdims=True) for x_RSA in (good_RSA, bad_RSA))
    pull_RSA = beta * special.expit(-beta * (mean_RS1 - other_RS1)) * (good_RSA - bad_RSA)
    return np.asarray(pull_RSA - 2 * spread * good_RSA * (ratio_RSA - mean_RS1))


def learn(
    seeds: Seeds, arm: str, rate: float, weight: float = 0.0, beta: float = 1.0, spread: float = 0.0
) -> Groups:
    """Return the accuracy on unseen and on answered prompts after 60 steps, [R] each.

    A step has four answers to each answered prompt, advantages over the batch as in REINFORCE++, and the
    groups.
    """
    seeds = tuple(seed + FRESH for seed in seeds)
    parts = zip(*(world(int(seed)) for seed in seeds), strict=True)
    feature_RSAF, ref_RSA, right_RSA, good_RSA, bad_RSA, coin_RSA = (np.stack(part) for part in parts)
    if arm == OFF:
        good_RSA, bad_RSA = coin_RSA, good_RSA + bad_RSA - coin_RSA
    rngs = [generator(int(seed), f"{NAME} rollouts") for seed in seeds]
    theta_RF, feature_RXF = np.zeros((len(seeds), WIDTH)), feature_RSAF.reshape(len(seeds), -1, WIDTH)
    met = slice(ASKED, PAIRED)

    def log_policy() -> Floats:
        logit_RSA = np.log(ref_RSA) + (feature_RXF @ theta_RF[..., None]).reshape(ref_RSA.shape)
        return np.asarray(logit_RSA - special.logsumexp(logit_RSA, axis=-1, keepdims=True))

    for _ in range(STEPS):
        log_RSA = log_policy()
        sum_RSA, u_RSK = np.exp(log_RSA).cumsum(-1), np.stack([rng.random((ASKED, 4)) for rng in rngs])
        drawn_RSK = (u_RSK[..., None] >= sum_RSA[:, :ASKED, None, :-1]).sum(-1)
        count_RSA = np.zeros_like(log_RSA)
        count_RSA[:, :ASKED] = np.eye(ANSWERS)[drawn_RSK].sum(2) / (4 * ASKED)
        mean_R11 = (count_RSA * right_RSA).sum((1, 2), keepdims=True)
        pull_RSA = count_RSA * (right_RSA - mean_R11) / (np.sqrt(mean_R11 * (1 - mean_R11)) + 0.1)
        if weight:
            ratio_RSA = (log_RSA - np.log(ref_RSA))[:, met]
            shown_RSA = preferred(arm, ratio_RSA, good_RSA[:, met], bad_RSA[:, met], beta, spread)
            pull_RSA[:, met] = weight / (PAIRED - ASKED) * shown_RSA
        pull_RSA = pull_RSA - pull_RSA.sum(-1, keepdims=True) * np.exp(log_RSA)
        step_RF = (pull_RSA.reshape(len(seeds), 1, -1) @ feature_RXF)[:, 0]
        # The largest rates of a grid would overflow; clipped, they merely lose.
        theta_RF = np.clip(theta_RF + rate * step_RF, -1e3, 1e3)
    right_RS = (np.exp(log_policy()) * right_RSA).sum(-1)
    return {"accuracy": right_RS[:, PAIRED:].mean(-1), "tried": right_RS[:, :ASKED].mean(-1)}


EXPERIMENT = TunedArms(ARMS, learn, "accuracy", PILOTS, starts=STARTS).experiment(
    NAME, SEEDS, ("accuracy", "tried"), {"steps": STEPS}, WORLDS, continued=True,
    question="Do preferences among groups of equivalent answers help reinforcement from tests?",
    source="Wu et al. (2025), OORL with GEPO, arXiv:2505.12723",
    differs="log-linear policies on 24 prompts of 8 answers; right answers share a direction, and differ in "
    "style; no programs",
    budget="60 steps, for which settings were chosen",
    margins={"accuracy": MORE},
    figure=strips("accuracy: accuracy on unseen prompts", "Shows how often log-linear policies are right on "
        "unseen prompts after 60 steps of reinforcement from tests on other prompts, alone or beside a loss "
        "of right and wrong answers shown for a third kind of prompts: cloning the right ones, DPO on all "
        "pairs, GEPO's means of both groups, these with a weight of the right ones' variance (equivalent), "
        "and that where a coin says which are right (mixed).", y="arm: "),
    systems=("OORL / GEPO",),
)  # fmt: skip

asks(EXPERIMENT,
    ("equivalent-groups-add-to-tests", "Reinforcement from tests with GEPO's equivalent groups is right 0.02 "
     "more often on unseen prompts than alone, all tuned.", GROUPS, "tests alone", {"off": {"arm": OFF}}),
    ("equivalent-groups-add-more-than-pairs", "Reinforcement from tests with GEPO's equivalent groups is "
     "right 0.02 more often on unseen prompts than with DPO on all pairs of the same answers, all tuned.",
     GROUPS, "tests and pairs"),
    ("equivalence-adds-to-groups", "Reinforcement from tests with GEPO's equivalent groups is right 0.02 "
     "more often on unseen prompts than with GEPO's groups without its variance, all tuned.", GROUPS,
     "tests and groups"),
    by=MORE,
)  # fmt: skip
