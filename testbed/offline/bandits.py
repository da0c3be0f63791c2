"""Learning from logged bandits: score tables, certificates, learned policies, and generations of delayed
feedback.

Every estimator that is linear in the policy is a table g with Vhat(pi) = sum_x,a pi(a|x) g(x, a).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats, Ints
from envs.logged_bandit import LoggedData
from testbed.errors import UserError
from testbed.offline.improvement import softmax


def score_table(
    data: LoggedData,
    contexts: int,
    actions: int,
    *,
    alpha: float = 1.0,
    floor: float = 0.0,
    model_RSA: Floats | None = None,
    reward_RN: Floats | None = None,
) -> Floats:
    """g(x, a) = 1/N sum_i 1{x_i = x} (qhat(x, a) + 1{a_i = a} (r_i - qhat(x, a)) / max(mu_i, floor)^alpha),
    [R, S, A].

    alpha 1, floor 0: IPS, with a model doubly robust; alpha < 1: exponential smoothing (Aouali et al. 2023);
    floor > 0: clipping of the propensity. reward_RN: another reward of the same rounds. Source: Horvitz &
    Thompson (1952) for IPS; Dudik, Langford & Li (2011) with a model.
    """
    if not 0.0 <= alpha <= 1.0 or not 0.0 <= floor <= 1.0:
        raise UserError(f"alpha is {alpha:g} and floor {floor:g}, expected both in [0, 1].")
    cells, n = data.context_RN.shape
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    model_RSA = np.zeros((cells, contexts, actions)) if model_RSA is None else model_RSA
    cell_R1 = np.arange(cells)[:, None]
    error_RN = given_RN - model_RSA[cell_R1, data.context_RN, data.action_RN]
    weight_RN = 1.0 / np.maximum(data.propensity_RN, floor) ** alpha
    key_RN = (cell_R1 * contexts + data.context_RN) * actions + data.action_RN
    sums = np.bincount(key_RN.ravel(), (weight_RN * error_RN).ravel(), minlength=cells * contexts * actions)
    share_RS = _tally(cell_R1 * contexts + data.context_RN, cells * contexts).reshape(cells, contexts) / n
    return share_RS[..., None] * model_RSA + sums.reshape(cells, contexts, actions) / n


def mean_model(
    data: LoggedData, contexts: int, actions: int, *, prior: float = 1.0, reward_RN: Floats | None = None
) -> Floats:
    """qhat(x, a) = (sum of rewards + prior times the mean reward) / (n + prior), [R, S, A].

    Own design: a mean that shrinks to that of all rounds.
    """
    cells = len(data.context_RN)
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    key_RN = (np.arange(cells)[:, None] * contexts + data.context_RN) * actions + data.action_RN
    shape = (cells, contexts, actions)
    count_RSA = _tally(key_RN, cells * contexts * actions).reshape(shape)
    sum_RSA = np.bincount(key_RN.ravel(), given_RN.ravel(), minlength=count_RSA.size).reshape(shape)
    mean_R11 = given_RN.mean(-1)[:, None, None]
    return (sum_RSA + prior * mean_R11) / np.maximum(count_RSA + prior, 1e-300)


def best_policy(g_RSA: Floats, explore: float = 0.0) -> Floats:
    """(1 - explore) argmax g + explore uniform, [R, S, A]: the best of all tables, first among equals.

    Own design: the optimum of a linear objective over the simplex, by context.
    """
    actions = g_RSA.shape[-1]
    return (1 - explore) * np.eye(actions)[g_RSA.argmax(-1)] + explore / actions


def fit_softmax(g_RSA: Floats, feature_SAF: Floats, *, steps: int, rate: float, ridge: float = 0.0) -> Floats:
    """pi = softmax(theta . phi), [R, S, A], theta by `steps` gradient steps on sum pi g - ridge |theta|^2 /
    2.

    d/dtheta = sum_x,a pi (g - sum_b pi g) phi: policies that share what they learn across contexts. Source:
    Swaminathan & Joachims (2015), the softmax rule class; here by exact gradients of the table.
    """
    theta_RF = np.zeros((len(g_RSA), feature_SAF.shape[-1]))
    for step in range(steps + 1):
        logit_RSA = np.einsum("rk,xak->rxa", theta_RF, feature_SAF)
        pi_RSA = softmax(logit_RSA)
        if step == steps:
            break
        pull_RSA = pi_RSA * (g_RSA - (pi_RSA * g_RSA).sum(-1, keepdims=True))
        theta_RF = theta_RF + rate * (np.einsum("rxa,xak->rk", pull_RSA, feature_SAF) - ridge * theta_RF)
    return np.asarray(pi_RSA)


@dataclass(frozen=True)
class Certificate:
    """|risk - estimate| <= radius with chance 1 - delta for all posteriors at once, [R]; bias is a part."""

    estimate_R: Floats
    radius_R: Floats
    bias_R: Floats


def smoothing_certificate(
    data: LoggedData,
    logging_SA: Floats,
    pi_RSA: Floats,
    *,
    alpha: float,
    kl_R: ArrayLike,
    lambda_: float,
    delta: float = 0.05,
) -> Certificate:
    """Two-sided PAC-Bayes bound of the alpha-smoothed estimate for costs in [-1, 0] or rewards in [0, 1].

    radius = sqrt(KL_1 / (2 n)) + B + KL_2 / (n lambda) + lambda V / 2, KL_1 = KL + ln(4 sqrt(n) / delta),
    KL_2 = KL + ln(4 / delta), B = 1 - mean_i sum_a pi(a|x_i) mu(a|x_i)^(1 - alpha), V = mean_i [sum_a pi
    mu^(1 - 2 alpha) + pi(a_i|x_i) r_i^2 mu_i^(-2 alpha)]. pi is the mean of deterministic rules under a
    posterior with KL nats to a fixed prior; lambda_ > 0 is fixed beforehand. Source: Aouali et al. (2023),
    theorem 4.1; alpha 1 is plain IPS, B = 0.
    """
    n = data.context_RN.shape[1]
    if not 0.0 <= alpha <= 1.0 or lambda_ <= 0 or not 0 < delta < 1:
        raise UserError(
            f"alpha {alpha:g}, lambda {lambda_:g}, delta {delta:g}: expected [0, 1], > 0, (0, 1)."
        )
    if np.abs(data.reward_RN).max() > 1:
        raise UserError("Rewards leave [-1, 1]; the bound needs them inside: rescale.")
    kl = np.broadcast_to(np.asarray(kl_R, np.float64), (len(pi_RSA),))
    cell_R1 = np.arange(len(pi_RSA))[:, None]
    pi_RN, mu_RN = pi_RSA[cell_R1, data.context_RN, data.action_RN], data.propensity_RN
    estimate_R = (pi_RN / mu_RN**alpha * data.reward_RN).mean(-1)
    kept_RS = (pi_RSA * logging_SA ** (1 - alpha)).sum(-1)
    bias_R = 1.0 - kept_RS[cell_R1, data.context_RN].mean(-1)
    inner_RS = (pi_RSA * logging_SA ** (1 - 2 * alpha)).sum(-1)
    spread_R = inner_RS[cell_R1, data.context_RN].mean(-1)
    spread_R = spread_R + (pi_RN * data.reward_RN**2 * mu_RN ** (-2 * alpha)).mean(-1)
    first_R = np.sqrt((kl + np.log(4 * np.sqrt(n) / delta)) / (2 * n))
    second_R = (kl + np.log(4 / delta)) / (n * lambda_) + lambda_ * spread_R / 2
    return Certificate(estimate_R, first_R + bias_R + second_R, bias_R)


def gibbs_posterior(prior_K: Floats, score_RK: Floats, temperature: float) -> tuple[Floats, Floats]:
    """Q(h) = prior exp(score / temperature) / Z over K deterministic rules, [R, K], and KL(Q, prior), [R].

    Source: Catoni (2007): it maximizes E score - temperature KL(Q, prior).
    """
    q_RK = softmax(np.log(prior_K) + score_RK / temperature)
    with np.errstate(divide="ignore", invalid="ignore"):
        kl_R = np.where(q_RK > 0, q_RK * (np.log(q_RK) - np.log(prior_K)), 0.0).sum(-1)
    return q_RK, kl_R


def _tally(key: Ints, size: int) -> Floats:
    return np.bincount(key.ravel(), minlength=size).astype(np.float64)
