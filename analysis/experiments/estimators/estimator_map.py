"""The table of exact mean squared errors of bandit estimators over parameter and sample size; no sampling."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from envs.arrays import Floats, Ints
from testbed.estimators import estimator
from testbed.estimators.logged_rounds import Logged, logged
from testbed.exact.bandit_moments import LoggedDistribution

NAME = "estimator-map"
COLUMNS = ("estimator", "parameter", "value", "n", "bias", "deviation", "rmse", "plain")
SIZES = (30, 300, 3_000, 30_000)
CONTEXTS, ACTIONS = 6, 8
SHARES: Floats = np.linspace(0.0, 1.0, 41)
WEIGHTS: Floats = np.array([float(f"{x:.4g}") for x in np.geomspace(0.1, 1e2, 41)])
SMALL: Floats = np.array([float(f"{x:.4g}") for x in np.geomspace(1e-3, 1.0, 41)])
WIDE: Floats = np.array([float(f"{x:.4g}") for x in np.geomspace(0.1, 1e4, 41)])
"""Rounded, so that the table holds the very parameters that were used."""
MAP: dict[str, tuple[str, Floats, str]] = {
    "clipped_ips": ("lambda_", WEIGHTS, "ips"),
    "propensity_clipped_ips": ("tau", SMALL, "ips"),
    "ix": ("gamma", SMALL, "ips"),
    "exponential_smoothing": ("alpha", SHARES, "ips"),
    "power_of_ratio": ("alpha", SHARES, "ips"),
    "subgaussian_ips": ("lambda_", SMALL, "ips"),
    "log_smoothing": ("lambda_", SMALL, "ips"),
    "switch_dr": ("lambda_", WEIGHTS, "dr"),
    "dr_ps": ("lambda_", WEIGHTS, "dr"),
    "dr_os": ("lambda_", WIDE, "dr"),
}
"""Estimator: its parameter, the values drawn, and what it is without regularization."""


@dataclass(frozen=True)
class World:
    """A contextual bandit of finitely many atoms (x, a, r), logging and target policy, a reward model."""

    law: LoggedDistribution
    context_K: Ints
    action_K: Ints
    reward_K: Floats
    mass_K: Floats
    model_SA: Floats

    def data(self, n: int, shift: float = 0.0) -> tuple[Logged, Floats]:
        """Return every data set of n rounds [C, n], K^n of them, and their probabilities [C]."""
        index_RN = np.indices((len(self.mass_K),) * n).reshape(n, -1).T
        context_RN, action_RN = self.context_K[index_RN], self.action_K[index_RN]
        found = logged(
            reward=self.reward_K[index_RN] + shift,
            action=action_RN,
            behavior_dist=self.law.mu_SA[context_RN],
            action_dist=self.law.pi_SA[context_RN],
            estimated_rewards_by_reg_model=self.model_SA[context_RN],
        )
        return found, self.mass_K[index_RN].prod(-1)

    def atom_weight_K(self) -> Floats:
        """pi/mu of each atom."""
        return self.law.weight_SA[self.context_K, self.action_K]


def moments(world: World, n: int, name: str, **hyper: float) -> tuple[float, float]:
    """Return mean and variance of an estimator over all data sets of n rounds."""
    data, mass_R = world.data(n)
    value_R = estimator[name].bind(**hyper)(data).value
    mean = float(mass_R @ value_R)
    return mean, float(mass_R @ (value_R - mean) ** 2)


def world(seed: int = 3) -> World:
    """6 contexts, 8 actions, rewards 0 or 1; pi is sharp where mu knows little; a model off by 0.15."""
    rng = np.random.default_rng([seed, 8])
    context_S = np.full(CONTEXTS, 1 / CONTEXTS)
    mean_SA = rng.random((CONTEXTS, ACTIONS))
    pi_SA, mu_SA = (
        _softmax(scale * mean_SA + noise * rng.standard_normal(mean_SA.shape))
        for scale, noise in ((5.0, 0.5), (1.0, 1.5))
    )
    law = LoggedDistribution(context_S, mu_SA, pi_SA, mean_SA, mean_SA * (1 - mean_SA))
    context_K, action_K, reward_K = np.indices((CONTEXTS, ACTIONS, 2)).reshape(3, -1)
    chance_SAK = np.stack([1 - mean_SA, mean_SA], axis=-1)
    mass_K = (context_S[:, None, None] * mu_SA[..., None] * chance_SAK).ravel()
    model_SA = mean_SA + 0.15 * rng.standard_normal(mean_SA.shape)
    return World(law, context_K, action_K, reward_K.astype(np.float64), mass_K, model_SA)


def estimator_map() -> Table:
    """Return bias, deviation and root mean squared error, all as shares of V, of one estimate of n rounds.

    These estimators are means of independent terms: MSE(n) = bias^2 + variance(1) / n, and the moments of one
    round are sums over the 96 atoms of the world. plain: 1 for IPS and DR themselves, whose value is NaN.
    """
    bandit = world()
    rows: list[tuple[object, ...]] = []
    for name, (parameter, values, plain) in MAP.items():
        cases = [(name, {parameter: float(value)}, float(value), 0) for value in values]
        for each, hyper, value, is_plain in [*cases, (plain, {}, math.nan, 1)]:
            mean, variance = moments(bandit, 1, each, **hyper)
            bias = mean / bandit.law.value - 1.0
            for n in SIZES:
                deviation = math.sqrt(variance / n) / bandit.law.value
                rows.append(
                    (name, parameter, value, n, bias, deviation, math.hypot(bias, deviation), is_plain)
                )
    about = {
        "world": f"{CONTEXTS} contexts, {ACTIONS} actions, rewards 0 or 1",
        "value": round(bandit.law.value, 5),
        "kish_ess_limit": round(float(1 / (bandit.mass_K @ bandit.atom_weight_K() ** 2)), 5),
        "largest_weight": round(float(bandit.law.weight_SA.max()), 5),
    }
    return Table.of(NAME, pd.DataFrame(rows, columns=list(COLUMNS)), about)


def _softmax(score_XA: Floats) -> Floats:
    odds_XA = np.exp(score_XA - score_XA.max(-1, keepdims=True))
    return np.asarray(odds_XA / odds_XA.sum(-1, keepdims=True))


EXPERIMENT = Experiment(
    NAME,
    question="Which regularization of a bandit estimator has the smallest error at which sample size?",
    source="papers of the estimators; docstrings of testbed.estimators",
    differs="moments are sums over the atoms of one world: no sampling",
    compute=estimator_map,
    keys=("estimator", "parameter", "value", "n", "plain"),
    metrics=("bias", "deviation", "rmse"),
    figure=Plot(
        "curves by arm",
        x="value: parameter",
        y="rmse: RMSE / V",
        arm=("n: rounds",),
        panel="estimator",
        log="xy",
        of=lambda table: table[table["plain"] == 0],
    ),
)
