"""Offline RL with a table: cloning, fitted Q, one-step, expectile (IQL), and policies extracted from a Q.

Values are discounted with an infinite horizon; `envs.infinite_horizon.value` gives the true ones.
"""

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import exact_model, ratio
from testbed.errors import UserError

MOST_ROUNDS = 10_000
"""Most rounds of an iteration that should contract."""
CLOSE = 1e-11
"""Change of the values below which an iteration has converged."""


def clone(visit_RSA: Floats, prior: float = 0.0) -> Floats:
    """pi(a|s) = (n(s, a) + prior) / (n(s) + A prior), [R, S, A]; uniform in states without data.

    Source: Laplace smoothing of the maximum-likelihood table.
    """
    mass_RSA = visit_RSA + prior
    total_RS1 = mass_RSA.sum(axis=-1, keepdims=True)
    return np.where(total_RS1 > 0, ratio(mass_RSA, total_RS1), 1.0 / visit_RSA.shape[-1])


def ahead(moves_RSAS: Floats, value_RS: Floats) -> Floats:
    """E[V(s') | s, a], [R, S, A]."""
    cells, states, actions, _ = moves_RSAS.shape
    flat_RX1 = moves_RSAS.reshape(cells, states * actions, states) @ value_RS[..., None]
    return flat_RX1.reshape(cells, states, actions)


def policy_q(moves_RSAS: Floats, reward_RSA: Floats, pi_RSA: Floats, discount: float) -> Floats:
    """Q^pi = r + discount P V, V = (I - discount P_pi)^-1 r_pi, [R, S, A]; pi = mu gives one-step RL.

    Source: Puterman (1994), theorem 6.1.1; Brandfonbrener et al. (2021) for one step.
    """
    _below_one(discount)
    step_RSS = np.einsum("rsa,rsat->rst", pi_RSA, moves_RSAS)
    gain_RS1 = (pi_RSA * reward_RSA).sum(axis=-1)[..., None]
    value_RS1 = np.linalg.solve(np.eye(step_RSS.shape[-1]) - discount * step_RSS, gain_RS1)
    return reward_RSA + discount * (moves_RSAS @ value_RS1[:, None])[..., 0]


def fitted_q(
    moves_RSAS: Floats,
    reward_RSA: Floats,
    discount: float,
    allowed_RSA: Bools | None = None,
    unseen: float = 0.0,
) -> Floats:
    """Fixed point Q = r + discount P max_{a' allowed} Q, [R, S, A], by policy iteration.

    allowed_RSA: actions in the maximum: None is plain FQI, the seen ones are BCQ's. Pairs outside it have Q =
    unseen, and so does a state without allowed actions. Source: Ernst, Geurts & Wehenkel (2005); Fujimoto,
    Meger & Precup (2019), equation 10 for the mask.
    """
    _below_one(discount)
    allowed_RSA = np.ones(reward_RSA.shape, bool) if allowed_RSA is None else allowed_RSA
    # A pair that is not allowed earns `unseen` once and ends.
    reward_RSA = np.where(allowed_RSA, reward_RSA, unseen)
    moves_RSAS = np.where(allowed_RSA[..., None], moves_RSAS, 0.0)
    pi_RSA = greedy(reward_RSA, allowed_RSA)
    for _ in range(MOST_ROUNDS):
        q_RSA = policy_q(moves_RSAS, reward_RSA, pi_RSA, discount)
        better_RSA = greedy(q_RSA, allowed_RSA)
        gain_RS = ((better_RSA - pi_RSA) * q_RSA).sum(axis=-1)
        # Ties up to rounding keep their action: switching among them need not end.
        moved_RS = gain_RS > CLOSE * (1 + np.abs(q_RSA).max())
        if not moved_RS.any():
            return q_RSA
        pi_RSA = np.where(moved_RS[..., None], better_RSA, pi_RSA)
    raise UserError(f"policy iteration did not end in {MOST_ROUNDS} rounds; lower the discount.")


def optimal_q(world: FiniteMDP) -> Floats:
    """Q* of the world with an infinite horizon, [1, S, A]: `fitted_q` on the exact model.

    Source: Puterman (1994), section 6.2.
    """
    moves_SAS, reward_SA = exact_model(world)
    return fitted_q(moves_SAS[None], reward_SA[None], world.discount)


def greedy(q_RSA: Floats, allowed_RSA: Bools | None = None) -> Floats:
    """One-hot argmax over the allowed actions, ties to the first, [R, S, A]; over all if none is allowed."""
    if allowed_RSA is not None:
        none_RS1 = ~allowed_RSA.any(axis=-1, keepdims=True)
        q_RSA = np.where(allowed_RSA | none_RS1, q_RSA, -np.inf)
    return np.eye(q_RSA.shape[-1])[q_RSA.argmax(axis=-1)]


def expectiles(value_xK: Floats, mass_xK: Floats, tau: ArrayLike) -> Floats:
    """m with tau E(X - m)+ = (1 - tau) E(m - X)+, [x], exact. Ignores values of mass 0; 0 if all are.

    `testbed.exact.value_learning.expectile` for many distributions. tau broadcasts to [x]. Source: Newey &
    Powell (1987).
    """
    tau_x1 = np.asarray(tau, dtype=np.float64)[..., None]
    if not ((tau_x1 > 0) & (tau_x1 < 1)).all():
        raise UserError(f"tau spans {tau_x1.min():g} to {tau_x1.max():g}, expected between 0 and 1.")
    order_xK = np.argsort(value_xK, axis=-1)
    x_xK, p_xK = (np.take_along_axis(v, order_xK, -1) for v in (value_xK, mass_xK))
    x_xK = np.where(p_xK > 0, x_xK, 0.0)
    low_xK, low_sum_xK = np.cumsum(p_xK, axis=-1), np.cumsum(p_xK * x_xK, axis=-1)
    high_xK, high_sum_xK = low_xK[..., -1:] - low_xK, low_sum_xK[..., -1:] - low_sum_xK
    scale_xK = tau_x1 * high_xK + (1 - tau_x1) * low_xK
    mean_xK = tau_x1 * high_sum_xK + (1 - tau_x1) * low_sum_xK
    mean_xK = np.where(scale_xK > 0, mean_xK / np.where(scale_xK > 0, scale_xK, 1.0), -np.inf)
    # Left minus right side falls, piecewise linear, convex for tau >= 1/2 and else concave: its root is the
    # largest, or the smallest, root of its pieces.
    smallest_x = np.where(scale_xK > 0, mean_xK, np.inf).min(axis=-1)
    found_x = np.where(tau_x1[..., 0] >= 0.5, mean_xK.max(axis=-1), smallest_x)
    return np.where(p_xK.sum(axis=-1) > 0, found_x, 0.0)


def iql(
    moves_RSAS: Floats, reward_RSA: Floats, mu_RSA: Floats, discount: float, tau: ArrayLike
) -> tuple[Floats, Floats]:
    """Fixed point of V(s) = expectile_tau of Q(s, a), a ~ mu, and Q = r + discount P V: [R, S, A], [R, S].

    tau: a number or [R]. tau = 1/2 gives Q^mu; tau -> 1 the best value within mu's support. V reads no
    action with mu = 0. Source: Kostrikov, Nair & Levine (2022), equations 5 and 6, theorem 3.
    """
    _below_one(discount)
    tau_R1 = np.broadcast_to(np.asarray(tau, np.float64).reshape(-1, 1), (len(mu_RSA), 1))
    value_RS = np.zeros(mu_RSA.shape[:2])
    for _ in range(MOST_ROUNDS):
        q_RSA = reward_RSA + discount * ahead(moves_RSAS, value_RS)
        new_RS = expectiles(q_RSA, mu_RSA, tau_R1)
        if float(np.abs(new_RS - value_RS).max()) <= CLOSE * (1 + float(np.abs(new_RS).max())):
            return q_RSA, new_RS
        # An expectile is a mean with weights tau above it and 1 - tau below: V is the value of that policy.
        above_RSA = q_RSA > new_RS[..., None]
        tilted_RSA = clone(mu_RSA * np.where(above_RSA, tau_R1[..., None], 1 - tau_R1[..., None]))
        tilted_RSA = np.where(mu_RSA.any(-1, keepdims=True), tilted_RSA, 0.0)
        seen_RSA = np.where(tilted_RSA > 0, reward_RSA, 0.0)
        value_RS = (tilted_RSA * policy_q(moves_RSAS, seen_RSA, tilted_RSA, discount)).sum(-1)
    raise UserError(f"expectile iteration did not end in {MOST_ROUNDS} rounds; lower the discount.")


def awr(mu_RSA: Floats, advantage_RSA: Floats, inverse_temperature: ArrayLike) -> Floats:
    """mu exp(beta A) / sum, [R, S, A]: advantage-weighted cloning in the limit of a table.

    beta: a number, [R] or [R, S], so constraints may differ by state. It maximizes E_pi A - KL(pi || mu) /
    beta. Source: Peng et al. (2019), equation 4; Peters & Schaal (2007).
    """
    beta_RS1 = _per_state(inverse_temperature, mu_RSA)
    with np.errstate(divide="ignore"):
        logit_RSA = np.log(mu_RSA) + np.where(mu_RSA > 0, beta_RS1 * advantage_RSA, 0.0)
    mass_RSA = np.exp(logit_RSA - logit_RSA.max(axis=-1, keepdims=True))
    return np.asarray(mass_RSA / mass_RSA.sum(axis=-1, keepdims=True))


def within_kl(mu_RSA: Floats, q_RSA: Floats, budget: ArrayLike) -> Floats:
    """argmax_pi E_pi Q subject to KL(pi || mu) <= budget in every state, [R, S, A], by bisection of beta.

    budget: a number, [R] or [R, S]: one constraint for all states, or FamO2O's balance per state (Wang et al.
    2023). A budget above -log mu(best) gives the best action in mu's support. Source: Peters, Mulling & Altun
    (2010), the dual of a KL constraint.
    """
    budget_RS = _per_state(budget, mu_RSA)[..., 0]
    if not (budget_RS >= 0).all():
        raise UserError(f"budget is {float(budget_RS.min()):g} nats, expected 0 or more.")
    seen_RSA = mu_RSA > 0
    spread_RS = np.where(seen_RSA, q_RSA, -np.inf).max(-1) - np.where(seen_RSA, q_RSA, np.inf).min(-1)
    scale_RS = np.where(spread_RS > 0, spread_RS, 1.0)
    low_RS, high_RS = np.zeros_like(budget_RS), 1e6 / scale_RS
    for _ in range(80):
        # Geometric means, as beta spans many powers of ten; the first guess replaces a mean with 0.
        middle_RS = np.where(low_RS == 0, high_RS * 1e-9, np.sqrt(np.maximum(low_RS, 1e-300) * high_RS))
        fits_RS = kl(awr(mu_RSA, q_RSA, middle_RS), mu_RSA) <= budget_RS
        low_RS, high_RS = np.where(fits_RS, middle_RS, low_RS), np.where(fits_RS, high_RS, middle_RS)
    return awr(mu_RSA, q_RSA, low_RS)


def kl(pi_RSA: Floats, mu_RSA: Floats) -> Floats:
    """KL(pi || mu) in nats, [R, S]; inf if pi > 0 = mu for an action."""
    with np.errstate(divide="ignore", invalid="ignore"):
        term_RSA = np.where(pi_RSA > 0, pi_RSA * (np.log(pi_RSA) - np.log(mu_RSA)), 0.0)
    return np.asarray(term_RSA.sum(axis=-1))


def advantage_filtered(mu_RSA: Floats, advantage_RSA: Floats) -> Floats:
    """mu restricted to actions with A >= 0, normalized, [R, S, A]: a constraint to the better data.

    Source: the mechanism of A2PR (Liu et al. 2024); also binary-filtered cloning, CRR's indicator.
    """
    # The best seen action has A >= 0 for A = Q - E_mu Q, up to rounding.
    best_RSA = np.where(mu_RSA > 0, advantage_RSA, -np.inf)
    best_RSA = best_RSA >= np.minimum(best_RSA.max(axis=-1, keepdims=True), 0.0)
    return clone(np.where(best_RSA, mu_RSA, 0.0))


def best_of_n(mu_RSA: Floats, q_RSA: Floats, n: ArrayLike) -> Floats:
    """Distribution of the argmax of Q among n draws from mu, [R, S, A]; ties in order of the action.

    P(a) = F(a)^n - F(a-)^n with F the cumulative mass by rising Q. n: a number or [R]. Source: Digi-Q's
    extraction (Bai et al. 2025); Beirami et al. (2024) for the distribution; KL <= log n - (n - 1)/n.
    """
    n_R11 = np.asarray(n, dtype=np.float64).reshape(-1, 1, 1)
    if not (n_R11 >= 1).all():
        raise UserError(f"n is {float(n_R11.min()):g}, expected at least 1 draw.")
    # Of equal Q the first action counts as the best, so it comes last in rising order.
    order_RSA = np.argsort(-q_RSA, axis=-1, kind="stable")[..., ::-1]
    mass_RSA = np.take_along_axis(mu_RSA, order_RSA, -1)
    above_RSA = np.minimum(np.cumsum(mass_RSA, axis=-1), 1.0) ** n_R11
    law_RSA = np.diff(above_RSA, axis=-1, prepend=0.0)
    found_RSA = np.empty_like(law_RSA)
    np.put_along_axis(found_RSA, order_RSA, law_RSA, -1)
    return clone(np.where(mu_RSA > 0, found_RSA, 0.0))


def advantage(q_RSA: Floats, mu_RSA: Floats) -> Floats:
    """A = Q - E_mu Q, [R, S, A]."""
    return np.asarray(q_RSA - (mu_RSA * q_RSA).sum(axis=-1, keepdims=True))


def _per_state(given: ArrayLike, table_RSA: Floats) -> Floats:
    """Broadcast a number, [R] or [R, S] to [R, S, 1]."""
    array = np.asarray(given, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    return np.broadcast_to(array, table_RSA.shape[:2])[..., None]


def _below_one(discount: float) -> None:
    if not 0.0 <= discount < 1.0:
        raise UserError(f"discount is {discount:g}, expected 0 <= discount < 1: there is no horizon here.")
