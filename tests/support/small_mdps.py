"""Worlds small enough to write down all their episodes, and their bare arrays for the reference."""

import numpy as np
from references.reference_mdp import Model

from envs.finite_mdp import FiniteMDP
from envs.logged_bandit import bandit
from envs.mdps import chain, combination_lock, grid_world


def random_mdp(seed: int, **changes) -> FiniteMDP:
    """Three states with sparse rows, random everything; discount, horizon and the rest can be replaced."""
    rng = np.random.default_rng(seed)
    mass_SAS = rng.dirichlet(np.ones(3), size=(3, 2)) * (rng.random((3, 2, 3)) < 0.8)
    mass_SAS[..., 0] += 0.1
    given = {
        "transition_SAS": mass_SAS / mass_SAS.sum(axis=-1, keepdims=True), "reward_SA": rng.random((3, 2)),
        "start_S": np.array([0.7, 0.3, 0.0]), "horizon": 3, "discount": 0.9,
    }  # fmt: skip
    return FiniteMDP(**{**given, **changes})


SMALL = {
    "random": random_mdp(0),
    "terminal": random_mdp(1, terminal_S=[False, False, True], bonus_S=[0.0, -0.5, 2.0]),
    "bernoulli": random_mdp(2, terminal_S=[False, False, True], noise="bernoulli", bonus_S=[1.0, 0.0, 0.5]),
    "normal": random_mdp(3, noise="normal", noise_std=0.3, discount=1.0),
    "noise-per-pair": random_mdp(4, noise="normal", noise_std=[[0.0, 0.2], [0.5, 0.1], [2.0, 0.7]]),
    "bandit": bandit(arms=3, contexts=2),
    "chain": chain(length=3, horizon=4),
    "grid": grid_world(layout=("SF", "HG"), horizon=3),
    "lock": combination_lock(length=2, actions=2, horizon=4, discount=0.5),
}


LISTED = sorted(set(SMALL) - {"normal", "noise-per-pair"})
"""Those with finitely many episodes."""


def softmax(logits: np.ndarray) -> np.ndarray:
    mass = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True)


def policies(world: FiniteMDP, *shape: int, seed: int = 0) -> np.ndarray:
    """Random softmax policies [*shape, S, A]."""
    return softmax(np.random.default_rng(seed).normal(size=(*shape, world.states, world.actions)))


def pair(world: FiniteMDP) -> tuple[np.ndarray, np.ndarray]:
    """A policy to evaluate and one that has the data."""
    return policies(world, seed=1), policies(world, seed=2)


def bare(world: FiniteMDP) -> Model:
    noise_variance = {
        "none": np.zeros_like(world.reward_SA),
        "bernoulli": world.reward_SA - world.reward_SA**2,
        "normal": np.full_like(world.reward_SA, world.noise_std**2),
    }[world.noise]
    return Model(
        transition=world.transition_SAS, reward=world.reward_SA, start=world.start_S,
        terminal=world.terminal_S, bonus=world.bonus_S, horizon=world.horizon, discount=world.discount,
        noise_variance=noise_variance,
    )  # fmt: skip
