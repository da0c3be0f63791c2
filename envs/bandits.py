"""Bandits: one decision per episode, one state per context."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from envs.catalog import world
from envs.finite_mdp import FiniteMDP


def mean_rewards(contexts: int, arms: int, means: ArrayLike | None, seed: int) -> Floats:
    """Mean rewards [S, A]: `means` ([A] or [S, A]), or uniform on [0, 1] from the seed."""
    if arms < 1 or contexts < 1:
        raise ValueError(f"arms is {arms} and contexts is {contexts}, expected at least 1 of each.")
    if means is None:
        return np.random.default_rng(seed).random((contexts, arms))
    given = np.asarray(means, dtype=np.float64)
    if given.shape not in ((arms,), (contexts, arms)):
        raise ValueError(f"means has shape {given.shape}, expected ({arms},) or ({contexts}, {arms}).")
    return np.broadcast_to(given, (contexts, arms))


def stay(contexts: int, arms: int) -> Floats:
    """transition_SAS of a bandit: episodes end after one step, so its successors are arbitrary."""
    return np.repeat(np.eye(contexts)[:, None, :], arms, axis=1)


@world("bandit")
def bandit(
    *,
    arms: int = 10,
    contexts: int = 1,
    means: Sequence[float] | Sequence[Sequence[float]] | None = None,
    noise: str = "bernoulli",
    noise_std: float = 1.0,
    seed: int = 0,
) -> FiniteMDP:
    """Arms that pay Bernoulli, normal or fixed rewards with given or random means, in uniform contexts."""
    return FiniteMDP(
        transition_SAS=stay(contexts, arms),
        reward_SA=mean_rewards(contexts, arms, means, seed),
        start_S=np.full(contexts, 1.0 / contexts),
        horizon=1,
        noise=noise,
        noise_std=noise_std,
    )


@world("two-arm-bandit")
def two_arm_bandit() -> FiniteMDP:
    """Two arms that pay 0 and 1 surely: the smallest world with closed forms for all diagnostics."""
    return bandit(arms=2, means=(0.0, 1.0), noise="none")
