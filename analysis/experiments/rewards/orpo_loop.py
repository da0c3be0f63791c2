"""ORPO's own loop, a policy learning under a discriminator's occupancy ratio, against the exact optimum."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from scipy import special

from analysis.experiments.rewards.proxy_occupancy import DISCOUNT, WORLDS, setting
from analysis.lab import (
    Evidence,
    Experiment,
    Groups,
    Plot,
    Seeds,
    all_exceed,
    columns,
    exact,
    of_seeds,
    runs_of,
)
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.rng import generator

NAME = "orpo-loop"
SEEDS, STEPS, DRAWS, RATE = 10, 300, 8192, 1.0
STRENGTHS = (1.0, 0.3, 0.1)
NEAR, MARGIN = 0.05, 0.02
"""Of the objective, and of the true return, per step and in spreads of the base's. Set before the table."""


def law(world: FiniteMDP, pi_SA: Floats) -> Floats:
    """Return the occupancy (1 - discount) sum discount^t P(s_t, a_t), [S, A]."""
    from envs import infinite_horizon

    return np.asarray((1 - DISCOUNT) * infinite_horizon.occupancy(world, pi_SA)[:, None] * pi_SA)


@cache
def prepared(kind: str, seed: int) -> tuple[FiniteMDP, Floats, Floats, Floats, Floats]:
    """Return the world, true and proxy reward in spreads of the base's, the base policy and its occupancy."""
    world, proxy_SA, base_SA = setting(kind, seed)
    d_SA = law(world, base_SA)
    true_SA, proxy_SA = (
        r / np.sqrt((d_SA * (r - (d_SA * r).sum()) ** 2).sum()) for r in (world.reward_SA, proxy_SA)
    )
    return world, true_SA, proxy_SA, base_SA, d_SA


def loop(kind: str, seed: int, strength: float) -> Floats:
    """Return pi [S, A] after 300 rounds: fit the discriminator, then a natural policy gradient step.

    The discriminator is a table fitted to 8,192 draws of each occupancy, one pseudo-draw per entry: its
    optimum is the log of the ratio of counts. Action values of that reward are exact.
    """
    from envs import infinite_horizon
    from testbed.exact.proxy_optimization import penalized_reward

    world, _, proxy_SA, base_SA, base_d_SA = prepared(kind, seed)
    rng, log_SA = generator(seed, f"{NAME} {kind}"), np.log(base_SA)
    for step in range(STEPS):
        pi_SA = np.exp(log_SA)
        counts = [
            rng.multinomial(DRAWS, d.ravel()).reshape(d.shape) + 1.0 for d in (law(world, pi_SA), base_d_SA)
        ]
        seen_SA, base_seen_SA = (count / count.sum() for count in counts)
        reward_SA = penalized_reward(proxy_SA, seen_SA, base_seen_SA, strength)
        paid = FiniteMDP(
            transition_SAS=world.transition_SAS, reward_SA=reward_SA, start_S=world.start_S, horizon=1,
            discount=DISCOUNT,
        )  # fmt: skip
        q_SA = infinite_horizon.q_value(paid, pi_SA)
        gain_SA = (1 - DISCOUNT) * (q_SA - (pi_SA * q_SA).sum(-1, keepdims=True))
        log_SA = special.log_softmax(log_SA + RATE / np.sqrt(1 + step) * gain_SA, -1)
    return np.exp(log_SA)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return gains of true return, and the penalized proxy, of the loop and of exact optima by strength."""
    from testbed.exact.proxy_optimization import distance, optimized

    for seed, kind in product(seeds, WORLDS):
        world, true_SA, proxy_SA, base_SA, d_SA = prepared(kind, int(seed))
        for method in ("loop", "occupancy chi2", "action KL"):
            if method == "loop":
                found = [loop(kind, int(seed), strength) for strength in STRENGTHS]
            else:
                found = optimized(world, proxy_SA, base_SA, method, STRENGTHS)
            for strength, pi_SA in zip(STRENGTHS, found, strict=True):
                gain_SA = law(world, pi_SA) - d_SA
                charge = strength * distance(world, pi_SA, base_SA, "occupancy chi2")
                true, objective = float((gain_SA * true_SA).sum()), float((gain_SA * proxy_SA).sum()) - charge
                yield columns(
                    (seed,), world=kind, method=method, strength=strength, true=true, objective=objective
                )


EXPERIMENT = Experiment(
    NAME,
    question="Does ORPO's loop on a discriminator's ratios reach its optimum, and keep the true return?",
    source="Laidlaw et al. (2024), Correlated proxies, arXiv:2403.03185",
    differs=(
        "four families of random MDPs of 8 states; natural policy gradients in place of PPO; a discriminator "
        "that is a table"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"draws": DRAWS, "steps": STEPS, "discount": DISCOUNT}),
    keys=("run", "seed", "world", "method", "strength"),
    metrics=("true", "objective"),
    margins={"objective": NEAR, "true return per step, in spreads of the base's": MARGIN},
    figure=Plot(
        "final by dial", x="strength", y="true", arm=("method",), x_label="strength of the penalty",
        y_label="gain of the true return",
    ),
    systems=("Correlated proxies (ORPO)",),
)  # fmt: skip


def _near(table: pd.DataFrame) -> Groups:
    """Objective of the loop less that of the exact optimum, by world, strength and run."""
    wide = table.pivot(index=["world", "strength", "run", "seed"], columns="method", values="objective")
    gap = wide["loop"] - wide["occupancy chi2"]
    return {
        f"{w}, strength {x:g}, {run}": gap[w, x, run].to_numpy()
        for w in WORLDS
        for x in STRENGTHS
        for run in runs_of(table)
    }


def _ahead(table: pd.DataFrame) -> Groups:
    """True gain of the loop less that of the exact KL of actions, each at its best strength, or the base."""
    best = table.groupby(["world", "run", "seed", "method"])["true"].max().clip(lower=0.0).unstack()
    gap = best["loop"] - best["action KL"]
    return {f"{kind}, {run}": gap[kind, run].to_numpy() for kind in WORLDS for run in runs_of(table)}


EXPERIMENT.claim(
    "orpo-loop-reaches-its-optimum",
    statement=(
        "In all four families and at strengths 1, 0.3 and 0.1 the loop's penalized proxy return per step is "
        "less than 0.05 below the exact optimum's."
    ),
)(all_exceed(-NEAR, "objective less the optimum's, plus 0.05", _near))

EXPERIMENT.claim(
    "orpo-loop-beats-action-kl",
    statement=(
        "At its best strength the loop gains 0.02 more true return than the exact KL of actions at its best, "
        "in all four families."
    ),
)(all_exceed(MARGIN, "gain over the KL of actions", _ahead))


@EXPERIMENT.claim(
    "penalized-rewards-have-the-gradient-of-the-penalty",
    source="Laidlaw et al. (2024), section 6; derived here",
    statement=(
        "The policy gradient of ORPO's reward, held fixed at the exact ratios, is the gradient of the proxy "
        "return less the strength times the root of chi2, in all four families."
    ),
)
def gradients() -> Evidence:
    """Return largest distances of gradients in the logits from central differences of the objective."""
    from testbed.exact.proxy_optimization import distance, penalized_reward

    gaps = []
    for kind in WORLDS:
        world, _, proxy_SA, base_SA, d_SA = prepared(kind, 3)
        logit_SA = np.log(base_SA) + generator(3, kind).normal(size=base_SA.shape)
        step_XSA = 1e-5 * np.eye(base_SA.size).reshape(-1, *base_SA.shape)
        slope = []
        now_SA = law(world, special.softmax(logit_SA, -1))
        reward_SA = penalized_reward(proxy_SA, now_SA, d_SA, 0.3)
        for one_SA in step_XSA:
            ends = [special.softmax(logit_SA + sign * one_SA, -1) for sign in (1, -1)]
            moved = [law(world, pi_SA) for pi_SA in ends]
            far = [distance(world, pi_SA, base_SA, "occupancy chi2") for pi_SA in ends]
            values = [(d * proxy_SA).sum() - 0.3 * x for d, x in zip(moved, far, strict=True)]
            fixed = [(d * reward_SA).sum() for d in moved]
            slope.append((values[0] - values[1] - fixed[0] + fixed[1]) / 2e-5)
        gaps.append(float(np.abs(slope).max()))
    return exact(gaps, 1e-7, "largest distance of two gradients")
