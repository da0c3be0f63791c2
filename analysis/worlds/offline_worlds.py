"""Random worlds and their logs for the experiments on offline tables: one world per seed, stacked."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.judging.replication import Seeds
from envs import infinite_horizon
from envs.arrays import Bools, Floats, Ints
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts, draw_counts, exact_model
from envs.mdps import garnet
from testbed.offline.tabular_offline import fitted_q, greedy, optimal_q, policy_q
from testbed.rng import generator

DISCOUNT = 0.9


@dataclass(frozen=True)
class Worlds:
    """R worlds of equal size with their exact models."""

    worlds: tuple[FiniteMDP, ...]
    moves_RSAS: Floats
    reward_RSA: Floats
    discount: float = DISCOUNT

    @classmethod
    def of(cls, worlds: tuple[FiniteMDP, ...]) -> "Worlds":
        """Return worlds with their exact models."""
        models = [exact_model(world) for world in worlds]
        return cls(worlds, np.stack([m for m, _ in models]), np.stack([r for _, r in models]))

    def paying(self, reward_RSA: Floats) -> "Worlds":
        """Return the worlds with other mean rewards."""
        pairs = zip(self.worlds, reward_RSA, strict=True)
        return replace(self, worlds=tuple(replace(w, reward_SA=r) for w, r in pairs), reward_RSA=reward_RSA)

    @property
    def best_RSA(self) -> Floats:
        """An optimal policy of each world, one-hot."""
        return greedy(fitted_q(self.moves_RSAS, self.reward_RSA, self.discount))

    def q(self, pi_RSA: Floats) -> Floats:
        """Q^pi, [R, S, A]."""
        return policy_q(self.moves_RSAS, self.reward_RSA, pi_RSA, self.discount)

    def value(self, pi_RSA: Floats) -> Floats:
        """Discounted value from the start distribution, [R]."""
        start_RS = np.stack([world.start_S for world in self.worlds])
        return np.asarray(((pi_RSA * self.q(pi_RSA)).sum(-1) * start_RS).sum(-1))

    def score(self, pi_RSA: Floats) -> Floats:
        """Value with that of the uniform policy as 0 and the optimum as 1, [R]."""
        low_R = self.value(np.full_like(pi_RSA, 1 / pi_RSA.shape[-1]))
        return np.asarray((self.value(pi_RSA) - low_R) / (self.value(self.best_RSA) - low_R))

    def state_law(self, mu_RSA: Floats) -> Floats:
        """(1 - discount) times mu's discounted occupancy, [R, S]; sums to 1 in worlds that do not end."""
        pairs = zip(self.worlds, mu_RSA, strict=True)
        law_RS = np.stack([infinite_horizon.occupancy(world, mu_SA) for world, mu_SA in pairs])
        return np.asarray((1 - self.discount) * law_RS)

    def logged(self, mu_RSA: Floats, steps: int, seeds: Seeds, purpose: str) -> Counts:
        """Counts of `steps` independent transitions of mu's discounted occupancy in each world."""
        law_RSA = self.state_law(mu_RSA)[..., None] * mu_RSA
        drawn = [
            draw_counts(world, law_SA[None], steps, generator(seed, purpose))
            for world, law_SA, seed in zip(self.worlds, law_RSA, seeds, strict=True)
        ]
        fields = ("visit_RSA", "going_RSAS", "reward_RSA")
        return Counts(*(np.concatenate([getattr(counts, name) for counts in drawn]) for name in fields))


def random_worlds(
    seeds: Seeds, *, states: int = 8, actions: int = 4, branching: int = 3, noise_std: float = 1.0
) -> Worlds:
    """A garnet per seed, with normal reward noise and discount 0.9."""
    size = {"states": states, "actions": actions, "branching": branching}
    return Worlds.of(tuple(garnet(**size, seed=s, discount=DISCOUNT, noise_std=noise_std) for s in seeds))


def chance_and_best(world: FiniteMDP) -> tuple[float, float]:
    """Return the values of the uniform policy and of the optimum: a score's 0 and 1."""
    best_1SA = greedy(optimal_q(world))
    both = (np.full_like(best_1SA, 1 / world.actions), best_1SA)
    low, high = (float(infinite_horizon.value(world, pi_1SA)[0]) for pi_1SA in both)
    return low, high


def some_actions(seeds: Seeds, states: int, actions: int, kept: int, purpose: str) -> Bools:
    """`kept` random actions of every state, [R, S, A]."""
    score_RSA = np.stack([generator(s, purpose).random((states, actions)) for s in seeds])
    return np.asarray(score_RSA.argsort(-1).argsort(-1) < kept)


def random_policies(seeds: Seeds, states: int, actions: int, purpose: str, spread: float = 1.0) -> Floats:
    """Rows from a Dirichlet distribution, [R, S, A]."""
    alpha_A = np.full(actions, spread)
    return np.stack([generator(s, purpose).dirichlet(alpha_A, size=states) for s in seeds])


def guessed_rewards(counts: Counts, seeds: Seeds) -> Floats:
    """Logged mean rewards, and for pairs without data normal numbers of the size of Q, [R, S, A].

    An unseen pair has no logged successor, so this is its Q: the guess of a function without data.
    """
    known_RSA = fitted_q(counts.moves_RSAS, counts.reward_RSA, DISCOUNT, counts.seen_RSA)
    wild_RSA = np.stack([generator(s, "extrapolation").normal(size=known_RSA.shape[1:]) for s in seeds])
    wild_RSA *= np.abs(known_RSA).max((1, 2), keepdims=True)
    return np.where(counts.seen_RSA, counts.reward_RSA, wild_RSA)


def pick(p_xA: Floats, u_x: Floats) -> Ints:
    """Return an action of each distribution, by uniform numbers, [x]."""
    return np.asarray((u_x[..., None] >= p_xA.cumsum(-1)[..., :-1]).sum(-1))


def two_groups(world: FiniteMDP, *, gap: float, share: float, seed: int) -> tuple[FiniteMDP, FiniteMDP]:
    """Return the world, and a variant with rewards shifted by normal(0, gap) in a `share` of the pairs.

    Designed here, after the nested data of NFQI (Mandyam et al. 2021).
    """
    # A stream of its own: default_rng(seed) has drawn the world itself.
    rng = generator(seed, "two groups")
    differs_SA = rng.random(world.reward_SA.shape) < share
    other_SA = world.reward_SA + gap * differs_SA * rng.normal(size=world.reward_SA.shape)
    return world, replace(world, reward_SA=other_SA)
