"""Preference sets with known truth: votes and soft labels, log-linear policies, reward models, stale and
fresh pairs.

A set is two tables: weight_RXAB, how often the ordered pair (a, b) was shown in context x, and label_RXAB,
the share of it in which a was preferred. Sums over samples are exact for these tables, so a run has no
minibatch noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from envs.arrays import Floats
from testbed.errors import UserError

Draw = Callable[[int, list[Floats]], "tuple[Floats, Floats] | None"]
"""From the step and the log-policies [R, X, A] so far, the newest last: a new (weight, label), or None to
keep on.
"""


def bradley_terry(reward_xA: Floats) -> Floats:
    """P(a preferred to b) = sigmoid(r(a) - r(b)), [x, A, A]."""
    return np.asarray(special.expit(reward_xA[..., :, None] - reward_xA[..., None, :]))


def pair_law(context_X: Floats, first_RXA: Floats, second_RXA: Floats) -> Floats:
    """Law of (x, a, b) with a and b drawn independently by two policies, [R, X, A, A]; a = b included.

    A policy apart from the reference makes a support gap, the learner's own makes pairs on policy, a
    checkpoint's makes lagged losers.
    """
    return np.asarray(context_X[:, None, None] * first_RXA[..., :, None] * second_RXA[..., None, :])


def draw_pairs(law_RXAB: Floats, pairs: int, rng: np.random.Generator) -> Floats:
    """How often each (x, a, b) comes up in `pairs` draws, [R, X, A, A]."""
    flat_RK = law_RXAB.reshape(len(law_RXAB), -1)
    drawn_RK = rng.multinomial(pairs, flat_RK / flat_RK.sum(-1, keepdims=True))
    return drawn_RK.reshape(law_RXAB.shape).astype(np.float64)


def vote_labels(
    weight_RXAB: Floats,
    chance_XAB: Floats,
    votes: int,
    rule: str,
    rng: np.random.Generator,
    prior: float = 1.0,
) -> Floats:
    """Mean label of the shown pairs, each judged by `votes` independent votes, [R, X, A, A]; 1/2 where none
    is.

    rule "hard": the majority (a tie counts half); "share": v/votes; "mmse": (v + prior)/(votes + 2 prior),
    the posterior mean of the preference under Beta(prior, prior), which minimizes the mean squared error
    (VPO, 2024, equation 8).
    """
    voted_V = np.arange(votes + 1)
    labels = {
        "hard": (voted_V > votes / 2) + 0.5 * (2 * voted_V == votes),
        "share": voted_V / max(votes, 1),
        "mmse": (voted_V + prior) / (votes + 2 * prior),
    }
    if rule not in labels or votes < 1 or prior <= 0:
        raise UserError(f"rule '{rule}', votes {votes}, prior {prior:g}: expected {set(labels)}, >= 1, > 0.")
    chance_XABV = np.asarray(stats.binom.pmf(voted_V, votes, chance_XAB[..., None]))
    chance_XABV = chance_XABV / chance_XABV.sum(-1, keepdims=True)
    law_RXABV = np.broadcast_to(chance_XABV, (*weight_RXAB.shape, votes + 1))
    drawn_RXABV = rng.multinomial(weight_RXAB.astype(np.int64), law_RXABV)
    return np.where(weight_RXAB > 0, drawn_RXABV @ labels[rule] / np.maximum(weight_RXAB, 1.0), 0.5)


def log_policy(theta_RK: Floats, feature_XAK: Floats, ref_XA: Floats) -> Floats:
    """log pi, pi = ref exp(theta . phi) / Z, [R, X, A]; an identity of features is a table."""
    with np.errstate(divide="ignore"):
        logit_RXA = np.log(ref_XA) + np.einsum("rk,xak->rxa", theta_RK, feature_XAK)
    return np.asarray(logit_RXA - special.logsumexp(logit_RXA, axis=-1, keepdims=True))


def margin(theta_RK: Floats, feature_XAK: Floats, beta: ArrayLike) -> Floats:
    """Implicit reward margin beta (log pi/ref(a) - log pi/ref(b)) = beta theta . (phi(a) - phi(b)), [R, X, A,
    A].
    """
    score_RXA = np.einsum("rk,xak->rxa", theta_RK, feature_XAK)
    beta_R111 = np.asarray(beta, np.float64).reshape(-1, 1, 1, 1)
    return np.asarray(beta_R111 * (score_RXA[..., :, None] - score_RXA[..., None, :]))


def pair_gradient(
    theta_RK: Floats,
    feature_XAK: Floats,
    weight_RXAB: Floats,
    label_RXAB: Floats,
    *,
    beta: ArrayLike,
    kind: str,
) -> tuple[Floats, Floats]:
    """Loss [R] and gradient [R, K], the mean over shown pairs.

    "dpo": -y log sigmoid(m) - (1 - y) log sigmoid(-m) with the margin m (Rafailov et al. 2023, equation 7,
    with soft labels y as VDPO has them). "ipo": (m / beta - (2 y - 1) / (2 beta))^2 (Azar et al. 2024,
    equation 17; VIPO). beta: a number or [R].
    """
    beta_R111 = np.broadcast_to(np.asarray(beta, np.float64).reshape(-1, 1, 1, 1), (len(theta_RK), 1, 1, 1))
    m_RXAB = margin(theta_RK, feature_XAK, beta_R111)
    share_RXAB = weight_RXAB / np.maximum(weight_RXAB.sum((-1, -2, -3), keepdims=True), 1e-300)
    if kind == "dpo":
        loss_RXAB = -label_RXAB * special.log_expit(m_RXAB) - (1 - label_RXAB) * special.log_expit(-m_RXAB)
        slope_RXAB = beta_R111 * (special.expit(m_RXAB) - label_RXAB)
    elif kind == "ipo":
        away_RXAB = m_RXAB / beta_R111 - (2 * label_RXAB - 1) / (2 * beta_R111)
        loss_RXAB, slope_RXAB = away_RXAB**2, 2 * away_RXAB
    else:
        raise UserError(f"Unknown kind '{kind}'; known: dpo, ipo.")
    pull_RXAB = share_RXAB * slope_RXAB
    by_action_RXA = pull_RXAB.sum(-1) - pull_RXAB.sum(-2)
    return (share_RXAB * loss_RXAB).sum((-1, -2, -3)), np.einsum("rxa,xak->rk", by_action_RXA, feature_XAK)


def train_on_pairs(
    feature_XAK: Floats,
    ref_XA: Floats,
    draw: Draw,
    *,
    cells: int,
    steps: int,
    rate: ArrayLike,
    beta: ArrayLike,
    kind: str = "dpo",
) -> tuple[Floats, list[Floats]]:
    """theta [R, K] after `steps` gradient steps from the reference, and the log-policy before each and at the
    end.

    draw(step, log-policies so far) hands over a new set or None: frozen pairs, a refresh interval, losers
    from a checkpoint `lag` steps back, pairs selected by margin and bootstrapped sets differ in this function
    alone.
    """
    theta_RK = np.zeros((cells, feature_XAK.shape[-1]))
    rate_R1 = np.broadcast_to(np.asarray(rate, np.float64).reshape(-1, 1), (cells, 1))
    history = [log_policy(theta_RK, feature_XAK, ref_XA)]
    current = None
    for step in range(steps):
        current = draw(step, history) or current
        if current is None:
            raise UserError("draw returned None at step 0; it has to hand over a first set of pairs.")
        _, slope_RK = pair_gradient(theta_RK, feature_XAK, *current, beta=beta, kind=kind)
        theta_RK = theta_RK - rate_R1 * slope_RK
        history.append(log_policy(theta_RK, feature_XAK, ref_XA))
    return theta_RK, history


def select_by_margin(weight_RXAB: Floats, margin_RXAB: Floats, share: float) -> Floats:
    """The weights of the pairs with the largest margins that make up `share` of all, the last one in part,
    [R, X, A, A].

    Source: SeRA (Ko et al. 2024), selection by the implicit reward margin.
    """
    if not 0.0 < share <= 1.0:
        raise UserError(f"share is {share:g}, expected 0 < share <= 1.")
    flat_RK, key_RK = (x.reshape(len(weight_RXAB), -1) for x in (weight_RXAB, margin_RXAB))
    order_RK = np.argsort(-key_RK, axis=-1, kind="stable")
    sorted_RK = np.take_along_axis(flat_RK, order_RK, -1)
    before_RK = np.cumsum(sorted_RK, axis=-1) - sorted_RK
    kept_RK = np.clip(share * flat_RK.sum(-1, keepdims=True) - before_RK, 0.0, sorted_RK)
    found_RK = np.empty_like(flat_RK)
    np.put_along_axis(found_RK, order_RK, kept_RK, -1)
    return found_RK.reshape(weight_RXAB.shape)


def logistic(
    feature_RPF: Floats, label_RP: Floats, weight_RP: Floats, ridge: float, rounds: int = 50
) -> Floats:
    """theta [R, F] that minimizes sum weight cross-entropy(label, sigmoid(theta . phi)) + ridge |theta|^2 /
    2, by Newton.

    Steps are halved while they do not lower the loss. Raises UserError for ridge <= 0, without which
    separable labels have no minimum.
    """
    if ridge <= 0:
        raise UserError(f"ridge is {ridge:g}, expected more than 0.")
    cells, _, width = feature_RPF.shape

    def loss(theta_RF: Floats) -> Floats:
        score_RP = (feature_RPF @ theta_RF[..., None])[..., 0]
        each_RP = np.logaddexp(0.0, score_RP) - label_RP * score_RP
        return np.asarray((weight_RP * each_RP).sum(-1) + ridge * (theta_RF**2).sum(-1) / 2)

    theta_RF = np.zeros((cells, width))
    for _ in range(rounds):
        chance_RP = special.expit((feature_RPF @ theta_RF[..., None])[..., 0])
        slope_RF = np.einsum("rp,rpf->rf", weight_RP * (chance_RP - label_RP), feature_RPF) + ridge * theta_RF
        curve_RPF = (weight_RP * chance_RP * (1 - chance_RP))[..., None] * feature_RPF
        hessian_RFF = np.swapaxes(curve_RPF, -1, -2) @ feature_RPF + ridge * np.eye(width)
        step_RF = np.linalg.solve(hessian_RFF, slope_RF[..., None])[..., 0]
        size_R1, before_R = np.ones((cells, 1)), loss(theta_RF)
        for _ in range(30):
            worse_R = loss(theta_RF - size_R1 * step_RF) > before_R + 1e-12
            if not worse_R.any():
                break
            size_R1 = np.where(worse_R[:, None], size_R1 / 2, size_R1)
        theta_RF = theta_RF - size_R1 * step_RF
        if np.abs(step_RF).max() < 1e-10:
            break
    return theta_RF


def fit_reward(weight_RXAB: Floats, label_RXAB: Floats, feature_XAK: Floats, ridge: float) -> Floats:
    """Reward model theta . phi from the same pairs by Bradley-Terry likelihood, [R, X, A]."""
    diff_XABK = feature_XAK[:, :, None] - feature_XAK[:, None]
    cells, width = len(weight_RXAB), feature_XAK.shape[-1]
    used_P = weight_RXAB.reshape(cells, -1).any(0)
    diff_RPF = np.broadcast_to(diff_XABK.reshape(-1, width)[used_P], (cells, int(used_P.sum()), width))
    label_RP, weight_RP = (x.reshape(cells, -1)[:, used_P] for x in (label_RXAB, weight_RXAB))
    return np.einsum("rk,xak->rxa", logistic(diff_RPF, label_RP, weight_RP, ridge), feature_XAK)


def tilt(ref_xA: Floats, reward_xA: Floats, beta: float) -> Floats:
    """ref exp(r / beta) / Z, [x, A]: where RL with a KL penalty of beta ends, given the reward (model)."""
    with np.errstate(divide="ignore"):
        logit_xA = np.log(ref_xA) + reward_xA / beta
    return np.asarray(special.softmax(logit_xA, axis=-1))


def regret(context_X: Floats, reward_XA: Floats, pi_RXA: Floats) -> Floats:
    """E_x [max_a r - E_pi r], [R]."""
    return np.asarray(((reward_XA.max(-1) - (pi_RXA * reward_XA).sum(-1)) * context_X).sum(-1))
