"""Preference sets with known truth: votes, soft labels, log-linear policies, reward models, stale and fresh
pairs.

A set is two tables: weight_RSAA, the frequency of the ordered pair (a, b) in context x, and label_RSAA, the
share of it in which a was preferred. Sums over samples are exact for these tables, so runs have no minibatch
noise.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from envs.arrays import Floats
from testbed.errors import UserError

Draw = Callable[[int, list[Floats]], "tuple[Floats, Floats] | None"]
"""(step, all log-policies [R, S, A] so far, newest last) -> a new (weight, label), or None for no change."""


def bradley_terry(reward_xA: Floats) -> Floats:
    """P(a preferred to b) = sigmoid(r(a) - r(b)), [x, A, A]. Source: Bradley & Terry (1952)."""
    return np.asarray(special.expit(reward_xA[..., :, None] - reward_xA[..., None, :]))


def pair_dist(context_S: Floats, first_RSA: Floats, second_RSA: Floats) -> Floats:
    """Distribution of (x, a, b), a and b drawn independently by two policies, [R, S, A, A]; a = b included.

    A policy that differs from the reference makes a support gap, the learner's policy makes pairs on policy,
    a checkpoint's makes lagged losers. Designed here.
    """
    return np.asarray(context_S[:, None, None] * first_RSA[..., :, None] * second_RSA[..., None, :])


def draw_pairs(law_RSAA: Floats, pairs: int, rng: np.random.Generator) -> Floats:
    """Counts of each (x, a, b) in `pairs` draws, [R, S, A, A]: a multinomial, designed here."""
    flat_RX = law_RSAA.reshape(len(law_RSAA), -1)
    drawn_RX = rng.multinomial(pairs, flat_RX / flat_RX.sum(-1, keepdims=True))
    return drawn_RX.reshape(law_RSAA.shape).astype(np.float64)


def vote_labels(
    weight_RSAA: Floats,
    chance_SAA: Floats,
    votes: int,
    rule: str,
    rng: np.random.Generator,
    prior: float = 1.0,
) -> Floats:
    """Mean label of the shown pairs, each judged by `votes` independent votes, [R, S, A, A]; 1/2 without
    pairs.

    rule "hard": the majority (a tie counts half); "share": v/votes; "mmse": (v + prior)/(votes + 2 prior),
    the posterior mean of the preference under Beta(prior, prior), which minimizes the mean squared error
    (VPO, 2024, equation 8).
    """
    voted_K = np.arange(votes + 1)
    labels = {
        "hard": (voted_K > votes / 2) + 0.5 * (2 * voted_K == votes),
        "share": voted_K / max(votes, 1),
        "mmse": (voted_K + prior) / (votes + 2 * prior),
    }
    if rule not in labels or votes < 1 or prior <= 0:
        raise UserError(
            f"rule '{rule}', votes {votes}, prior {prior:g}: expected {', '.join(labels)}; >= 1; > 0."
        )
    if not (weight_RSAA == np.rint(weight_RSAA)).all():
        raise UserError("weight_RSAA holds shares, which have no votes; take counts, as of draw_pairs.")
    chance_SAAK = np.asarray(stats.binom.pmf(voted_K, votes, chance_SAA[..., None]))
    # Rounding may lift the sum above 1, which multinomial refuses.
    chance_SAAK = chance_SAAK / chance_SAAK.sum(-1, keepdims=True)
    law_RSAAK = np.broadcast_to(chance_SAAK, (*weight_RSAA.shape, votes + 1))
    drawn_RSAAK = rng.multinomial(weight_RSAA.astype(np.int64), law_RSAAK)
    return np.where(weight_RSAA > 0, drawn_RSAAK @ labels[rule] / np.maximum(weight_RSAA, 1.0), 0.5)


def log_policy(theta_RF: Floats, feature_SAF: Floats, ref_SA: Floats) -> Floats:
    """log pi, pi = ref exp(theta . phi) / Z, [R, S, A]; identity features give a table.

    Source: Rafailov et al. (2023), equation 4, with a linear reward.
    """
    with np.errstate(divide="ignore"):
        logit_RSA = np.log(ref_SA) + np.einsum("rk,xak->rxa", theta_RF, feature_SAF)
    return np.asarray(logit_RSA - special.logsumexp(logit_RSA, axis=-1, keepdims=True))


def margin(theta_RF: Floats, feature_SAF: Floats, beta: ArrayLike) -> Floats:
    """Implicit reward margin beta (log pi/ref(a) - log pi/ref(b)) = beta theta . (phi(a) - phi(b)), [R, S, A,
    A].

    Source: Rafailov et al. (2023), equations 5 and 6.
    """
    score_RSA = np.einsum("rk,xak->rxa", theta_RF, feature_SAF)
    beta_R111 = np.asarray(beta, np.float64).reshape(-1, 1, 1, 1)
    return np.asarray(beta_R111 * (score_RSA[..., :, None] - score_RSA[..., None, :]))


def pair_gradient(
    theta_RF: Floats,
    feature_SAF: Floats,
    weight_RSAA: Floats,
    label_RSAA: Floats,
    *,
    beta: ArrayLike,
    kind: str,
) -> tuple[Floats, Floats]:
    """Loss [R] and gradient [R, F], the mean over shown pairs.

    "dpo": -y log sigmoid(m) - (1 - y) log sigmoid(-m) with the margin m (Rafailov et al. 2023, equation 7,
    with soft labels y as VDPO has them). "ipo": (m / beta - (2 y - 1) / (2 beta))^2 (Azar et al. 2024,
    equation 17; VIPO). beta: a number or [R].
    """
    beta_R111 = np.broadcast_to(np.asarray(beta, np.float64).reshape(-1, 1, 1, 1), (len(theta_RF), 1, 1, 1))
    m_RSAA = margin(theta_RF, feature_SAF, beta_R111)
    share_RSAA = weight_RSAA / np.maximum(weight_RSAA.sum((-1, -2, -3), keepdims=True), 1e-300)
    if kind == "dpo":
        loss_RSAA = -label_RSAA * special.log_expit(m_RSAA) - (1 - label_RSAA) * special.log_expit(-m_RSAA)
        slope_RSAA = beta_R111 * (special.expit(m_RSAA) - label_RSAA)
    elif kind == "ipo":
        away_RSAA = m_RSAA / beta_R111 - (2 * label_RSAA - 1) / (2 * beta_R111)
        loss_RSAA, slope_RSAA = away_RSAA**2, 2 * away_RSAA
    else:
        raise UserError(f"Unknown kind '{kind}'; known: dpo, ipo.")
    pull_RSAA = share_RSAA * slope_RSAA
    by_action_RSA = pull_RSAA.sum(-1) - pull_RSAA.sum(-2)
    return (share_RSAA * loss_RSAA).sum((-1, -2, -3)), np.einsum("rxa,xak->rk", by_action_RSA, feature_SAF)


def train_on_pairs(
    feature_SAF: Floats,
    ref_SA: Floats,
    draw: Draw | tuple[Floats, Floats],
    *,
    cells: int = 1,
    steps: int,
    rate: ArrayLike,
    beta: ArrayLike,
    kind: str = "dpo",
) -> tuple[Floats, list[Floats]]:
    """theta [R, F] after `steps` gradient steps from the reference, and the log-policy before each and at the
    end.

    draw: one set for all steps, or draw(step, log-policies so far) that returns a new set or None. Only
    `draw` distinguishes refresh intervals, losers from a checkpoint `lag` steps back, pairs selected by
    margin, and bootstrapped sets. Designed here.
    """
    theta_RF = np.zeros((cells, feature_SAF.shape[-1]))
    rate_R1 = np.broadcast_to(np.asarray(rate, np.float64).reshape(-1, 1), (cells, 1))
    history = [log_policy(theta_RF, feature_SAF, ref_SA)]
    current = draw if isinstance(draw, tuple) else None
    for step in range(steps):
        if not isinstance(draw, tuple):
            current = draw(step, history) or current
        if current is None:
            raise UserError("draw returned None at step 0; it has to hand over a first set of pairs.")
        _, slope_RF = pair_gradient(theta_RF, feature_SAF, *current, beta=beta, kind=kind)
        theta_RF = theta_RF - rate_R1 * slope_RF
        history.append(log_policy(theta_RF, feature_SAF, ref_SA))
    return theta_RF, history


def select_by_margin(weight_RSAA: Floats, margin_RSAA: Floats, share: float) -> Floats:
    """Weights of the pairs with the largest margins that make up `share` of all; the last in part, [R, S, A,
    A].

    Source: SeRA (Ko et al. 2024), selection by the implicit reward margin.
    """
    if not 0.0 < share <= 1.0:
        raise UserError(f"share is {share:g}, expected 0 < share <= 1.")
    flat_RX, key_RX = (x.reshape(len(weight_RSAA), -1) for x in (weight_RSAA, margin_RSAA))
    order_RX = np.argsort(-key_RX, axis=-1, kind="stable")
    sorted_RX = np.take_along_axis(flat_RX, order_RX, -1)
    before_RX = np.cumsum(sorted_RX, axis=-1) - sorted_RX
    kept_RX = np.clip(share * flat_RX.sum(-1, keepdims=True) - before_RX, 0.0, sorted_RX)
    found_RX = np.empty_like(flat_RX)
    np.put_along_axis(found_RX, order_RX, kept_RX, -1)
    return found_RX.reshape(weight_RSAA.shape)


def logistic(
    feature_RNF: Floats, label_RN: Floats, weight_RN: Floats, ridge: float, rounds: int = 50
) -> Floats:
    """theta [R, F] that minimizes sum weight cross-entropy(label, sigmoid(theta . phi)) + ridge |theta|^2 /
    2.

    Newton steps are halved until they lower the loss. Raises UserError for ridge <= 0, because separable
    labels then have no minimum. Source: Newton with halved steps, Boyd & Vandenberghe (2004), section 9.5.
    """
    if ridge <= 0:
        raise UserError(f"ridge is {ridge:g}, expected more than 0.")
    cells, _, width = feature_RNF.shape

    def loss(theta_RF: Floats) -> Floats:
        score_RN = (feature_RNF @ theta_RF[..., None])[..., 0]
        each_RN = np.logaddexp(0.0, score_RN) - label_RN * score_RN
        return np.asarray((weight_RN * each_RN).sum(-1) + ridge * (theta_RF**2).sum(-1) / 2)

    theta_RF = np.zeros((cells, width))
    for _ in range(rounds):
        chance_RN = special.expit((feature_RNF @ theta_RF[..., None])[..., 0])
        slope_RF = np.einsum("rp,rpf->rf", weight_RN * (chance_RN - label_RN), feature_RNF) + ridge * theta_RF
        curve_RNF = (weight_RN * chance_RN * (1 - chance_RN))[..., None] * feature_RNF
        hessian_RFF = np.swapaxes(curve_RNF, -1, -2) @ feature_RNF + ridge * np.eye(width)
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


def fit_reward(weight_RSAA: Floats, label_RSAA: Floats, feature_SAF: Floats, ridge: float) -> Floats:
    """Reward model theta . phi from the same pairs by Bradley-Terry likelihood, [R, S, A].

    Source: Bradley & Terry (1952); Christiano et al. (2017).
    """
    diff_SAAF = feature_SAF[:, :, None] - feature_SAF[:, None]
    cells, width = len(weight_RSAA), feature_SAF.shape[-1]
    used_N = weight_RSAA.reshape(cells, -1).any(0)
    diff_RNF = np.broadcast_to(diff_SAAF.reshape(-1, width)[used_N], (cells, int(used_N.sum()), width))
    label_RN, weight_RN = (x.reshape(cells, -1)[:, used_N] for x in (label_RSAA, weight_RSAA))
    return np.einsum("rk,xak->rxa", logistic(diff_RNF, label_RN, weight_RN, ridge), feature_SAF)


def tilt(ref_xA: Floats, reward_xA: Floats, beta: float) -> Floats:
    """ref exp(r / beta) / Z, [x, A]: the limit of RL with a KL penalty of beta, given the reward (model).

    Source: Rafailov et al. (2023), equation 4.
    """
    with np.errstate(divide="ignore"):
        logit_xA = np.log(ref_xA) + reward_xA / beta
    return np.asarray(special.softmax(logit_xA, axis=-1))


def regret(context_S: Floats, reward_SA: Floats, pi_RSA: Floats) -> Floats:
    """E_x [max_a r - E_pi r], [R]. Designed here."""
    return np.asarray(((reward_SA.max(-1) - (pi_RSA * reward_SA).sum(-1)) * context_S).sum(-1))
