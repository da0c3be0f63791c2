"""Constraints toward logged actions on random continuous bandits: cloning, support, PRDC and A2PR."""

from functools import cache

import numpy as np
import pandas as pd

from analysis.kernels.one_continuous_action import (
    BumpBandit,
    density_score,
    local_mean,
    nearest_distance,
    polynomial_critic,
)
from analysis.lab import Experiment, Floats, Grid, Groups, Part, Plot, Rows, Seeds, TunedArms, asks, of_seeds
from testbed.rng import generator

NAME = "data-constraints"
SEEDS, PILOTS, FRESH, LOGGED, DEGREE, NEAR = 192, 96, 570_000, 200, 6, 0.15
GRID_S, GRID_A = np.linspace(0.0, 1.0, 11), np.linspace(-3.0, 3.0, 121)
LOGGERS = ("poor", "mixed", "narrow")
WEIGHTS = tuple(2.0**i for i in range(-6, 11))
GRIDS: dict[str, Grid] = {
    "none": {},
    "cloning": {"weight": WEIGHTS},
    "support": {"floor": tuple(2.0**i for i in range(-10, 1))},
    "nearest data": {"weight": WEIGHTS, "beta": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)},
    "better data": {"weight": WEIGHTS},
    "better and generated": {"weight": WEIGHTS},
}  # fmt: skip
"""Arms and their tuned knob: TD3+BC's penalty on (a - E[a|x])^2, a floor on the estimated density of actions,
PRDC's distance in (beta x, a), A2PR without and with generated actions."""
BOUNDS = (-1.0, 3.0)
"""Range of the critic: its targets are clipped to bounds on rewards; the best actions pay about 1."""
MARGIN, LESS = 0.02, 0.1
"""Margins: share of the best value, and over-estimation in the same units. Set before the table was made."""


@cache
def logs(logger: str, seeds: Seeds) -> tuple[tuple[BumpBandit, ...], Floats, Floats, Floats, Floats]:
    """Return random bandits of three bumps by seed: contexts, actions and rewards [R, N], and Q [R, S, A].

    Logged contexts are dense near 1 and sparse near 0; the policy is judged on all equally. Logged actions:
    "poor" spread widely around a wrong line; "mixed" a fifth near the best, the others around that line;
    "narrow" beside the best.
    """
    bandits, rows = [], []
    for seed in seeds:
        rng = generator(seed, f"{NAME} {logger}")
        bandit = BumpBandit(
            center_K=rng.uniform(-1, 1, 3), tilt_K=rng.uniform(-2, 2, 3), height_K=rng.uniform(0.4, 1, 3),
            width_K=rng.uniform(0.25, 0.6, 3),
        )  # fmt: skip
        x_N = rng.beta(3.0, 1.0, LOGGED)
        best_N = GRID_A[bandit.mean_reward(x_N[:, None], GRID_A).argmax(-1)]
        line_N = rng.uniform(-1, 1) + rng.uniform(-2, 2) * x_N
        noise_N, good_N = rng.normal(size=LOGGED), rng.random(LOGGED) < 0.2
        a_N = {
            "poor": line_N + 0.8 * noise_N,
            "mixed": np.where(good_N, best_N + 0.2 * noise_N, line_N + 0.3 * noise_N),
            "narrow": best_N + rng.choice([-0.5, 0.5]) + 0.3 * noise_N,
        }[logger]
        bandits.append(bandit)
        rows.append((x_N, a_N, bandit.mean_reward(x_N, a_N) + bandit.reward_std * rng.normal(size=LOGGED)))
    x_RN, a_RN, r_RN = np.swapaxes(np.array(rows), 0, 1)
    q_RSA = polynomial_critic(x_RN, a_RN, r_RN, GRID_S, GRID_A, DEGREE, 1e-3)
    return tuple(bandits), x_RN, a_RN, r_RN, np.clip(q_RSA, *BOUNDS)


@cache
def penalty(arm: str, logger: str, seeds: Seeds, beta: float = 0.0) -> Floats:
    """Return the arm's penalty on each action, [R, S, A]: a squared distance, or -density for support."""
    _, x_RN, a_RN, _, q_RSA = logs(logger, seeds)
    if arm == "nearest data":
        return nearest_distance(x_RN, a_RN, GRID_S, GRID_A, beta)[0]
    if arm == "support":
        here_RS = np.broadcast_to(GRID_S, q_RSA.shape[:2])
        each = [density_score(x_RN, a_RN, np.full_like(here_RS, a), GRID_S, (NEAR, NEAR))[0] for a in GRID_A]
        density_RSA = np.exp(np.stack(each, -1))
        return np.asarray(-density_RSA / density_RSA.sum(-1, keepdims=True) / (GRID_A[1] - GRID_A[0]))
    toward_RN, kept_RN = a_RN, np.ones_like(a_RN)
    if arm.startswith("better"):
        toward_RN, kept_RN = guides(arm, logger, seeds)
    share_RS = np.maximum(local_mean(x_RN, kept_RN, GRID_S, NEAR), 1e-12)
    center_RS = local_mean(x_RN, kept_RN * toward_RN, GRID_S, NEAR) / share_RS
    return np.asarray((GRID_A - center_RS[..., None]) ** 2)


def guides(arm: str, logger: str, seeds: Seeds) -> tuple[Floats, Floats]:
    """Return A2PR's guiding action for every logged step, and 1 where its advantage is positive, [R, N] each.

    The guide is the logged action or, with generation, a noisy action from a nearby context, whichever has
    the larger Q; the value is the mean Q of logged actions nearby.
    """
    _, x_RN, a_RN, _, q_RSA = logs(logger, seeds)

    def q(action_RN: Floats) -> Floats:
        place = [np.abs(grid - x[..., None]).argmin(-1) for grid, x in ((GRID_S, x_RN), (GRID_A, action_RN))]
        return np.asarray(q_RSA[np.arange(len(seeds))[:, None], place[0], place[1]])

    best_RN, nearby_RN = a_RN, np.abs(GRID_S - x_RN[..., None]).argmin(-1)
    value_RN = np.take_along_axis(local_mean(x_RN, q(a_RN), GRID_S, NEAR), nearby_RN, -1)
    if arm == "better and generated":
        drawn = []
        for seed, x_N, a_N in zip(seeds, x_RN, a_RN, strict=True):
            rng = generator(seed, f"{NAME} generated")
            logit_NN = -(((x_N[:, None] - x_N) / NEAR) ** 2) / 2 + rng.gumbel(size=(LOGGED, LOGGED))
            drawn.append(a_N[logit_NN.argmax(-1)] + NEAR * rng.normal(size=LOGGED))
        best_RN = np.where(q(np.array(drawn)) > q(a_RN), drawn, a_RN)
    return best_RN, (q(best_RN) > value_RN).astype(float)


def judged(
    seeds: Seeds, arm: str, logger: str, weight: float = 0.0, beta: float = 0.0, floor: float = 0.0
) -> Groups:
    """Return the value of the greedy policy as a share of the best, and its over-estimation by Q, [R]."""
    seeds = tuple(seed + FRESH for seed in seeds)
    bandits, *_, q_RSA = logs(logger, seeds)
    held_RSA = q_RSA
    if arm == "support":
        density_RSA = -penalty(arm, logger, seeds)
        kept_RSA = density_RSA >= np.minimum(floor, density_RSA.max(-1, keepdims=True))
        held_RSA = np.where(kept_RSA, q_RSA, -np.inf)
    elif arm != "none":
        held_RSA = q_RSA - weight * penalty(arm, logger, seeds, beta)
    at_RS = held_RSA.argmax(-1)
    paid_RSA = np.stack([bandit.mean_reward(GRID_S[:, None], GRID_A) for bandit in bandits])
    best_R = paid_RSA.max(-1).mean(-1)
    true_R, said_R = (np.take_along_axis(x, at_RS[..., None], -1).mean((1, 2)) for x in (paid_RSA, q_RSA))
    return {"value": true_R / best_R, "over-estimation": (said_R - true_R) / best_R}


TUNED = TunedArms(GRIDS, judged, "value", PILOTS, {"logger": LOGGERS})


def rows(seeds: Seeds) -> Rows:
    """Return value and over-estimation of every tuned arm, by logger and averaged over loggers ("all")."""
    found = pd.concat(TUNED.rows(seeds))
    yield found
    how = {"value": "mean", "over-estimation": "mean", "at end": "max"}
    yield found.groupby(["seed", "arm"], sort=False).agg(how).reset_index().assign(logger="all")


EXPERIMENT = Experiment(
    question="Which constraint toward logged actions keeps most value where a critic extrapolates?",
    source="Ran et al. (2023), PRDC; Liu et al. (2024), A2PR",
    differs="random continuous bandits, one step; a polynomial critic; the policy is greedy on a grid of "
    "actions; generated actions come from a kernel density in place of a VAE",
    compute=of_seeds(NAME, rows, SEEDS, {"logged": LOGGED, "degree": DEGREE, "pilots": PILOTS}),
    keys=("run", "seed", "logger", "arm"), metrics=("value", "over-estimation", "at end"),
    margins={"share of the best value": MARGIN, "over-estimation, in the same units": LESS},
    figure=Plot(
        "final by setting", x="logger", y="value: value, share of best", arm=("arm: constraint",),
        says="Shows value, as a share of the best, by log, in random one-step bandits with continuous "
        "actions and a polynomial critic; logs: poor is spread around a wrong line, a fifth of mixed is "
        "good, narrow lies beside the best, all is their mean; arms keep actions free (none), near the mean "
        "logged one (cloning), where logs are dense (support), near a logged pair (nearest data, PRDC), or "
        "near logged, or also generated, actions of positive advantage (better data, better and generated, "
        "A2PR).",
    ),
    systems={
        "PRDC": Part(claims=("nearest-data-*",)),
        "A2PR": Part(claims=("advantage-filter-*", "generated-actions-*")),
    },
)  # fmt: skip

asks(EXPERIMENT,
    ("nearest-data-beats-cloning", "Averaged over three loggers the distance to the nearest logged pair "
     "(PRDC) is worth 0.02 of the best more than cloning's penalty, each at its best setting of pilot "
     "worlds.", "nearest data", "cloning", MARGIN, "value", {"over": {"logger": "all"}}),
    ("nearest-data-beats-a-support-constraint", "Averaged over three loggers the distance to the nearest "
     "logged pair (PRDC) is worth 0.02 of the best more than the best action with an estimated density above "
     "a floor, each at its best setting of pilot worlds; actions have one dimension, so that the density is "
     "nearly known.", "nearest data", "support", MARGIN, "value",
     {"over": {"logger": "all"}}),
    ("advantage-filter-beats-cloning", "On mixed logs, a fifth of them good, a penalty toward logged or "
     "generated actions of positive advantage (A2PR) is worth 0.02 of the best more than one toward all, "
     "each at its best weight.", "better and generated", "cloning", MARGIN, "value",
     {"over": {"logger": "mixed"}}),
    ("advantage-filter-beats-other-constraints", "On mixed logs, a fifth of them good, a penalty toward "
     "logged or generated actions of positive advantage (A2PR) is worth 0.02 of the best more than the "
     "distance to the nearest logged pair (PRDC), and than a floor of density.", "better and generated",
     ("nearest data", "support"), MARGIN, "value", {"over": {"logger": "mixed"}}),
    ("generated-actions-add-to-the-filter", "Averaged over three loggers generated actions add 0.02 of the "
     "best to the filter of logged ones.", "better and generated", "better data", MARGIN, "value",
     {"over": {"logger": "all"}}),
    ("nearest-data-over-estimates-less-than-no-constraint", "With every logger a policy held near logged "
     "pairs (PRDC) is over-estimated by 0.1 of the best value less than one without a constraint.",
     "none", "nearest data", LESS, "over-estimation",
     {"over": {"logger": LOGGERS}, "gates": {}}),
)  # fmt: skip
