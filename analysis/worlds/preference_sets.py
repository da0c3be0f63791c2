"""Preference sets with known truth: log-linear policies on 16 prompts, half of them in the data."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from envs.arrays import Floats
from testbed.offline.preferences import draw_pairs, log_policy, pair_dist
from testbed.rng import generator

PROMPTS, SEEN, ANSWERS, WIDTH = 16, 8, 6, 6


@dataclass(frozen=True)
class SetWorld:
    """Rewards [S, A]; a reference; features of the policy [S, A, F], and all that a reward model may see."""

    reward_SA: Floats
    ref_SA: Floats
    feature_SAF: Floats
    full_SAF: Floats

    def policy(self, theta_RF: Floats) -> Floats:
        """Return log pi, [R, S, A]."""
        return log_policy(theta_RF, self.feature_SAF, self.ref_SA)

    def regret(self, log_pi_RSA: Floats, where_S: slice = slice(None)) -> Floats:
        """Return E [max r - E_pi r] over prompts, [R]."""
        lost_RS = self.reward_SA.max(-1) - (np.exp(log_pi_RSA) * self.reward_SA).sum(-1)
        return np.asarray(lost_RS[:, where_S].mean(-1))


def world(
    seed: int, *, spread_S: Floats | float = 1.0, nats: float | None = None, sees: int = WIDTH
) -> SetWorld:
    """Return rewards of 6 normal features and of a part that features do not show and the reference knows.

    spread_S: factor of each prompt's rewards. nats: - log of the reference's mass on the best answer; None:
    the reference is as it is. sees: features that the policy has.
    """
    rng = generator(seed, "preference set")
    full_SAF = rng.normal(size=(PROMPTS, ANSWERS, WIDTH))
    hidden_SA = 0.7 * rng.normal(size=(PROMPTS, ANSWERS))
    reward_SA = full_SAF @ rng.normal(size=WIDTH) / np.sqrt(WIDTH) * 1.5 + hidden_SA
    reward_SA = np.reshape(spread_S, (-1, 1)) * reward_SA
    ref_SA = special.softmax(1.5 * hidden_SA + 0.5 * (full_SAF @ rng.normal(size=WIDTH)), axis=-1)
    if nats is not None:
        best_SA = reward_SA == reward_SA.max(-1, keepdims=True)
        rest_SA = np.where(best_SA, 0.0, ref_SA)
        mass = np.exp(-nats)
        ref_SA = np.where(best_SA, mass, (1 - mass) * rest_SA / rest_SA.sum(-1, keepdims=True))
    return SetWorld(reward_SA, ref_SA, full_SAF[..., :sees], full_SAF)


def seen_pairs(first_RSA: Floats, second_RSA: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return how often each pair of two policies' answers to the seen prompts is drawn, [R, S, A, A]."""
    context_S = (np.arange(PROMPTS) < SEEN) / SEEN
    return draw_pairs(pair_dist(context_S, first_RSA, second_RSA), count, rng)
