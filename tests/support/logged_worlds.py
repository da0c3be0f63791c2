"""Bandits whose every data set can be listed, and linear estimators with the weights of their papers."""

from dataclasses import dataclass

import numpy as np
from support.embedded_rounds import EmbeddedDistribution

from testbed.estimators import estimator
from testbed.estimators.logged_rounds import logged
from testbed.exact.bandit_moments import LoggedDistribution

WORLDS = range(5)


@dataclass(frozen=True)
class World:
    """A contextual bandit of finitely many atoms (x, a, r), logging and target policy, a reward model."""

    law: LoggedDistribution
    context_K: np.ndarray
    action_K: np.ndarray
    reward_K: np.ndarray
    mass_K: np.ndarray
    model_SA: np.ndarray

    def data(self, n, shift=0.0):
        """Every data set of n rounds [C, n], K^n of them, and their probabilities [C]."""
        index_RN = np.indices((len(self.mass_K),) * n).reshape(n, -1).T
        context_RN, action_RN = self.context_K[index_RN], self.action_K[index_RN]
        found = logged(
            reward=self.reward_K[index_RN] + shift, action=action_RN,
            behavior_dist=self.law.mu_SA[context_RN], action_dist=self.law.pi_SA[context_RN],
            estimated_rewards_by_reg_model=self.model_SA[context_RN],
        )  # fmt: skip
        return found, self.mass_K[index_RN].prod(-1)


def moments(world, n, name, **hyper):
    """Mean and variance of an estimator over all data sets of n rounds."""
    data, mass_R = world.data(n)
    value_R = estimator[name].bind(**hyper)(data).value
    mean = float(mass_R @ value_R)
    return mean, float(mass_R @ (value_R - mean) ** 2)


def two_arms():
    """mu = (3/4, 1/4), pi = (1/4, 3/4), reward = arm; V = 3/4."""
    row = np.array([[0.0, 1.0]])
    law = LoggedDistribution(np.ones(1), np.array([[0.75, 0.25]]), np.array([[0.25, 0.75]]), row, 0 * row)
    arm_K = np.array([0, 1])
    return World(law, 0 * arm_K, arm_K, arm_K.astype(float), law.mu_SA[0], 0.5 + 0 * row)


def random_world(seed, *, sign=1.0, on_policy=False):
    """3 contexts, 4 actions, two-point rewards in [0, 1] times `sign`: 24 atoms; a model unlike the truth."""
    rng = np.random.default_rng([seed, 6])
    context_S = rng.dirichlet(np.full(3, 3.0))
    mu_SA, pi_SA = rng.dirichlet(np.ones(4), size=(2, 3))
    mu_SA = 0.9 * mu_SA + 0.1 / 4
    reward_SAK, chance_SA = sign * rng.random((3, 4, 2)), rng.random((3, 4))
    mass_SAK = np.stack([1 - chance_SA, chance_SA], axis=-1)
    mean_SA = (mass_SAK * reward_SAK).sum(-1)
    variance_SA = (mass_SAK * reward_SAK**2).sum(-1) - mean_SA**2
    law = LoggedDistribution(context_S, mu_SA, mu_SA if on_policy else pi_SA, mean_SA, variance_SA)
    context_K, action_K, _ = np.indices((3, 4, 2)).reshape(3, -1)
    joint_SAK = context_S[:, None, None] * mu_SA[..., None] * mass_SAK
    return World(law, context_K, action_K, reward_SAK.ravel(), joint_SAK.ravel(), rng.random((3, 4)))


def embedded(seed, direct):
    """2 contexts, 3 actions, 2 embeddings, random rewards; with or without effect of the action beside e."""
    rng = np.random.default_rng([seed, 7])
    mu_SA, pi_SA = rng.dirichlet(np.ones(3), size=(2, 2))
    embedding_AE = rng.dirichlet(np.ones(2), size=3)
    mean_SAE = rng.random((2, 3, 2)) if direct else np.repeat(rng.random((2, 1, 2)), 3, axis=1)
    embedding_SAE = np.repeat(embedding_AE[None], 2, axis=0)
    # The reward is its mean plus or minus 1/5, as likely.
    return EmbeddedDistribution(
        rng.dirichlet(np.ones(2)), 0.9 * mu_SA + 0.1 / 3, pi_SA, embedding_SAE, mean_SAE, mean_SAE**2 + 0.04
    )


FAMILY = (
    ("ips", {}, lambda w, _: w), ("clipped_ips", {"lambda_": 1.5}, lambda w, _: np.where(w > 1.5, 1.5, w)),
    ("propensity_clipped_ips", {"tau": 0.3}, lambda w, mu: np.where(mu > 0.3, w, w * mu / 0.3)),
    ("exponential_smoothing", {"alpha": 0.7}, lambda w, mu: w * mu**0.3),
    ("power_of_ratio", {"alpha": 0.6}, lambda w, _: w**0.6),
    ("ix", {"gamma": 0.1}, lambda w, mu: w / (1 + 0.1 / mu)),
    ("subgaussian_ips", {"lambda_": 0.3}, lambda w, _: w / (0.7 + 0.3 * w)), ("dm", {}, lambda w, _: 0 * w),
    ("dr", {}, lambda w, _: w), ("switch_dr", {"lambda_": 1.2}, lambda w, _: w * (w <= 1.2)),
    ("dr_ps", {"lambda_": 1.2}, lambda w, _: np.where(w > 1.2, 1.2, w)),
    ("dr_os", {"lambda_": 2.0}, lambda w, _: 2 * w / (w**2 + 2)),
    ("sg_dr", {"lambda_": 0.4}, lambda w, _: w / (0.6 + 0.4 * w)),
)  # fmt: skip
"""Linear estimators with a hyperparameter that bites, and their weight as the papers write it."""
