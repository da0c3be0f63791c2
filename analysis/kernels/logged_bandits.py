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

    Designed here: a mean shrunk towards that of all rounds.
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

    Designed here: the optimum of a linear objective over the simplex, by context.
    """
    actions = g_RSA.shape[-1]
    return (1 - explore) * np.eye(actions)[g_RSA.argmax(-1)] + explore / actions


def _tally(key: Ints, size: int) -> Floats:
    return np.bincount(key.ravel(), minlength=size).astype(np.float64)
