"""Adyen's payment bandits: generations of a regression oracle that explores unevenly, delayed feedback."""

from functools import cache, lru_cache

import numpy as np

from analysis.lab import Floats, Grid, Groups, Plot, Seeds, TunedArms, asks, generator

NAME = "payment-generations"
SEEDS, PILOTS, FIRST, GENERATIONS, SETTLED = 96, 16, 680_000, 24, 8
ROUNDS, ROUTES, TRAITS, HIDDEN, DELAY, FRESH = 1000, 6, 6, 8, 1, 2000
"""Payments per generation, routes, known features of a payment, features that the oracle lacks, delay of
feedback in generations, payments on which a generation is scored."""
LEAD, SWING = 0.005, 0.1
"""Margins of success, and of the correlation of a generation with its learner. Set before the table."""
PENALTY, UNEVEN = (tuple(2.0**i for i in range(*ends)) for ends in ((3, 11), (12, 25)))
EVEN = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
ARMS: dict[str, Grid] = {
    "uniform": {"explore": EVEN, "penalty": PENALTY},
    "uniform, all rounds": {"explore": EVEN, "penalty": PENALTY},
    "uneven": {"explore": UNEVEN, "penalty": PENALTY},
    "uneven, no loop": {"explore": UNEVEN, "penalty": PENALTY},
}
"""explore: share of uniform exploration, or sharpness of inverse gap weighting (uneven). penalty: ridge of
the oracle, which learns from uniform rounds alone, from all rounds, or from as many separate uniform ones."""


@cache
def world(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return the linear part [D, A], hidden directions [D, H] and their effects [H, A] on the log odds."""
    rng = generator(seed, NAME)
    linear_DA = rng.normal(size=(TRAITS, ROUTES)) * 0.5
    return linear_DA, rng.normal(size=(TRAITS, HIDDEN)), rng.normal(size=(HIDDEN, ROUTES)) * 0.8


@lru_cache(maxsize=64)
def drawn(seeds: Seeds, generation: int, rounds: int) -> tuple[Floats, Floats, Floats]:
    """Return features [R, N, D], success probabilities by route [R, N, A] and uniform numbers [R, N, 2].

    Most probabilities are near 0.95, and no linear oracle can represent them.
    """
    linear_RDA, hidden_RDH, effect_RHA = (np.stack(x) for x in zip(*map(world, seeds), strict=True))
    rngs = [generator(seed, f"{NAME} rounds", generation) for seed in seeds]
    traits_RND = np.stack([rng.normal(size=(rounds, TRAITS)) for rng in rngs])
    logit_RNA = 3.0 + traits_RND @ linear_RDA + np.tanh(traits_RND @ hidden_RDH) @ effect_RHA
    return traits_RND, 1 / (1 + np.exp(-logit_RNA)), np.stack([rng.random((rounds, 2)) for rng in rngs])


def oracle(traits_RND: Floats, taken_RNA: Floats, reward_RN: Floats, penalty: float) -> Floats:
    """Return ridge regressions of success on a constant and the features, one per route, [R, 1 + D, A]."""
    x_RND = np.concatenate([np.ones_like(traits_RND[..., :1]), traits_RND], -1)
    gram_RADE = np.einsum("rnd,rna,rne->rade", x_RND, taken_RNA, x_RND, optimize=True)
    # Centered near the mean success, so that the ridge draws a rarely taken route there and not to 0.
    aim_RAD = np.einsum("rnd,rna,rn->rad", x_RND, taken_RNA, reward_RN - 0.9, optimize=True)
    ridge_DE = penalty * np.eye(x_RND.shape[-1])
    return np.swapaxes(np.linalg.solve(gram_RADE + ridge_DE, aim_RAD[..., None])[..., 0], 1, 2)


def scores(found_RDA: Floats, traits_RND: Floats) -> Floats:
    """Return the oracle's expected reward of each route, less 0.9, [R, N, A]."""
    return found_RDA[:, :1] + traits_RND @ found_RDA[:, 1:]


def policy(arm: str, score_RNA: Floats, explore: float) -> Floats:
    """Return the probabilities of all routes: mostly the best and rarely any, or by inverse gap weighting."""
    best_RNA = np.eye(ROUTES)[score_RNA.argmax(-1)]
    if arm.startswith("uniform"):
        return np.asarray((1 - explore) * best_RNA + explore / ROUTES)
    gap_RNA = score_RNA.max(-1, keepdims=True) - score_RNA
    other_RNA = (1 - best_RNA) / (ROUTES + explore * gap_RNA)
    return np.asarray(other_RNA + best_RNA * (1 - other_RNA.sum(-1, keepdims=True)))


def routed(pi_RNA: Floats, u_RN: Floats) -> Floats:
    """Return the routes taken, one-hot."""
    return np.eye(ROUTES)[(u_RN[..., None] >= pi_RNA.cumsum(-1)[..., :-1]).sum(-1)]


def learned_from(
    arm: str, taken_RNA: Floats, pi_RNA: Floats, explore: float, u_RN2: Floats
) -> tuple[Floats, Floats]:
    """Return the routes that the oracle learns from, one-hot or zeros if left out, and uniform numbers."""
    if arm == "uneven, no loop":
        # Reversed numbers belong to other rounds: this draw is independent of the arm's routes.
        return routed(np.full_like(pi_RNA, 1 / ROUTES), u_RN2[:, ::-1, 0]), u_RN2[:, ::-1, 1]
    if arm == "uniform":
        # A round on another route than the best was surely explored; a round on the best rarely was.
        kept_RNA = (explore / ROUTES / pi_RNA) > u_RN2[:, ::-1, :1]
        return taken_RNA * kept_RNA, u_RN2[..., 1]
    return taken_RNA, u_RN2[..., 1]


def learn(seeds: Seeds, arm: str, explore: float, penalty: float) -> Groups:
    """Return outcomes by name, [R] each, as means over the later generations.

    They are success while exploring, success of the greedy policy, its fall from one generation to the next,
    and its correlation with the next generation that learns from it. A second fall averages from the first
    learned generation on.
    """
    seeds, found_RDA = tuple(seed + FIRST for seed in seeds), np.zeros((len(seeds), 1 + TRAITS, ROUTES))
    waiting, value_GR, earned_GR = [], [], []
    fresh_RND, fresh_RNA, _ = drawn(seeds, GENERATIONS, FRESH)
    for generation in range(GENERATIONS):
        traits_RND, chance_RNA, u_RN2 = drawn(seeds, generation, ROUNDS)
        pi_RNA = policy(arm, scores(found_RDA, traits_RND), explore)
        if generation <= DELAY:
            pi_RNA = np.full_like(pi_RNA, 1 / ROUTES)
        used_RNA, luck_RN = learned_from(arm, routed(pi_RNA, u_RN2[..., 0]), pi_RNA, explore, u_RN2)
        reward_RN = (luck_RN < (used_RNA * chance_RNA).sum(-1)).astype(np.float64)
        waiting.append((traits_RND, used_RNA, reward_RN))
        greedy_RNA = np.eye(ROUTES)[scores(found_RDA, fresh_RND).argmax(-1)]
        value_GR.append((greedy_RNA * fresh_RNA).sum(-1).mean(-1))
        earned_GR.append((pi_RNA * chance_RNA).sum(-1).mean(-1))
        if generation >= DELAY:
            found_RDA = oracle(*waiting[generation - DELAY], penalty)
    late_GR, paid_GR = np.array(value_GR)[SETTLED:], np.array(earned_GR)[SETTLED:]
    off_GR = late_GR - late_GR.mean(0)
    product_GR = off_GR[DELAY + 1 :] * off_GR[: -DELAY - 1]
    swing_R = product_GR.mean(0) / np.maximum((off_GR**2).mean(0), 1e-12)
    falls = [np.maximum(x[:-1] - x[1:], 0.0).mean(0) for x in (late_GR, np.array(value_GR)[DELAY + 1 :])]
    return {
        "success": paid_GR.mean(0), "policy": late_GR.mean(0), "falls": falls[0], "all falls": falls[1],
        "correlation": swing_R,
    }  # fmt: skip


EXPERIMENT = TunedArms(ARMS, learn, "success", PILOTS).experiment(
    NAME, SEEDS, ("success", "policy", "falls", "all falls", "correlation"),
    {"generations": GENERATIONS, "rounds": ROUNDS, "delay": DELAY},
    question="Does uneven exploration by a regression oracle earn more, and do its generations swing?",
    source="Vangara & Egg (2024), Contextual bandits in payment processing, arXiv:2412.00569",
    differs="simulated payments, most of which succeed; a linear oracle that cannot express the truth",
    margins={"success": LEAD, "correlation": SWING},
    figure=Plot(
        "distribution", x="arm", y="success: mean success of later generations",
        says="Shows the mean success of simulated payments, routed by a linear regression on an earlier "
        "generation; uniform explores a share of payments evenly and learns from these; uniform, all rounds "
        "learns from all; uneven explores worse-looking routes less and learns from all; uneven, no loop "
        "learns from as many separate, evenly routed payments.",
    ),
    systems={"Adyen payment bandits": "one generation to the next"},
)  # fmt: skip
asks(EXPERIMENT,
    ("uneven-exploration-earns-more", "A regression oracle that explores by inverse gap weighting earns "
     "0.005 more success than with uniform exploration, whether it then learns from explored rounds alone or "
     "from all, each tuned.",
     "uneven", ("uniform", "uniform, all rounds"), LEAD, "success"),
    ("uneven-generations-swing", "The correlation of a later generation's success with that of the one that "
     "learns from it, a measure of this project's, is lower by 0.1 than where generations learn from uniform "
     "rounds.", "uneven, no loop", "uneven", SWING, "correlation"),
    ("uneven-generations-fall-more", "From one of the later generations to the next the greedy policy falls "
     "more where generations learn from uneven exploration than where they learn from uniform rounds.",
     "uneven", "uneven, no loop", 0.0, "falls"),
    ("uneven-generations-fall-more-from-the-first-on", "From one generation to the next, counted from the "
     "first learned one on, the greedy policy falls more where generations learn from uneven exploration "
     "than where they learn from uniform rounds.", "uneven", "uneven, no loop", 0.0, "all falls"),
)  # fmt: skip
