"""The direct method and doubly robust estimators: (1/N) sum q(x, pi) + what (r - q(x, a)) with a model q.

For any weight map what, and any model not fitted on these rounds, bias = E_mu[(what - w)(E[r|x, a] - q)]
(docs/theory/linear-weights.md). With their defaults all but dm are DR.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, mean_of_terms
from testbed.estimators.bandit_weights import harmonic
from testbed.estimators.logged_rounds import Logged, check_not_negative, check_weights, mean_product

MODEL = ("q_N", "q_pi_N")


def corrected(name: str, data: Logged, change: Callable[[Floats], Floats] | None = None) -> Estimate:
    """(1/N) sum q(x, pi) + what (r - q), what = change(w); None leaves w unchanged."""
    q_N, q_pi_N = data.need(name, *MODEL)

    def weight() -> Floats:
        return data.weight_N if change is None else change(data.weight_N)

    def terms() -> Floats:
        terms_N = data.reward_N - q_N
        terms_N *= weight()
        terms_N += q_pi_N
        return terms_N

    pull = mean_product(data.weight_N, data.residual_N, change) if data.large else None
    if pull is None:
        check_weights(weight())
    return mean_of_terms(terms, weight, None if pull is None else data.direct + pull)


@estimator("dm", source="Beygelzimer & Langford (2009)", family="bandit", linear=True, needs=MODEL)
def dm(data: Logged) -> Estimate:
    """(1/N) sum q(x, pi), the direct method.

    Bias E_pi[q - E r]. n Var = Var_x q(x, pi); a small standard error does not mean that q is accurate.
    """
    _, q_pi_N = data.need("dm", *MODEL)
    return mean_of_terms(q_pi_N, np.zeros(data.reward_N.shape), data.direct)


@estimator("dr", source="Dudík et al. (2014)", family="bandit", unbiased=True, linear=True, needs=MODEL)
def dr(data: Logged) -> Estimate:
    """(1/N) sum q(x, pi) + w (r - q).

    With propensities m in place of mu the bias is E_x sum_a pi (mu/m - 1)(E[r|x, a] - q): a product of
    errors.
    """
    return corrected("dr", data)


@estimator("switch_dr", source="Wang, Agarwal & Dudík (2017)", family="bandit", linear=True, needs=MODEL)
def switch_dr(data: Logged, *, lambda_: float = np.inf) -> Estimate:
    """(1/N) sum q(x, pi) + w 1{w <= lambda} (r - q).

    A weight of exactly lambda is kept. Bias E_pi[1{w > lambda} (q - E r)].
    """
    check_not_negative("lambda_", lambda_)
    if lambda_ == np.inf:
        return corrected("switch_dr", data)
    # A product: np.where would evaluate every branch. The minimum keeps infinite weights out of it.
    return corrected("switch_dr", data, lambda w_N: np.minimum(w_N, lambda_) * (w_N <= lambda_))


@estimator("dr_ps", source="Su et al. (2020), pessimistic", family="bandit", linear=True, needs=MODEL)
def dr_ps(data: Logged, *, lambda_: float = np.inf) -> Estimate:
    """(1/N) sum q(x, pi) + min(w, lambda) (r - q)."""
    check_not_negative("lambda_", lambda_)
    return corrected("dr_ps", data, lambda w_N: np.minimum(w_N, lambda_))


@estimator("dr_os", source="Su et al. (2020), optimistic", family="bandit", linear=True, needs=MODEL)
def dr_os(data: Logged, *, lambda_: float = np.inf) -> Estimate:
    """(1/N) sum q(x, pi) + lambda w / (w^2 + lambda) (r - q).

    The weight is largest, sqrt(lambda)/2, at w = sqrt(lambda), and falls beyond. lambda = 0 is DM.
    """
    check_not_negative("lambda_", lambda_)
    if lambda_ == np.inf:
        return corrected("dr_os", data)

    def shrunk(w_N: Floats) -> Floats:
        with np.errstate(divide="ignore", over="ignore"):
            # No square of w, which overflows beyond 1e154.
            return lambda_ / (w_N + lambda_ / w_N) if lambda_ > 0 else np.zeros_like(w_N)

    return corrected("dr_os", data, shrunk)


@estimator("sg_dr", source="Metelli et al. (2021), with a model", family="bandit", linear=True, needs=MODEL)
def sg_dr(data: Logged, *, lambda_: float = 0.0) -> Estimate:
    """(1/N) sum q(x, pi) + w / (1 - lambda + lambda w) (r - q)."""
    return corrected("sg_dr", data, lambda w_N: harmonic(w_N, lambda_))


@estimator(
    "mrdr", source="Farajtabar, Chow & Ghavamzadeh (2018), More robust doubly robust; cross-fitted",
    family="bandit", unbiased=True, symmetric=False, needs=("feature_ND", "feature_pi_ND"),
)  # fmt: skip
def mrdr(data: Logged, *, folds: int = 2) -> Estimate:
    """DR with q = phi'beta, beta = argmin sum (w r + q(x, pi) - w q)^2 over the rounds of the other folds.

    E[w r + q(x, pi) - w q | x] does not depend on q, so these weighted least squares minimize E_x
    Var_{a~mu}[w (r - q)]. Minimizers differ by c(x) mu/pi; the least-norm one is used. Folds are consecutive
    blocks of rounds. folds = 1 fits on the rounds that it corrects, and is biased.

    Raises UserError for more folds than rounds.
    """
    feature_ND, feature_pi_ND = data.need("mrdr", "feature_ND", "feature_pi_ND")
    n = data.reward_N.shape[-1]
    if not 1 <= folds <= n:
        raise UserError(f"folds is {folds}, expected 1 to {n}, the number of rounds.")
    check_weights(data.weight_N)
    target_N = data.weight_N * data.reward_N
    control_ND = data.weight_N[..., None] * feature_ND - feature_pi_ND
    edges = np.linspace(0, n, folds + 1).astype(int)
    blocks = [slice(low, high) for low, high in pairwise(edges)]
    moments = [_moments(control_ND[..., block, :], target_N[..., block]) for block in blocks]
    terms_N = np.empty_like(target_N)
    for index, block in enumerate(blocks):
        others = [m for other, m in enumerate(moments) if other != index or folds == 1]
        beta_D = np.linalg.pinv(sum(gram for gram, _ in others), rcond=1e-10, hermitian=True) @ sum(
            cross for _, cross in others
        )
        terms_N[..., block] = target_N[..., block] - (control_ND[..., block, :] @ beta_D)[..., 0]
    return mean_of_terms(terms_N, data.weight_N)


def _moments(control_ND: Floats, target_N: Floats) -> tuple[Floats, Floats]:
    """Gram matrix [..., D, D] and cross moments [..., D, 1]."""
    transposed_DN = np.swapaxes(control_ND, -1, -2)
    return transposed_DN @ control_ND, transposed_DN @ target_N[..., None]
