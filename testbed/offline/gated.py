"""Iterated offline updates that must prove themselves: one is taken when a lower bound says that it gains."""

from __future__ import annotations

import numpy as np

from envs.arrays import Bools, Floats
from envs.offline import Log, ratio
from testbed.estimators.intervals import student


def log_weights(log: Log, pi_RSA: Floats, mu_RWSA: Floats) -> Floats:
    """log prod_{k <= t} pi/mu, [R, B, T], mu the policy that played the episode; constant after its end.

    Source: Precup, Sutton & Singh (2000).
    """
    cell_R11 = np.arange(len(log.state_RBT))[:, None, None]
    with np.errstate(divide="ignore"):
        log_pi_RBT = np.log(pi_RSA)[cell_R11, log.state_RBT, log.action_RBT]
        log_mu_RBT = np.log(mu_RWSA)[cell_R11, log.source_RB[..., None], log.state_RBT, log.action_RBT]
    ratio_RBT = np.where(log.mask_RBT, log_pi_RBT - np.where(log.mask_RBT, log_mu_RBT, 0.0), 0.0)
    return np.asarray(np.cumsum(ratio_RBT, axis=-1))


def gain_terms(
    log: Log, candidate_RSA: Floats, current_RSA: Floats, mu_RWSA: Floats, discount: float
) -> Floats:
    """sum_t discount^t (w_candidate - w_current)_{0:t} r_t of each episode, [R, B]; its mean is J(new) -
    J(old).

    Per-decision importance sampling of both policies on the same episodes (Precup, Sutton & Singh 2000).
    """
    discount_T = discount ** np.arange(log.reward_RBT.shape[-1])
    weights = [np.exp(log_weights(log, pi_RSA, mu_RWSA)) for pi_RSA in (candidate_RSA, current_RSA)]
    return np.asarray(((weights[0] - weights[1]) * log.reward_RBT) @ discount_T)


def accepts(terms_RB: Floats, level: float) -> Bools:
    """Whether the one-sided lower bound (Student's) of the mean gain is above 0, [R].

    Each acceptance of a harmful update has a chance of at most 1 - level, as far as the bound covers. Source:
    the gate of RL-100 (Lei et al. 2025), with importance sampling in place of its model. level 0.5 is the
    sign of the estimate.
    """
    return np.asarray(student(terms_RB, level=level, side="lower").low > 0)


def share_of_episodes(log: Log, pi_RSA: Floats, mu_RWSA: Floats) -> Floats:
    """Kish ESS (sum w)^2 / (B sum w^2) of whole-episode weights, [R], 1/B to 1; 0 when all weights are.

    Source: Kish (1965).
    """
    weight_RB = np.exp(log_weights(log, pi_RSA, mu_RWSA)[..., -1])
    square_R = weight_RB.shape[-1] * (weight_RB**2).sum(-1)
    return ratio(weight_RB.sum(-1) ** 2, square_R)
