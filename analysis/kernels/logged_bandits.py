"""Learning from logged bandits: score tables, certificates, learned policies, generations of delayed
feedback.

Every estimator that is linear in the policy is a table g with Vhat(pi) = sum_x,a pi(a|x) g(x, a).
"""

import numpy as np

from envs.arrays import Floats, Ints
from envs.logged_bandit import LoggedData
from testbed.errors import UserError


def score_table(
    data: LoggedData,
    contexts: int,
    actions: int,
    *,
    alpha: float = 1.0,
    model_RSA: Floats | None = None,
    reward_RN: Floats | None = None,
) -> Floats:
    """g(x, a) = 1/N sum_i 1{x_i = x} (qhat(x, a) + 1{a_i = a} (r_i - qhat(x, a)) / mu_i^alpha), [R, S, A].

    alpha 1: IPS, with a model doubly robust; below: exponential smoothing (Aouali et al. 2023). reward_RN:
    another reward of the same rounds. Source: Horvitz & Thompson (1952) for IPS; Dudik, Langford & Li (2011)
    with a model.
    """
    if not 0.0 <= alpha <= 1.0:
        raise UserError(f"alpha is {alpha:g}, expected 0 to 1.")
    cells, n = data.context_RN.shape
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    model_RSA = np.zeros((cells, contexts, actions)) if model_RSA is None else model_RSA
    cell_R1 = np.arange(cells)[:, None]
    error_RN = given_RN - model_RSA[cell_R1, data.context_RN, data.action_RN]
    weight_RN = 1.0 / data.propensity_RN**alpha
    key_RN = (cell_R1 * contexts + data.context_RN) * actions + data.action_RN
    sums = np.bincount(key_RN.ravel(), (weight_RN * error_RN).ravel(), minlength=cells * contexts * actions)
    share_RS = _tally(cell_R1 * contexts + data.context_RN, cells * contexts).reshape(cells, contexts) / n
    return share_RS[..., None] * model_RSA + sums.reshape(cells, contexts, actions) / n


def mean_model(data: LoggedData, contexts: int, actions: int, *, reward_RN: Floats | None = None) -> Floats:
    """qhat(x, a) = (sum of rewards + the mean reward) / (n + 1), [R, S, A].

    Designed here: a mean shrunk towards that of all rounds.
    """
    cells = len(data.context_RN)
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    key_RN = (np.arange(cells)[:, None] * contexts + data.context_RN) * actions + data.action_RN
    shape = (cells, contexts, actions)
    count_RSA = _tally(key_RN, cells * contexts * actions).reshape(shape)
    sum_RSA = np.bincount(key_RN.ravel(), given_RN.ravel(), minlength=count_RSA.size).reshape(shape)
    mean_R11 = given_RN.mean(-1)[:, None, None]
    return (sum_RSA + mean_R11) / (count_RSA + 1)


def best_policy(g_RSA: Floats) -> Floats:
    """argmax g, [R, S, A]: the best of all tables for a linear objective, first among equals."""
    return np.eye(g_RSA.shape[-1])[g_RSA.argmax(-1)]


def _tally(key: Ints, size: int) -> Floats:
    return np.bincount(key.ravel(), minlength=size).astype(np.float64)
