"""Exact bias and variance in contextual bandits: by formula for any number of samples, or by counting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from envs.arrays import Floats, Ints
from testbed.errors import UserError

MOST_COUNTS = 2_000_000
"""Count vectors that are enumerated at most: beside their probabilities some 16 bytes for each atom."""


@dataclass(frozen=True)
class LoggedLaw:
    """Law of contexts [X], logging mu, target pi, reward mean q and variance [X, A]; mu > 0 where pi > 0."""

    context_X: Floats
    mu_XA: Floats
    pi_XA: Floats
    mean_XA: Floats
    variance_XA: Floats

    def __post_init__(self) -> None:
        _check_overlap(self.context_X, self.mu_XA, self.pi_XA)

    @property
    def weight_XA(self) -> Floats:
        """w = pi / mu, 0 where mu = 0."""
        return _ratio(self.pi_XA, self.mu_XA)

    @property
    def value(self) -> float:
        """V = E_x sum_a pi q."""
        return float(self.context_X @ (self.pi_XA * self.mean_XA).sum(axis=-1))


@dataclass(frozen=True)
class Moments:
    """Bias, and n times the variance of the mean of n independent rounds."""

    bias: float
    n_variance: float

    def mse(self, n: int) -> float:
        """bias^2 + n_variance / n."""
        return self.bias**2 + self.n_variance / n


@dataclass(frozen=True)
class CountMoments:
    """Mean and variance of a statistic of the counts of n draws, and the number of terms summed."""

    mean: float
    variance: float
    terms: int


def linear_weight(law: LoggedLaw, weight_XA: Floats, model_XA: Floats | None = None) -> Moments:
    """Moments of mean_i [qhat(x, pi) + what(x, a) (r - qhat(x, a))] for fixed what and qhat (None: 0).

    bias = E_mu[(what - w)(q - qhat)]; n_variance = E_mu[what^2 variance] + E_x Var_{a~mu}(what (q - qhat)) +
    Var_x(qhat(x, pi) + E_{a~mu} what (q - qhat)). Derivation: docs/theory/linear-weights.md.
    """
    model_XA = np.zeros_like(law.mean_XA) if model_XA is None else model_XA
    error_XA = law.mean_XA - model_XA
    corrected_XA = weight_XA * error_XA
    corrected_X = (law.mu_XA * corrected_XA).sum(axis=-1)
    center_X = (law.pi_XA * model_XA).sum(axis=-1) + corrected_X
    noise_X = (law.mu_XA * weight_XA**2 * law.variance_XA).sum(axis=-1)
    within_X = (law.mu_XA * corrected_XA**2).sum(axis=-1) - corrected_X**2
    across = float(law.context_X @ center_X**2) - float(law.context_X @ center_X) ** 2
    bias_X = (law.mu_XA * (weight_XA - law.weight_XA) * error_XA).sum(axis=-1)
    return Moments(float(law.context_X @ bias_X), float(law.context_X @ (noise_X + within_X)) + across)


def mrdr_objective(law: LoggedLaw, model_XA: Floats) -> float:
    """E_x Var_{a~mu}[w (q - qhat)], what MRDR's model minimizes; q + c(x) mu/pi is as good as q itself."""
    shifted_XA = law.weight_XA * (law.mean_XA - model_XA)
    mean_X = (law.mu_XA * shifted_XA).sum(axis=-1)
    return float(law.context_X @ ((law.mu_XA * shifted_XA**2).sum(axis=-1) - mean_X**2))


def number_of_counts(n: int, atoms: int) -> int:
    """C(n + atoms - 1, atoms - 1): how many count vectors n draws from `atoms` values have."""
    return math.comb(n + atoms - 1, atoms - 1)


def count_vectors(n: int, atoms: int, most: int = MOST_COUNTS) -> Ints:
    """Every vector of `atoms` counts that sum to n, [C, atoms]; UserError when there are more than `most`."""
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
        first = np.arange(len(parent)) - np.repeat(np.cumsum(left + 1) - (left + 1), left + 1)
        counts, left = np.hstack([counts[parent], first[:, None]]), left[parent] - first
    return np.hstack([counts, left[:, None]])


def count_law(n: int, mass_K: Floats, most: int = MOST_COUNTS) -> tuple[Ints, Floats]:
    """Counts [C, K] of n independent draws with law mass_K, and their multinomial probabilities [C]."""
    _check_law(mass_K)
    count_CK = count_vectors(n, len(mass_K), most)
    log_C = special.gammaln(n + 1) - special.gammaln(count_CK + 1).sum(axis=-1)
    log_C += special.xlogy(count_CK, mass_K).sum(axis=-1)
    return count_CK, np.exp(log_C)


def exact_moments(
    n: int, mass_K: Floats, statistic: Callable[[Floats], Floats], most: int = MOST_COUNTS
) -> CountMoments:
    """Mean and variance of statistic(counts [C, K]) -> [C] over all samples of n draws.

    Valid for any statistic that does not depend on the order of the draws. UserError where it is not finite
    with positive probability.
    """
    count_CK, chance_C = count_law(n, mass_K, most)
    with np.errstate(divide="ignore", invalid="ignore"):
        value_C = np.asarray(statistic(count_CK.astype(np.float64)), dtype=np.float64)
    bad_C = ~np.isfinite(value_C) & (chance_C > 0)
    if bad_C.any():
        raise UserError(
            f"The statistic is not finite for counts {count_CK[bad_C][0].tolist()}, which have probability "
            f"{chance_C[bad_C][0]:.3g}: say what it is where weights sum to 0."
        )
    value_C = np.where(chance_C > 0, value_C, 0.0)
    mean = float(chance_C @ value_C)
    return CountMoments(mean, float(chance_C @ (value_C - mean) ** 2), len(value_C))


def self_normalized(weight_K: Floats, reward_K: Floats) -> Callable[[Floats], Floats]:
    """The statistic sum w r / sum w of counts over K atoms (SNIPS, and WIS over episodes)."""
    return lambda count_CK: (count_CK @ (weight_K * reward_K)) / (count_CK @ weight_K)


def log_smoothing_e_value(n: int, mass_K: Floats, weight_K: Floats, reward_K: Floats, lam: float) -> float:
    """E[prod_i (1 + lam w_i r_i)] over n draws by enumeration; it is (1 + lam V)^n exactly, for r >= 0."""
    if (reward_K < 0).any():
        raise UserError(f"The smallest reward is {reward_K.min():g}; the e-value needs rewards >= 0.")
    growth_K = np.log1p(lam * weight_K * reward_K)
    return exact_moments(n, mass_K, lambda count_CK: np.exp(count_CK @ growth_K)).mean


@dataclass(frozen=True)
class EmbeddedLaw:
    """A logged law whose actions show an embedding e ~ p(e | x, a) [X, A, E]; reward mean q [X, A, E].

    square_XAE: E[r^2 | x, a, e]. The reward has no direct effect when q does not depend on the action. mu may
    miss actions of pi: MIPS needs its embeddings alone; what needs pi/mu then raises UserError.
    """

    context_X: Floats
    mu_XA: Floats
    pi_XA: Floats
    embedding_XAE: Floats
    mean_XAE: Floats
    square_XAE: Floats

    @property
    def joint_XAE(self) -> Floats:
        """p(x) mu(a | x) p(e | x, a)."""
        return self.context_X[:, None, None] * self.mu_XA[..., None] * self.embedding_XAE

    @property
    def marginal_weight_XE(self) -> Floats:
        """p(e | x, pi) / p(e | x, mu), 0 where mu never shows e."""
        top_XE, bottom_XE = (
            np.einsum("xa,xae->xe", p_XA, self.embedding_XAE) for p_XA in (self.pi_XA, self.mu_XA)
        )
        return _ratio(top_XE, bottom_XE)

    @property
    def weight_XA(self) -> Floats:
        """w = pi / mu, 0 where neither takes the action; UserError where pi alone does."""
        _check_overlap(self.context_X, self.mu_XA, self.pi_XA)
        return _ratio(self.pi_XA, self.mu_XA)

    @property
    def value(self) -> float:
        """E_pi r."""
        target_XAE = self.context_X[:, None, None] * self.pi_XA[..., None] * self.embedding_XAE
        return float((target_XAE * self.mean_XAE).sum())

    def moments(self, weight_XAE: Floats) -> Moments:
        """Bias and n-variance of mean w r for any weight of context, action and embedding."""
        mean = float((self.joint_XAE * weight_XAE * self.mean_XAE).sum())
        square = float((self.joint_XAE * weight_XAE**2 * self.square_XAE).sum())
        return Moments(mean - self.value, square - mean**2)

    def mips(self) -> Moments:
        """The marginalized estimator (Saito & Joachims 2022), by enumeration."""
        return self.moments(np.broadcast_to(self.marginal_weight_XE[:, None], self.joint_XAE.shape))

    def ips(self) -> Moments:
        """Plain importance weighting, by enumeration."""
        return self.moments(np.broadcast_to(self.weight_XA[..., None], self.joint_XAE.shape))

    def posterior_XAE(self) -> Floats:
        """mu(a | x, e)."""
        total_X1E = self.joint_XAE.sum(axis=1, keepdims=True)
        return self.joint_XAE / np.where(total_X1E > 0, total_X1E, 1.0)

    def mips_bias_formula(self) -> float:
        """E sum_{a<b} mu(a|x,e) mu(b|x,e) [q(a) - q(b)] [w(b) - w(a)]; 0 without direct effect."""
        posterior_XAE, w_XA = self.posterior_XAE(), self.weight_XA
        gap_XABE = self.mean_XAE[:, :, None] - self.mean_XAE[:, None]
        weight_XAB = w_XA[:, None] - w_XA[:, :, None]
        pairs_XE = np.einsum(
            "xae,xbe,xabe,xab->xe", posterior_XAE, posterior_XAE, gap_XABE, weight_XAB
        )  # each pair twice
        return float((self.joint_XAE.sum(axis=1) * pairs_XE).sum() / 2)

    def mips_gain_formula(self) -> float:
        """n (Var IPS - Var MIPS) = E[E[r^2 | x, e] Var_{a | x, e} w], valid without direct effect."""
        posterior_XAE, w_XA1 = self.posterior_XAE(), self.weight_XA[..., None]
        mean_XE = (posterior_XAE * w_XA1).sum(axis=1)
        spread_XE = (posterior_XAE * w_XA1**2).sum(axis=1) - mean_XE**2
        square_XE = (posterior_XAE * self.square_XAE).sum(axis=1)
        return float((self.joint_XAE.sum(axis=1) * square_XE * spread_XE).sum())


@dataclass(frozen=True)
class InstrumentLaw:
    """Confounder u [U], instrument z in {0, 1} independent of it, P(A=1 | z, u) and E[R | a, u], [2, U]."""

    confounder_U: Floats
    instrument: float
    take_ZU: Floats
    mean_AU: Floats

    def effect(self, action: int) -> float:
        """E[R | do(a)] = sum_u p(u) E[R | a, u]."""
        return float(self.confounder_U @ self.mean_AU[action])

    def naive(self, action: int) -> float:
        """E[R | A = a], biased where u moves both."""
        share_U = self.confounder_U * (
            np.array([1 - self.instrument, self.instrument]) @ self._chance_ZU(action)
        )
        return float(share_U @ self.mean_AU[action] / share_U.sum())

    def identified(self, action: int) -> float:
        """(E[R 1{A=a} | Z=1] - E[R 1{A=a} | Z=0]) / (P(A=a | Z=1) - P(A=a | Z=0)).

        It is E[R | do(a)] when P(a | Z=1, u) - P(a | Z=0, u) is the same for every u.

        Raises UserError for an instrument without first stage.
        """
        chance_ZU = self._chance_ZU(action)
        earned_Z = chance_ZU @ (self.confounder_U * self.mean_AU[action])
        taken_Z = chance_ZU @ self.confounder_U
        if abs(taken_Z[1] - taken_Z[0]) < 1e-12:
            raise UserError(f"The instrument does not move action {action}; nothing is identified.")
        return float((earned_Z[1] - earned_Z[0]) / (taken_Z[1] - taken_Z[0]))

    def _chance_ZU(self, action: int) -> Floats:
        return self.take_ZU if action == 1 else 1.0 - self.take_ZU


def _ratio(above: Floats, below: Floats) -> Floats:
    """above / below, 0 where below is 0."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)


def _check_overlap(context_X: Floats, mu_XA: Floats, pi_XA: Floats) -> None:
    missing_XA = (pi_XA > 0) & (mu_XA <= 0) & (context_X[:, None] > 0)
    if missing_XA.any():
        context, action = (int(i) for i in np.argwhere(missing_XA)[0])
        raise UserError(
            f"mu never takes action {action} in context {context}, but pi does: the weight is infinite. "
            "Give mu mass there."
        )


def _check_law(mass_K: Floats) -> None:
    if mass_K.ndim != 1 or not (mass_K >= 0).all() or abs(float(mass_K.sum()) - 1.0) > 1e-9:
        raise UserError(
            f"The atoms have masses {np.array2string(np.asarray(mass_K), threshold=6)}, which sum to "
            f"{float(np.sum(mass_K)):.6g}; expected masses >= 0 that sum to 1."
        )
