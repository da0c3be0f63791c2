"""Off-policy value under unobserved confounding, from a binary instrument."""

from math import prod

import numpy as np

from envs.arrays import Bools, Floats, Ints
from testbed.errors import UserError
from testbed.estimators import Estimate, estimator, standard_error
from testbed.estimators.logged_rounds import Logged

VARIES = 1e-9
"""Difference of action probabilities that counts as another policy."""
WEAKEST = 1e-12
"""First stage |P(a|Z=1) - P(a|Z=0)| below which theta is not identified."""


@estimator(
    "instrumental_variable",
    source="Wald (1940); one step of Xu et al. (2023), Instrumental variables in off-policy evaluation",
    family="bandit",
    needs=("instrument_N", "action_N", "action_dist_NA"),
)
def instrumental_variable(data: Logged) -> Estimate:
    """sum_x p(x) sum_a pi(a|x) theta(x, a), theta = (difference in z of E[r 1{A=a}|z, x]) / (of P(A=a|z, x)).

    theta is E[r|do(a), x] when z is independent of the confounder u, affects r only through the action, and
    P(a|Z=1, u, x) - P(a|Z=0, u, x) does not depend on u. Strata x are `context` (a single one by default); pi
    must be constant in each. Propensities are not used; ess counts the rounds. The standard error uses the
    delta method and grows as 1 / first stage.

    Raises UserError for an empty stratum, an instrument that does not affect an action that pi takes, or a
    target that varies within a stratum.
    """
    z_N, action_N, pi_NA = data.need("instrumental_variable", "instrument_N", "action_N", "action_dist_NA")
    if not ((z_N == 0) | (z_N == 1)).all():
        raise UserError("The instrument takes other values than 0 and 1; recode it.")
    context_N = np.zeros_like(z_N) if data.context_N is None else data.context_N
    if context_N.min() < 0:
        raise UserError("context has negative labels; expected integers from 0.")
    lead, n = z_N.shape[:-1], z_N.shape[-1]
    strata, actions = int(context_N.max()) + 1, pi_NA.shape[-1]
    cell_N = (np.arange(prod(lead)).reshape(*lead, 1) * strata + context_N) * 2 + z_N
    count_S2 = _sums(cell_N, None, (*lead, strata, 2))
    used_S = count_S2.sum(-1) > 0
    _check_cells(count_S2, used_S)
    pi_SA = _target(pi_NA, cell_N // 2, (*lead, strata, actions))
    key_N = cell_N * actions + action_N
    size = (*lead, strata, 2, actions)
    with np.errstate(invalid="ignore", divide="ignore"):
        taken_S2A = _sums(key_N, None, size) / count_S2[..., None]
        earned_S2A = _sums(key_N, data.reward_N, size) / count_S2[..., None]
    first_SA = taken_S2A[..., 1, :] - taken_S2A[..., 0, :]
    _check_first_stage(first_SA, pi_SA, used_S)
    read_SA = (pi_SA > 0) & used_S[..., None]
    safe_SA = np.where(read_SA, first_SA, 1.0)
    theta_SA = np.where(read_SA, (earned_S2A[..., 1, :] - earned_S2A[..., 0, :]) / safe_SA, 0.0)
    terms_N = _terms(data, z_N, cell_N, count_S2, (pi_SA / safe_SA, theta_SA, pi_SA))
    return Estimate(np.asarray(terms_N.mean(-1)), standard_error(terms_N), np.full(lead, float(n)), terms_N)


def _sums(key_N: Ints, value_N: Floats | None, shape: tuple[int, ...]) -> Floats:
    weights = None if value_N is None else value_N.ravel()
    return np.bincount(key_N.ravel(), weights, minlength=prod(shape)).reshape(shape).astype(np.float64)


def _target(pi_NA: Floats, stratum_N: Ints, shape: tuple[int, ...]) -> Floats:
    """pi [..., S, A] of the strata; UserError where it varies within one."""
    pi_SA = np.zeros((prod(shape[:-1]), shape[-1]))
    pi_SA[stratum_N.ravel()] = pi_NA.reshape(-1, shape[-1])
    if not np.abs(pi_SA[stratum_N] - pi_NA).max() <= VARIES:
        raise UserError("action_dist varies within a stratum; make the strata finer with context=.")
    return pi_SA.reshape(shape)


def _check_cells(count_S2: Floats, used_S: Bools) -> None:
    empty = np.argwhere((count_S2 == 0) & used_S[..., None])
    if len(empty):
        *_, stratum, value = (int(i) for i in empty[0])
        raise UserError(
            f"Stratum {stratum} has no round with instrument {value}; merge strata, or log more rounds."
        )


def _check_first_stage(first_SA: Floats, pi_SA: Floats, used_S: Bools) -> None:
    weak = np.argwhere((np.abs(first_SA) < WEAKEST) & (pi_SA > 0) & used_S[..., None])
    if len(weak):
        *_, stratum, action = (int(i) for i in weak[0])
        raise UserError(
            f"The instrument does not move action {action} in stratum {stratum}: nothing is identified."
        )


def _terms(
    data: Logged, z_N: Ints, cell_N: Ints, count_S2: Floats, tables: tuple[Floats, Floats, Floats]
) -> Floats:
    """Value plus influence [..., N]: stratum value plus the centered residual of the moment condition."""
    scale_SA, theta_SA, pi_SA = tables
    stratum_N, actions = cell_N // 2, pi_SA.shape[-1]
    key_N = stratum_N * actions + data.action_N
    residual_N = scale_SA.ravel()[key_N] * (data.reward_N - theta_SA.ravel()[key_N])
    flat = count_S2.ravel()
    center = _sums(cell_N, residual_N, flat.shape) / np.maximum(flat, 1.0)
    share_N = flat[cell_N] / (flat[2 * stratum_N] + flat[2 * stratum_N + 1])
    value_N = (pi_SA * theta_SA).sum(-1).ravel()[stratum_N]
    terms_N: Floats = value_N + (2 * z_N - 1) * (residual_N - center[cell_N]) / share_N
    return terms_N
