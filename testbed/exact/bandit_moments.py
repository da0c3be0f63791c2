"""Exact bias and variance in contextual bandits: by formula for any number of samples, or by counting."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from scipy import special

from envs.arrays import Floats, Ints
from testbed.errors import UserError

MOST_COUNTS = 2_000_000
"""Largest number of count vectors to enumerate; each atom takes about 16 bytes besides its probability."""


@dataclass(frozen=True)
class LoggedDistribution:
    """A contextual bandit with its logging policy and a target policy.

    context_S: probabilities of the contexts [S].
    mu_SA, pi_SA: logging and target policy, probabilities [S, A]; mu > 0 where pi > 0.
    mean_SA, variance_SA: mean and variance of the reward [S, A].

    Raises UserError for shapes that disagree, rows that are no probabilities, a negative variance, and where
    mu is 0 and pi is not.
    """

    context_S: Floats
    mu_SA: Floats
    pi_SA: Floats
    mean_SA: Floats
    variance_SA: Floats

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, np.asarray(getattr(self, item.name), dtype=np.float64))
        wanted = (*self.context_S.shape, *self.mu_SA.shape[-1:])
        for name in ("mu_SA", "pi_SA", "mean_SA", "variance_SA"):
            if (shape := getattr(self, name).shape) != wanted or len(wanted) != 2:
                raise UserError(
                    f"{name} has shape {shape}, context_S {self.context_S.shape}; expected context_S [S] and "
                    "all others [S, A]."
                )
        for name in ("context_S", "mu_SA", "pi_SA"):
            law = getattr(self, name)
            if not ((law >= 0).all() and np.allclose(law.sum(-1), 1.0, atol=1e-6)):
                raise UserError(
                    f"{name} holds no probabilities: expected entries >= 0 that sum to 1 in a row."
                )
        if not ((self.variance_SA >= -1e-12).all() and np.isfinite(self.mean_SA).all()):
            raise UserError("mean_SA and variance_SA: expected finite means and variances >= 0.")
        _check_overlap(self.context_S, self.mu_SA, self.pi_SA)

    @property
    def weight_SA(self) -> Floats:
        """w = pi / mu, 0 where mu = 0."""
        return _ratio(self.pi_SA, self.mu_SA)

    @property
    def value(self) -> float:
        """V = E_x sum_a pi q."""
        return float(self.context_S @ (self.pi_SA * self.mean_SA).sum(axis=-1))


@dataclass(frozen=True)
class Moments:
    """Bias, and n times the variance of the mean of n independent rounds."""

    bias: float
    n_variance: float

    def mse(self, n: int) -> float:
        return self.bias**2 + self.n_variance / n


@dataclass(frozen=True)
class CountMoments:
    """Mean and variance of a statistic of the counts of n draws, and the number of terms summed."""

    mean: float
    variance: float
    terms: int


def linear_weight(logged: LoggedDistribution, weight_SA: Floats, model_SA: Floats | None = None) -> Moments:
    """Moments of mean_i [qhat(x, pi) + what(x, a) (r - qhat(x, a))] for fixed what and qhat (None: 0).

    bias = E_mu[(what - w)(q - qhat)]; n_variance = E_mu[what^2 variance] + E_x Var_{a~mu}(what (q - qhat)) +
    Var_x(qhat(x, pi) + E_{a~mu} what (q - qhat)). Derivation: docs/theory/linear-weights.md.
    """
    model_SA = np.zeros_like(logged.mean_SA) if model_SA is None else model_SA
    error_SA = logged.mean_SA - model_SA
    corrected_SA = weight_SA * error_SA
    corrected_S = (logged.mu_SA * corrected_SA).sum(axis=-1)
    center_S = (logged.pi_SA * model_SA).sum(axis=-1) + corrected_S
    noise_S = (logged.mu_SA * weight_SA**2 * logged.variance_SA).sum(axis=-1)
    within_S = (logged.mu_SA * corrected_SA**2).sum(axis=-1) - corrected_S**2
    across = float(logged.context_S @ center_S**2) - float(logged.context_S @ center_S) ** 2
    bias_S = (logged.mu_SA * (weight_SA - logged.weight_SA) * error_SA).sum(axis=-1)
    n_variance = float(logged.context_S @ (noise_S + within_S)) + across
    # Differences of moments leave -1e-17 for a variance of 0.
    return Moments(float(logged.context_S @ bias_S), max(n_variance, 0.0))


def number_of_counts(n: int, atoms: int) -> int:
    """C(n + atoms - 1, atoms - 1): the number of count vectors of n draws from `atoms` values."""
    return math.comb(n + atoms - 1, atoms - 1)


def count_vectors(n: int, atoms: int, most: int = MOST_COUNTS) -> Ints:
    """List every vector of `atoms` counts with sum n, [R, atoms]; UserError if there are more than `most`."""
    if n < 1 or atoms < 1:
        raise UserError(f"n is {n} and atoms is {atoms}; both must be at least 1.")
    total = number_of_counts(n, atoms)
    if total > most:
        size = total * atoms * 8 / 2**20
        raise UserError(
            f"{n} draws from {atoms} atoms have {total:,} count vectors ({size:,.0f} MiB); at most {most:,} "
            "are enumerated. Take fewer draws or atoms."
        )
    counts, left = np.zeros((1, 0), dtype=np.int64), np.array([n])
    for _ in range(atoms - 1):
        parent = np.repeat(np.arange(len(left)), left + 1)
        # Children of one parent lie side by side: positions less the parent's first one count 0 … left.
        first = np.arange(len(parent)) - np.repeat(np.cumsum(left + 1) - (left + 1), left + 1)
        counts, left = np.hstack([counts[parent], first[:, None]]), left[parent] - first
    return np.hstack([counts, left[:, None]])


def count_dist(n: int, mass_K: Floats, most: int = MOST_COUNTS) -> tuple[Ints, Floats]:
    """Return counts [R, K] of n independent draws from mass_K, and their multinomial probabilities [R]."""
    if mass_K.ndim != 1 or not (mass_K >= 0).all() or abs(float(mass_K.sum()) - 1.0) > 1e-9:
        raise UserError(
            f"The atoms have masses {np.array2string(np.asarray(mass_K), threshold=6)}, which sum to "
            f"{float(np.sum(mass_K)):.6g}; expected masses >= 0 that sum to 1."
        )
    count_RK = count_vectors(n, len(mass_K), most)
    log_R = special.gammaln(n + 1) - special.gammaln(count_RK + 1).sum(axis=-1)
    log_R += special.xlogy(count_RK, mass_K).sum(axis=-1)
    return count_RK, np.exp(log_R)


def exact_moments(
    n: int, mass_K: Floats, statistic: Callable[[Floats], Floats], most: int = MOST_COUNTS
) -> CountMoments:
    """Mean and variance of statistic(counts [R, K]) -> [R] over all samples of n draws.

    Valid for any statistic that does not depend on the order of the draws. UserError if it is not finite with
    positive probability.
    """
    count_RK, chance_R = count_dist(n, mass_K, most)
    with np.errstate(divide="ignore", invalid="ignore"):
        value_R = np.asarray(statistic(count_RK.astype(np.float64)), dtype=np.float64)
    bad_R = ~np.isfinite(value_R) & (chance_R > 0)
    if bad_R.any():
        raise UserError(
            f"The statistic is not finite for counts {count_RK[bad_R][0].tolist()}, which have probability "
            f"{chance_R[bad_R][0]:.3g}: say what it is where weights sum to 0."
        )
    # A sample of chance 0 may be undefined, and 0 * inf would be NaN.
    value_R = np.where(chance_R > 0, value_R, 0.0)
    mean = float(chance_R @ value_R)
    return CountMoments(mean, float(chance_R @ (value_R - mean) ** 2), len(value_R))


def self_normalized(weight_K: Floats, reward_K: Floats) -> Callable[[Floats], Floats]:
    """The statistic sum w r / sum w of counts over K atoms (SNIPS, and WIS over episodes)."""
    return lambda count_RK: (count_RK @ (weight_K * reward_K)) / (count_RK @ weight_K)


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below, 0 where below is 0."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)


def _check_overlap(context_S: Floats, mu_SA: Floats, pi_SA: Floats) -> None:
    missing_SA = (pi_SA > 0) & (mu_SA <= 0) & (context_S[:, None] > 0)
    if missing_SA.any():
        context, action = (int(i) for i in np.argwhere(missing_SA)[0])
        raise UserError(
            f"mu never takes action {action} in context {context}, but pi does: the weight is infinite. "
            "Give mu mass there."
        )
