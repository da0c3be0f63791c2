"""Constrained MDPs: exact optimum, primal-dual learning with a replayed cost critic, support guardians.

Costs are discounted like rewards. A policy is feasible if its expected discounted cost is within the budget.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs import infinite_horizon
from envs.arrays import Bools, Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts, collect, exact_model, ratio
from testbed.errors import UserError
from testbed.offline.improvement import softmax
from testbed.offline.tabular_offline import ahead, policy_q


def constrained_optimum(
    moves_SAS: Floats,
    reward_SA: Floats,
    cost_SA: Floats,
    start_S: Floats,
    discount: float,
    budget: float,
    allowed_SA: Bools | None = None,
) -> tuple[Floats, float]:
    """Best policy [S, A] with discounted cost <= budget, and its value, by a linear program of occupancies.

    max d.r subject to sum_a d(s', a) - discount sum d(s, a) P(s'|s, a) = start(s'), d.c <= budget, d >= 0
    (Altman 1999, section 3). States without mass get the first allowed action. Raises UserError if no policy
    is feasible.
    """
    from scipy.optimize import linprog

    states, actions = reward_SA.shape
    allowed_SA = np.ones((states, actions), bool) if allowed_SA is None else allowed_SA
    flow_SX = np.repeat(np.eye(states), actions, axis=1) - discount * moves_SAS.reshape(-1, states).T
    bounds = [(0.0, None if ok else 0.0) for ok in allowed_SA.ravel()]
    found = linprog(
        -reward_SA.ravel(), cost_SA.reshape(1, -1), [budget], flow_SX, start_S, bounds=bounds, method="highs"
    )
    if found.status != 0 or found.x is None or found.fun is None:
        raise UserError(f"No policy costs at most {budget:g}; raise the budget, or allow more actions.")
    mass_SA = np.maximum(found.x.reshape(states, actions), 0.0)
    total_S1 = mass_SA.sum(-1, keepdims=True)
    fallback_SA = np.eye(actions)[allowed_SA.argmax(-1)]
    pi_SA = np.where(total_S1 > 0, ratio(mass_SA, total_S1), fallback_SA)
    return pi_SA, float(-found.fun)


def resampled(counts: Counts, members: int, rng: np.random.Generator) -> Counts:
    """Bayesian-bootstrap replicates of the counts, members along the leading axis: [K R, ...], member first.

    Every (s, a) gets Dirichlet weights over its successors (Rubin 1981, one gamma draw per cell of the
    counts, rescaled to the number of visits), so members agree where there is much data. This is CAL's
    ensemble in a table (Wu et al. 2024).
    """
    given = [
        np.broadcast_to(x, (members, *x.shape)).reshape(-1, *x.shape[1:])
        for x in (counts.visit_RSA, counts.going_RSAS, counts.reward_RSA)
    ]
    ended_XSA = np.maximum(given[0] - given[1].sum(-1), 0.0)
    going_XSAS, ended_XSA = rng.standard_gamma(given[1]), rng.standard_gamma(ended_XSA)
    drawn_XSA = going_XSAS.sum(-1) + ended_XSA
    return Counts(given[0], going_XSAS * ratio(given[0], drawn_XSA)[..., None], given[2])


def augmented_multiplier(multiplier_R: Floats, convexity_R: Floats, excess_R: Floats) -> Floats:
    """max(0, lambda + c (cost - budget)), [R]: multiplier of the augmented Lagrangian; plain for c = 0.

    The quadratic term makes the Lagrangian convex near the optimum and damps the oscillation of primal and
    dual. Source: CAL (Wu et al. 2024), local policy convexification; Bertsekas (1982), chapter 2.
    """
    return np.maximum(0.0, multiplier_R + convexity_R * excess_R)


@dataclass(frozen=True)
class PrimalDual:
    """Per iteration, [K, R]: the policy's exact return and cost, the critic's cost, the multiplier."""

    value_KR: Floats
    cost_KR: Floats
    estimated_cost_KR: Floats
    multiplier_KR: Floats


def primal_dual(
    world: FiniteMDP,
    cost_SA: Floats,
    *,
    budget: float,
    conservatism_R: Floats,
    convexity_R: Floats,
    key_R: NDArray[np.uint64],
    iterations: int = 100,
    episodes: int = 4,
    keep: float = 1.0,
    members: int = 4,
    step_size: float = 1.0,
    dual_rate: float = 0.1,
    seed: int = 0,
) -> PrimalDual:
    """Off-policy primal-dual: act, add to the replay, refit both critics on it, step policy and multiplier.

    logits += step_size (Q_r - lambda~ Q_c^up), lambda += dual_rate (estimate - budget). Both critics are
    fixed points of the replayed counts (old data decay by `keep`). Q_c^up = mean + conservatism std of an
    ensemble (CAL) that treats missing data optimistically: pairs without data cost nothing. lambda~ is
    `augmented_multiplier`. A sampled step costs cost_SA, without noise.
    """
    moves_SAS, _ = exact_model(world)
    cells, discount = len(key_R), world.discount
    rng = np.random.default_rng(seed)
    logits_RSA = np.zeros((cells, world.states, world.actions))
    multiplier_R, memory, rows = np.zeros(cells), None, []
    charge_SA = np.where(world.tables.terminal_S[:, None], 0.0, cost_SA)
    for iteration in range(iterations):
        pi_RSA = softmax(logits_RSA)
        fresh = collect(world, pi_RSA[:, None], episodes, key_R, step=iteration)
        fresh_counts = fresh.counts(world.states, world.actions)
        memory = fresh_counts if memory is None else memory.scaled(keep) + fresh_counts
        q_RSA = policy_q(memory.moves_RSAS, memory.reward_RSA, pi_RSA, discount)
        drawn = resampled(memory, members, rng)
        paid_XSA = np.where(drawn.seen_RSA, charge_SA, 0.0)
        cost_XSA = policy_q(drawn.moves_RSAS, paid_XSA, np.tile(pi_RSA, (members, 1, 1)), discount)
        cost_KRSA = cost_XSA.reshape(members, *q_RSA.shape)
        upper_RSA = cost_KRSA.mean(0) + conservatism_R[:, None, None] * cost_KRSA.std(0)
        estimate_R = ((pi_RSA * upper_RSA).sum(-1) * world.start_S).sum(-1)
        pull_R = augmented_multiplier(multiplier_R, convexity_R, estimate_R - budget)
        exact_RSA = policy_q(
            np.broadcast_to(moves_SAS, (cells, *moves_SAS.shape)),
            np.broadcast_to(charge_SA, q_RSA.shape),
            pi_RSA,
            discount,
        )
        true_R = ((pi_RSA * exact_RSA).sum(-1) * world.start_S).sum(-1)
        rows.append((infinite_horizon.value(world, pi_RSA), true_R, estimate_R, multiplier_R))
        logits_RSA = logits_RSA + step_size * (q_RSA - pull_R[:, None, None] * upper_RSA)
        # A floor below the largest logit, or an action that became rare could never come back.
        logits_RSA = np.clip(logits_RSA - logits_RSA.max(-1, keepdims=True), -30.0, 0.0)
        multiplier_R = np.maximum(0.0, multiplier_R + dual_rate * (estimate_R - budget))
    return PrimalDual(*(np.stack(column) for column in zip(*rows, strict=True)))


def action_support(visit_RSA: Floats) -> Bools:
    """Pairs seen at least once, [R, S, A]: a guardian of actions only.

    Source: BCQ's mask, Fujimoto, Meger & Precup (2019), with counts in place of a model.
    """
    return visit_RSA >= 1


def trajectory_support(allowed_RSA: Bools, moves_RSAS: Floats, unsafe_S: Bools) -> Bools:
    """The largest part of `allowed` that keeps the model inside it, [R, S, A].

    Drop actions that may lead to a state that is unsafe or has no action left, until none do: the kernel of a
    state-trajectory constraint (OGSRL's guardian). In contrast, `action_support` lets a known action lead to
    unknown or unsafe states. Ends of episodes are safe. The fixed point is designed here.
    """
    kept_RSA = allowed_RSA & ~unsafe_S[:, None]
    while True:
        dead_RS = unsafe_S | ~kept_RSA.any(-1)
        risk_RSA = ahead(moves_RSAS, dead_RS.astype(np.float64))
        smaller_RSA = kept_RSA & (risk_RSA <= 0)
        if (smaller_RSA == kept_RSA).all():
            return kept_RSA
        kept_RSA = smaller_RSA
