"""Limits of training a tabular softmax policy on a fixed mu: in closed form, and along the gradient flow.

mu, reward and policies are arrays over A actions; expectations over mu are exact, and mu is fixed. The flow
is dtheta/dt = minus the gradient of the expected loss in the logits, from pi = mu unless a start is given.
docs/theory/fixed-data-limits.md derives the closed forms.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import integrate, optimize, special

from envs.arrays import Bools, Floats
from testbed.errors import UserError

Drift = Callable[[Floats], Floats]
"""log pi [A] -> dtheta/dt [A]."""

RTOL, ATOL = 1e-10, 1e-12


@dataclass(frozen=True)
class Path:
    """A flow sampled at times [T]: log-probabilities [T, A]."""

    time_T: Floats
    log_pi_TA: Floats

    @property
    def pi_TA(self) -> Floats:
        return np.exp(self.log_pi_TA)

    @property
    def entropy_T(self) -> Floats:
        """-sum pi log pi, nats."""
        return -(self.pi_TA * self.log_pi_TA).sum(axis=-1)


def flow(drift: Drift, start_A: Floats, time_T: Floats) -> Path:
    """Integrate the logits from log start_A and sample them at increasing times; the first may be 0.

    Implicit multistep (LSODA), relative tolerance 1e-10. Raises UserError if the integrator fails.
    """
    given = np.asarray(time_T, dtype=np.float64)
    solved = integrate.solve_ivp(
        lambda _, theta_A: drift(special.log_softmax(theta_A)),
        (0.0, float(given[-1])),
        np.log(start_A),
        method="LSODA",
        t_eval=given,
        rtol=RTOL,
        atol=ATOL,
    )
    if not solved.success:
        raise UserError(f"The flow could not be followed to time {given[-1]:g}: {solved.message}")
    return Path(given, special.log_softmax(solved.y.T, axis=-1))


def lowest_entropy(drift: Drift, start_A: Floats, until: float, points: int = 4001) -> tuple[float, float]:
    """Time and value of the smallest entropy on a logarithmic grid of times up to `until`."""
    path = flow(drift, start_A, np.geomspace(1e-2, until, points))
    lowest = int(np.argmin(path.entropy_T))
    return float(path.time_T[lowest]), float(path.entropy_T[lowest])


# Weighted likelihood: the gradient of E_mu[a log pi] is c - C pi with c = mu a and C = sum c.


def drift_limit(drift_A: Floats, tie: float = 1e-12) -> Floats:
    """Limit of dtheta/dt = c - C pi for C = sum c > 0: (c - level)+ / C, summing to 1, from any start.

    For C > 0 the flow ascends a concave function of the logits. One action survives iff C is at most the
    largest c minus the second largest. For C = 0 the largest c wins; ties share by their start. Ties at C =
    0, and all C < 0, depend on the start and raise UserError.
    """
    total = float(drift_A.sum())
    scale = float(np.abs(drift_A).max())
    ordered_A = np.sort(drift_A)[::-1]
    if abs(total) <= tie * scale and ordered_A[0] - ordered_A[1] > tie * scale:
        return (drift_A == drift_A.max()).astype(float)
    if total <= tie * scale:
        raise UserError(
            f"sum c is {total:.3g}: the limit depends on the start. stable_vertices() names where it can end."
        )
    return np.maximum(drift_A - drift_level(drift_A), 0.0) / total


def drift_level(drift_A: Floats) -> float:
    """Return the threshold of `drift_limit`: actions with c above it survive; their c - level sum to C.

    Raises UserError unless C > 0: the limit then depends on the start.
    """
    total, ordered_A = float(drift_A.sum()), np.sort(drift_A)[::-1]
    if total <= 0.0:
        raise UserError(f"sum c is {total:.3g}, expected more than 0; otherwise no level exists.")
    # The level at which the k largest c, each minus the level, sum to C.
    level_A = (np.cumsum(ordered_A) - total) / np.arange(1, len(ordered_A) + 1)
    size = int(np.flatnonzero(ordered_A > level_A)[-1])
    # If all c are positive all survive, at a level of 0 that rounding may miss from below.
    return max(float(level_A[size]), 0.0)


def drift_threshold(drift_A: Floats) -> Floats:
    """T(y) = sum_z (c_z - c_y)+, [A]: action y survives in the limit exactly when C exceeds it.

    Reason: y survives iff c_y is above the level; sum_z (c_z - x)+ falls in x and is C at the level.
    """
    return np.maximum(drift_A - drift_A[:, None], 0.0).sum(axis=-1)


def stable_vertices(drift_A: Floats) -> list[int]:
    """Return the actions y that the flow c - C pi never leaves: c_y - C is above every other c.

    With C <= 0 the largest c is always among them, with others when -C exceeds their differences. With C > 0
    there is one exactly when C is less than the largest c minus the second largest.
    """
    total, found = float(drift_A.sum()), []
    for y in range(len(drift_A)):
        if drift_A[y] - total > np.delete(drift_A, y).max():
            found.append(y)
    return found


def linear_drift(drift_A: Floats) -> Drift:
    """c - C pi."""
    total = float(drift_A.sum())
    return lambda log_pi_A: drift_A - total * np.exp(log_pi_A)


def asymre_drift(mu_A: Floats, reward_A: Floats, delta_v: float) -> Floats:
    """c = mu (R - V) with V = V^mu + delta_v, so that C = -delta_v (AsymRE, arXiv 2506.20520)."""
    return mu_A * (reward_A - float(mu_A @ reward_A) - delta_v)


def asymre_limit(mu_A: Floats, reward_A: Floats, delta_v: float) -> Floats:
    """(c - level)+ / C for delta_v < 0; delta_v = 0 gives the largest mu (R - V^mu)."""
    return drift_limit(asymre_drift(mu_A, reward_A, delta_v))


def asymre_transition(mu_A: Floats, reward_A: Floats) -> float:
    """The delta_v < 0 from which only one action survives: -delta_v = c(1) - c(2).

    c depends on delta_v, so this finds the root of the gap minus -delta_v; 0 if the two largest tie.
    """

    def excess(size: float) -> float:
        ordered_A = np.sort(asymre_drift(mu_A, reward_A, -size))
        return float(ordered_A[-1] - ordered_A[-2]) - size

    if excess(0.0) <= 0.0:
        return 0.0
    span = float(reward_A.max() - reward_A.min())
    return -float(optimize.brentq(excess, 0.0, span, xtol=1e-15))


def asymre_thresholds(mu_A: Floats, reward_A: Floats) -> Floats:
    """The delta_v <= 0 from which action y vanishes, [A]; 0 for actions that survive as delta_v rises to 0.

    With delta_v = -C an action survives iff C > T(y) of `drift_threshold`. As C grows, c_y grows by mu_y and
    the level falls, so an action that has entered never leaves: one root per action. The second largest is
    `asymre_transition`.

    Raises UserError for an action that mu never takes: it never survives.
    """
    if not (mu_A > 0).all():
        raise UserError(f"mu_A is {mu_A}; an action without mass under mu has no threshold. Leave it out.")

    def lack(size: float, y: int) -> float:
        return float(drift_threshold(asymre_drift(mu_A, reward_A, -size))[y]) - size

    found_A = np.zeros(len(mu_A))
    for y in range(len(mu_A)):
        high = 1.0
        while lack(high, y) > 0.0:  # ends: T(y) grows by sum_z (mu_z - mu_y)+ < 1 per unit of C
            high *= 2.0
        if lack(0.0, y) > 0.0:
            found_A[y] = -float(optimize.brentq(lack, 0.0, high, args=(y,), xtol=1e-15))
    return found_A


def topr_drift(mu_A: Floats, success_A: Bools, a_minus: float) -> Floats:
    """c for rare failures: mu on successes, -a_minus mu on failures (R = +-1, their ratio clipped)."""
    return np.where(success_A, mu_A, -a_minus * mu_A)


def topr_thresholds(mu_A: Floats, success_A: Bools) -> Floats:
    """The a_minus from which success y vanishes from `topr_limit`, [A]; 0 for failures, which always vanish.

    (P(success) - sum over successes z of (mu_z - mu_y)+) / P(failure): C > T(y) of `drift_threshold`. The
    largest is P(success) / P(failure), where C = 0; from the second largest on one success survives.

    Raises UserError unless mu takes both successes and failures.
    """
    success, failure = float(mu_A[success_A].sum()), float(mu_A[~success_A].sum())
    if not (success > 0.0 and failure > 0.0):
        raise UserError(f"P(success) is {success:g}, P(failure) {failure:g}; expected both above 0.")
    behind_A = np.maximum(np.where(success_A, mu_A, 0.0) - mu_A[:, None], 0.0).sum(axis=-1)
    return np.where(success_A, (success - behind_A) / failure, 0.0)


def topr_limit(mu_A: Floats, success_A: Bools, a_minus: float = 0.0) -> Floats:
    """mu given success for a_minus = 0 (Le Roux et al. 2025); for a_minus > 0 the limit of `topr_drift`.

    One success survives as soon as C = P(success) - a_minus P(failure) <= c(1) - c(2), before C reaches 0.
    """
    return drift_limit(topr_drift(mu_A, success_A, a_minus))


# Squared residuals: beta log(pi/mu) regressed on an advantage.


def tilt(mu_A: Floats, reward_A: Floats, beta: float) -> Floats:
    """mu exp(R / beta) / Z: the minimizer of OAPL with beta1 = beta2, and of REBEL with eta = 1 / beta."""
    return special.softmax(np.log(mu_A) + reward_A / beta)


def residual_stationary(mu_A: Floats, adv_A: Floats, beta: float) -> Floats:
    """pi with beta ln w - w d = A, w = pi/mu, E_mu w = 1: stationary for E_mu(beta ln(pi/mu) - A)^2.

    Solved for -d = k >= 0 through w = (beta/k) omega(ln(k/beta) + A/beta), omega Wright's function.

    Raises UserError when E_mu exp(A/beta) < 1 (beta2 > beta1 in OAPL): the branch is then not unique.
    """
    if beta <= 0:
        raise UserError(f"beta is {beta:g}, expected more than 0.")
    log_total = float(special.logsumexp(adv_A / beta, b=mu_A))
    if log_total < -1e-12:
        raise UserError(
            f"E_mu exp(A / beta) = {np.exp(log_total):.6g} < 1: no unique stationary point in closed form. "
            "Take beta2 <= beta1, or follow the flow."
        )
    if log_total <= 1e-12:
        return mu_A * np.exp(adv_A / beta - log_total)

    def log_w(log_k: float) -> Floats:
        # ln w = A/beta - omega, as omega + ln omega = ln(k/beta) + A/beta.
        return adv_A / beta - special.wrightomega(log_k - np.log(beta) + adv_A / beta).real

    def excess(log_k: float) -> float:
        return float(special.logsumexp(log_w(log_k), b=mu_A))

    # At low omega vanishes, so E_mu w = E_mu exp(A / beta) > 1; at high every w is below 1.
    low, high = np.log(beta) - 60.0 - adv_A.max() / beta, np.log(np.abs(adv_A).max() + beta) + 10.0
    root = optimize.brentq(excess, low, high, xtol=1e-14)
    pi_A = mu_A * np.exp(log_w(float(root)))
    return pi_A / pi_A.sum()


def oapl_advantage(mu_A: Floats, reward_A: Floats, beta1: float) -> Floats:
    """R - beta1 ln E_mu exp(R / beta1): the advantage in an infinite group."""
    return reward_A - float(beta1 * special.logsumexp(reward_A / beta1, b=mu_A))


def oapl_stationary(mu_A: Floats, reward_A: Floats, beta1: float, beta2: float) -> Floats:
    """OAPL's minimizer (arXiv 2602.19362): the tilt iff beta1 = beta2, else a filter A+ as beta2 -> 0."""
    return residual_stationary(mu_A, oapl_advantage(mu_A, reward_A, beta1), beta2)


def kimi_stationary(mu_A: Floats, reward_A: Floats, tau: float) -> Floats:
    """Stationary policy of Kimi-OPMD with the mean as baseline: softer than the tilt."""
    return residual_stationary(mu_A, reward_A - float(mu_A @ reward_A), tau)


def residual_drift(mu_A: Floats, adv_A: Floats, beta: float) -> Drift:
    """Minus the gradient of E_mu[-A ln pi + (beta/2) ln^2(pi/mu)] = OAPL's over 2 beta."""

    def drift(log_pi_A: Floats) -> Floats:
        pull_A = mu_A * (adv_A - beta * (log_pi_A - np.log(mu_A)))
        return pull_A - pull_A.sum() * np.exp(log_pi_A)

    return drift
