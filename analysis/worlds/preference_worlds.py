"""Contextual bandits with known rewards for the experiments on preference sets."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats
from testbed.offline.preferences import (
    Draw,
    bradley_terry,
    draw_pairs,
    pair_dist,
    regret,
    train_on_pairs,
    vote_labels,
)
from testbed.rng import generator


@dataclass(frozen=True)
class PairWorld:
    """Rewards [S, A], a reference policy, features [S, A, F]; contexts are uniform."""

    reward_SA: Floats
    ref_SA: Floats
    feature_SAF: Floats

    @property
    def context_S(self) -> Floats:
        return np.full(len(self.reward_SA), 1 / len(self.reward_SA))

    @property
    def chance_SAA(self) -> Floats:
        """P(a preferred to b)."""
        return bradley_terry(self.reward_SA)

    def regret(self, log_pi_RSA: Floats) -> float:
        """E [max r - E_pi r] of the one cell, in rewards."""
        return float(regret(self.context_S, self.reward_SA, np.exp(log_pi_RSA))[0])

    def pairs(
        self, pi_RSA: Floats, count: int, rng: np.random.Generator, other_RSA: Floats | None = None
    ) -> Floats:
        """`count` drawn pairs of actions, both of pi or the second one of another policy, [R, S, A, A]."""
        return draw_pairs(
            pair_dist(self.context_S, pi_RSA, pi_RSA if other_RSA is None else other_RSA), count, rng
        )

    def judged(self, weight_RSAA: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The pairs with one judge's verdict on each."""
        return weight_RSAA, vote_labels(weight_RSAA, self.chance_SAA, 1, "hard", rng)

    def train(
        self, pairs: Draw | tuple[Floats, Floats], *, steps: int, rate: float, beta: float
    ) -> tuple[Floats, list[Floats]]:
        """`train_on_pairs` from the reference with the world's features, one cell."""
        return train_on_pairs(self.feature_SAF, self.ref_SA, pairs, steps=steps, rate=rate, beta=beta)


def linear_world(seed: int, *, contexts: int = 12, actions: int = 6, width: int = 4) -> PairWorld:
    """Return a world with rewards w . phi and a uniform reference."""
    rng = generator(seed, "linear pair world")
    feature_SAF = rng.normal(size=(contexts, actions, width))
    reward_SA = feature_SAF @ (rng.normal(size=width) / np.sqrt(width) * 1.5)
    return PairWorld(reward_SA, np.full((contexts, actions), 1 / actions), feature_SAF)
