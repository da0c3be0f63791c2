"""A proxy reward optimized with a chi2 of occupancies (ORPO), a chi2 or a KL of actions: the true return."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    all_exceed,
    columns,
    exact,
    must_exceed,
    of_seeds,
    runs_of,
)
from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.mdps import garnet
from testbed.exact.policy_steps import soft_q
from testbed.exact.value_learning import proxy_slack
from testbed.offline.preferences import tilt
from testbed.rng import generator

NAME = "proxy-occupancy"
SEEDS, STATES, ACTIONS, DISCOUNT = 10, 8, 3, 0.9
STRENGTHS = (3.0, 1.0, 0.5, 0.3, 0.1, 0.03)
WORLDS = ("noise", "tampering", "unseen cost", "lure")
MARGIN = 0.02
"""True return per step, over the spread of the base's. Set before the table was made."""


def setting(kind: str, seed: int) -> tuple[FiniteMDP, Floats, Floats]:
    """Return a random MDP with the true reward, a proxy [S, A] and a base policy that is better than random.

    "noise": independent errors of the proxy; "tampering": the state that the base visits least pays the proxy
    and costs the truth; "unseen cost": the proxy misses what one action costs; "lure": it overpays staying.
    """
    rng = generator(seed, f"{NAME} {kind}")
    made = garnet(states=STATES, actions=ACTIONS, branching=3, seed=seed, discount=DISCOUNT)
    moves_SAS, true_SA = made.transition_SAS.copy(), made.reward_SA.copy()
    if kind == "lure":
        moves_SAS[:, 0] = np.eye(STATES)
    base_SA = np.full((STATES, ACTIONS), 1 / ACTIONS)
    plain = FiniteMDP(
        transition_SAS=moves_SAS, reward_SA=true_SA, start_S=made.start_S, horizon=1, discount=DISCOUNT
    )
    base_SA = tilt(base_SA, soft_q(plain, base_SA, 0.0), 1.0)
    proxy_SA = true_SA + (rng.normal(size=true_SA.shape) if kind == "noise" else 0.0)
    if kind == "tampering":
        from envs import infinite_horizon

        rare = int(np.argmin(infinite_horizon.occupancy(plain, base_SA)))
        true_SA[rare], proxy_SA[rare] = true_SA[rare] - 2.0, 3.0
    if kind == "unseen cost":
        true_SA[:, 1] -= 1.5 * rng.random(STATES)
    if kind == "lure":
        proxy_SA[:, 0] += rng.exponential(1.0, STATES)
    world = FiniteMDP(
        transition_SAS=moves_SAS, reward_SA=true_SA, start_S=made.start_S, horizon=1, discount=DISCOUNT
    )
    return world, proxy_SA, base_SA


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return gains of true and proxy return per step over the base, by world, divergence and strength."""
    from testbed.exact.proxy_optimization import DIVERGENCES, optimized

    for seed in seeds:
        for kind in WORLDS:
            world, proxy_SA, base_SA = setting(kind, seed)

            def law(pi_SA: Floats, world: FiniteMDP = world) -> Floats:
                return np.asarray((1 - DISCOUNT) * infinite_horizon.occupancy(world, pi_SA)[:, None] * pi_SA)

            base_X = law(base_SA)
            scales = [
                np.sqrt((base_X * (r - (base_X * r).sum()) ** 2).sum()) for r in (world.reward_SA, proxy_SA)
            ]
            for divergence in DIVERGENCES:
                for strength, pi_SA in zip(
                    STRENGTHS,
                    optimized(world, proxy_SA / scales[1], base_SA, divergence, STRENGTHS),
                    strict=True,
                ):
                    gain = law(pi_SA) - base_X
                    true, proxy = (
                        float((gain * r).sum() / s)
                        for r, s in zip((world.reward_SA, proxy_SA), scales, strict=True)
                    )
                    yield columns(
                        (seed,), world=kind, divergence=divergence, strength=strength, true=true, proxy=proxy
                    )


EXPERIMENT = Experiment(
    NAME,
    question="Does a chi2 of occupancies keep more of the true return than one of actions, or a KL?",
    source="Laidlaw et al. (2024), Correlated proxies, arXiv:2403.03185",
    differs="four families of random MDPs of 8 states, not its own; exact optima, each at its best strength",
    compute=of_seeds(NAME, rows, SEEDS, {"states": STATES, "discount": DISCOUNT}),
    keys=("run", "seed", "world", "divergence", "strength"),
    metrics=("true", "proxy"),
    margins={"true return per step, in spreads of the base's": MARGIN},
    figure=Plot(
        "final by dial", x="strength: strength of the divergence", y="true: gain of the true return",
        arm=("divergence",),
    ),
    systems={
        "Correlated proxies (ORPO)": Part(
            "exact optima on four families of small MDPs of ours; the loop: see orpo-loop"
        )
    },
)  # fmt: skip


def _best(table: pd.DataFrame) -> pd.DataFrame:
    """Best true gain over the strengths, a row per run, seed and world, a column per divergence."""
    best = table.groupby(["run", "seed", "world", "divergence"])["true"].max().clip(lower=0.0)
    return best.unstack()


def _ahead(table: pd.DataFrame, other: str) -> dict[str, Floats]:
    best = _best(table)
    gain = (best["occupancy chi2"] - best[other]).unstack("world")
    return {
        f"{kind}, {run}": gain[kind].loc[run].to_numpy(dtype=float)
        for run in runs_of(table)
        for kind in WORLDS
    }


@EXPERIMENT.claim(source="Laidlaw et al. (2024), theorem 5.1 as in docs/theory/value-learning.md")
def orpo_optimum_meets_the_proxy_bound() -> Evidence:
    """At ORPO's optimum the true gain is at least (1/r) [proxy gain - sqrt((1 - r^2) chi2)] wherever the
    proxy's correlation r is positive; strong penalties leave the base, and weaker ones cost less proxy.
    """
    from testbed.exact.proxy_optimization import distance, optimized

    gaps = []
    for kind in WORLDS:
        world, proxy_SA, base_SA = setting(kind, 3)
        laws = []
        for pi_SA in (base_SA, *optimized(world, proxy_SA, base_SA, "occupancy chi2", (100.0, 1.0, 0.1))):
            laws.append(((1 - DISCOUNT) * infinite_horizon.occupancy(world, pi_SA)[:, None] * pi_SA).ravel())
        gaps.append(
            distance(world, pi_SA, base_SA, "occupancy chi2") - np.sqrt((laws[-1] ** 2 / laws[0]).sum() - 1)
        )
        if np.cov(proxy_SA.ravel(), world.reward_SA.ravel(), aweights=laws[0])[0, 1] > 0:
            gaps += [
                -proxy_slack(laws[0], d_X, world.reward_SA.ravel(), proxy_SA.ravel()) for d_X in laws[1:]
            ]
        gaps.append(float(np.abs(laws[1] - laws[0]).max()) - 1e-4)
        gains = [float(d_X @ proxy_SA.ravel()) for d_X in laws]
        gaps += [low - high - 1e-5 for low, high in pairwise(gains)]
    return exact(gaps, 1e-8, "largest miss of the bound, or of the order")


@EXPERIMENT.claim()
def occupancy_chi2_beats_action_kl(table: pd.DataFrame) -> Evidence:
    """At its best strength it gains 0.02 more true return than the KL of actions, in all 4 families."""
    return all_exceed(MARGIN, "gain over the KL of actions", _ahead, "action KL")(table)


@EXPERIMENT.claim()
def occupancy_chi2_beats_action_chi2(table: pd.DataFrame) -> Evidence:
    """At its best strength it gains 0.02 more true return than the chi2 of actions, in all 4 families."""
    return all_exceed(MARGIN, "gain over the chi2 of actions", _ahead, "action chi2")(table)


@EXPERIMENT.claim()
def proxies_are_hacked_at_weak_penalties(table: pd.DataFrame) -> Evidence:
    """In every family and with every divergence the weakest penalty has 0.02 less true return than its
    best.
    """
    found = {}
    for (run, kind, name), rows_ in table.groupby(["run", "world", "divergence"]):
        wide = rows_.pivot(index="seed", columns="strength", values="true")
        found[f"{name}, {kind}, {run}"] = (wide.max(axis=1) - wide[STRENGTHS[-1]]).to_numpy(dtype=float)
    return must_exceed(found, MARGIN, "loss of true return")
