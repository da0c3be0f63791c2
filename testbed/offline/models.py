"""Models fitted to logged counts before a policy: transition models, group-wise Q, choice rewards."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from envs.arrays import Floats
from envs.logged_data import Counts, ratio
from testbed.errors import UserError
from testbed.offline.control import Adam
from testbed.offline.tabular_offline import CLOSE, MOST_ROUNDS, ahead, fitted_q


def low_rank_model(left_RSAF: Floats, right_RSF: Floats) -> Floats:
    """P(s'|s, a) = softmax_s'(left(s, a) . right(s')), [R, S, A, S]: smaller than a table. Designed here."""
    return np.asarray(special.softmax(np.einsum("rsak,rtk->rsat", left_RSAF, right_RSF), axis=-1))


def model_loss_gradient(
    moves_RSAS: Floats,
    counts: Counts,
    pi_RSA: Floats,
    value_RS: Floats,
    discount: float,
    consistency: ArrayLike,
) -> tuple[Floats, Floats]:
    """Loss [R] and its gradient in the model's logits, [R, S, A, S].

    L = -sum n(s, a, s') log P / n + c sum_s n(s)/n (V_model(s) - V_data(s))^2, where V_model = (I - discount
    P_pi)^-1 r_pi with the logged mean rewards. By the adjoint: dL/dP(s, a, s') = discount y(s) pi(a|s)
    V_model(s'), y = (I - discount P_pi)^-T dL/dV. c: a number or [R]. Source: VIPO's value-consistency term
    (Chen et al. 2025), here on a table.
    """
    weight_R = np.broadcast_to(np.asarray(consistency, np.float64), (len(moves_RSAS),))
    total_R = counts.visit_RSA.sum((-1, -2))
    share_RSAS = counts.going_RSAS / total_R[:, None, None, None]
    state_RS = counts.visit_RSA.sum(-1) / total_R[:, None]
    step_RSS = np.einsum("rsa,rsat->rst", pi_RSA, moves_RSAS)
    resolvent_RSS = np.eye(step_RSS.shape[-1]) - discount * step_RSS
    reward_RS = (pi_RSA * counts.reward_RSA).sum(-1)
    model_RS = np.linalg.solve(resolvent_RSS, reward_RS[..., None])[..., 0]
    error_RS = model_RS - value_RS
    loss_R = -special.xlogy(share_RSAS, moves_RSAS).sum((-1, -2, -3))
    loss_R += weight_R * (state_RS * error_RS**2).sum(-1)
    pull_RS = 2 * weight_R[:, None] * state_RS * error_RS
    adjoint_RS = np.linalg.solve(np.swapaxes(resolvent_RSS, -1, -2), pull_RS[..., None])[..., 0]
    by_moves_RSAS = discount * (adjoint_RS[..., None] * pi_RSA)[..., None] * model_RS[:, None, None]
    centered_RSAS = by_moves_RSAS - (moves_RSAS * by_moves_RSAS).sum(-1, keepdims=True)
    likelihood_RSAS = share_RSAS.sum(-1, keepdims=True) * moves_RSAS - share_RSAS
    return np.asarray(loss_R), likelihood_RSAS + moves_RSAS * centered_RSAS


def value_consistent_model(
    counts: Counts,
    pi_RSA: Floats,
    value_RS: Floats,
    discount: float,
    *,
    rank: int,
    consistency: ArrayLike,
    rng: np.random.Generator,
    steps: int = 500,
    learning_rate: float = 0.05,
) -> Floats:
    """P, [R, S, A, S]: a low-rank model fitted by Adam on `model_loss_gradient`; with consistency 0 by
    likelihood.

    value_RS: the value of pi learned from the data without the model (a fixed point of the counts, or mean
    returns). With a full table it equals the likeliest model's value and the term has no effect; it is meant
    for rank < S. All cells start at the same draw. Raises UserError for data with terminal states. Source:
    VIPO (Chen et al. 2025).
    """
    if (counts.going_RSAS.sum(-1) < counts.visit_RSA * (1 - 1e-9)).any():  # expected counts are rounded
        raise UserError("Some steps ended in a terminal state; make these absorbing with reward 0.")
    cells, states, actions = counts.visit_RSA.shape
    shapes = (1, states, actions, rank), (1, states, rank)
    both = [np.repeat(rng.normal(size=shape) * 0.3, cells, axis=0) for shape in shapes]
    optimizer = Adam.of(learning_rate, both)
    for _ in range(steps):
        moves_RSAS = low_rank_model(*both)
        _, slope_RSAS = model_loss_gradient(moves_RSAS, counts, pi_RSA, value_RS, discount, consistency)
        by_left_RSAF = np.einsum("rsat,rtk->rsak", slope_RSAS, both[1])
        by_right_RSF = np.einsum("rsat,rsak->rtk", slope_RSAS, both[0])
        both = [x - move for x, move in zip(both, optimizer([by_left_RSAF, by_right_RSF]), strict=True)]
    return low_rank_model(*both)


def nested_fitted_q(
    background: Counts, foreground: Counts, discount: float, ridge: ArrayLike
) -> tuple[Floats, Floats]:
    """Q_0 = f and Q_1 = f + h, [R, S, A] each: FQI with regressions that share f and penalize h by a ridge.

    Each round minimizes n_0 (y_0 - f)^2 + n_1 (y_1 - f - h)^2 + ridge h^2 with y_g = r_g + discount P_g max
    Q_g; profiling h out leaves the foreground weight n_1 ridge / (n_1 + ridge) on f. ridge: a number or [R];
    0 is separate FQI, inf pooled FQI. Source: NFQI (Mandyam et al. 2021), with a ridge in place of its
    network.
    """
    ridge_R11 = np.asarray(ridge, np.float64).reshape(-1, 1, 1)
    ridge_R11 = np.broadcast_to(ridge_R11, (len(background.visit_RSA), 1, 1))
    n_0, n_1 = background.visit_RSA, foreground.visit_RSA
    with np.errstate(invalid="ignore"):
        kept_RSA = np.where(np.isinf(ridge_R11), 0.0, ratio(n_1, n_1 + ridge_R11))
        weight_RSA = np.where(np.isinf(ridge_R11), n_1, ridge_R11 * kept_RSA)
    # Both are averages of y_0 and y_1: plain FQI of a model that may change groups at every step.
    first_RSA = ratio(weight_RSA, weight_RSA + n_0)
    moves, rewards = [], []
    for other_RSA in (first_RSA, first_RSA + kept_RSA * (1 - first_RSA)):
        share_RSA1 = other_RSA[..., None]
        both = (1 - share_RSA1) * background.moves_RSAS, share_RSA1 * foreground.moves_RSAS
        moves.append(np.concatenate(both, axis=-1))
        rewards.append((1 - other_RSA) * background.reward_RSA + other_RSA * foreground.reward_RSA)
    q_RXA = fitted_q(np.concatenate(moves, axis=1), np.concatenate(rewards, axis=1), discount)
    return q_RXA[:, : n_0.shape[1]], q_RXA[:, n_0.shape[1] :]


def discrete_choice(moves_RSAS: Floats, reward_RSA: Floats, discount: float) -> tuple[Floats, Floats]:
    """pi = softmax Q and V = logsumexp Q, Q = r + discount P V, [R, S, A] and [R, S]: choice with logit
    shocks.

    V omits the shocks' mean, Euler's constant, which discounts to the same number everywhere. Source: Rust
    (1987).
    """
    value_RS = np.zeros(reward_RSA.shape[:2])
    for _ in range(MOST_ROUNDS):
        q_RSA = reward_RSA + discount * ahead(moves_RSAS, value_RS)
        new_RS = special.logsumexp(q_RSA, axis=-1)
        change, value_RS = float(np.abs(new_RS - value_RS).max()), new_RS
        if change <= CLOSE * (1 + float(np.abs(value_RS).max())):
            return np.exp(q_RSA - new_RS[..., None]), new_RS
    raise UserError(f"soft value iteration did not end in {MOST_ROUNDS} rounds; lower the discount.")


def recovered_reward(
    pi_RSA: Floats, moves_RSAS: Floats, discount: float, *, anchor: int = 0, anchor_reward: float = 0.0
) -> Floats:
    """Return the reward that makes pi = softmax Q, given the reward of one action, [R, S, A].

    V = (I - discount P_anchor)^-1 (anchor_reward - log pi(anchor|s)), r = log pi + V - discount P V. Source:
    Hotz & Miller (1993), the inversion that DCPPO uses (Li, Yang & Wang 2023). Raises UserError if pi has a
    zero: estimate policies with prior > 0 in `clone`.
    """
    if not (pi_RSA > 0).all():
        raise UserError("pi has an action without mass, so no finite reward; clone with prior > 0.")
    log_RSA = np.log(pi_RSA)
    system_RSS = np.eye(pi_RSA.shape[1]) - discount * moves_RSAS[:, :, anchor]
    value_RS1 = np.linalg.solve(system_RSS, (anchor_reward - log_RSA[..., anchor])[..., None])
    return log_RSA + value_RS1 - discount * (moves_RSAS @ value_RS1[:, None])[..., 0]


def pessimistic_q(
    counts: Counts, discount: float, scale: ArrayLike, reward_RSA: Floats | None = None
) -> Floats:
    """Q = r - scale / sqrt(n(s, a)) + discount P max over seen actions, [R, S, A]; -inf for unseen ones.

    scale 0 is the greedy policy within the data. scale: a number or [R]; reward_RSA None: the logged means.
    Source: Jin, Yang & Wang (2021), algorithm 1, for a table with infinite horizon.
    """
    scale_R11 = np.asarray(scale, np.float64).reshape(-1, 1, 1)
    given_RSA = counts.reward_RSA if reward_RSA is None else reward_RSA
    lower_RSA = given_RSA - scale_R11 / np.sqrt(np.maximum(counts.visit_RSA, 1.0))
    q_RSA = fitted_q(counts.moves_RSAS, lower_RSA, discount, counts.seen_RSA)
    return np.where(counts.seen_RSA, q_RSA, -np.inf)
