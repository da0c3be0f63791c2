"""Preferences between logged trajectories: contexts that explain them, and reward models over their steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Floats
from envs.offline import Log
from testbed.offline.preferences import logistic
from testbed.offline.tabular import clone


def episode_features(log: Log, states: int, actions: int, discount: float) -> Floats:
    """sum_t discount^t 1{(s_t, a_t) = .}, [R, B, S A]: with these a linear reward is any reward table.

    Own design.
    """
    cells, episodes, steps = log.state_RBT.shape
    row_RBT = np.arange(cells * episodes).reshape(cells, episodes, 1) * (states * actions)
    key_RBT = row_RBT + log.state_RBT * actions + log.action_RBT
    weight_RBT = log.mask_RBT * discount ** np.arange(steps)
    size = cells * episodes * states * actions
    counted = np.bincount(key_RBT.ravel(), weight_RBT.ravel(), minlength=size)
    return np.asarray(counted.reshape(cells, episodes, -1), dtype=np.float64)


def neighbor_labels(return_RB: Floats, scale: float, key_R: NDArray[np.uint64]) -> Floats:
    """1 where episode 2 i is preferred to 2 i + 1, drawn with chance sigmoid((G_2i - G_2i+1) / scale), [R, B
    // 2].

    Source: Bradley & Terry (1952), on returns.
    """
    from envs import kernels  # imported here: it loads the compiler

    gap_RP = (return_RB[:, 0::2][:, : return_RB.shape[1] // 2] - return_RB[:, 1::2]) / scale
    uniform_RP = kernels.uniforms(np.asarray(key_R, np.uint64), 0, gap_RP.shape[1], 1)[..., 0]
    return (uniform_RP < 1 / (1 + np.exp(-gap_RP))).astype(np.float64)


def context_mixture(
    log: Log,
    contexts: int,
    states: int,
    actions: int,
    key_R: NDArray[np.uint64],
    *,
    rounds: int = 50,
    prior: float = 0.1,
) -> tuple[Floats, Floats]:
    """Policies pi(a | s, z) [R, Z, S, A] and P(z | episode) [R, B, Z] of a mixture of Z cloned policies, by
    EM.

    The table form of hindsight information matching: a context z is what, known afterwards, explains the
    actions. `prior` pseudo-counts keep every action possible. Responsibilities start at random. Source: OPPO
    (Kang et al. 2023), its encoder and context-conditioned policy.
    """
    from envs import kernels  # imported here: it loads the compiler

    feature_RBX = episode_features(log, states, actions, 1.0)
    uniform_RBZ = kernels.uniforms(np.asarray(key_R, np.uint64), 1, feature_RBX.shape[1], contexts)
    share_RBZ = uniform_RBZ / uniform_RBZ.sum(-1, keepdims=True)
    policy_RZSA = np.zeros(0)
    for _ in range(rounds):
        mass_RZX = np.swapaxes(share_RBZ, -1, -2) @ feature_RBX
        policy_RZSA = clone(mass_RZX.reshape(len(mass_RZX), contexts, states, actions), prior)
        log_RZX = np.log(policy_RZSA).reshape(len(mass_RZX), contexts, -1)
        score_RBZ = feature_RBX @ np.swapaxes(log_RZX, -1, -2)
        score_RBZ = score_RBZ + np.log(np.maximum(share_RBZ.mean(1, keepdims=True), 1e-300))
        weight_RBZ = np.exp(score_RBZ - score_RBZ.max(-1, keepdims=True))
        share_RBZ = weight_RBZ / weight_RBZ.sum(-1, keepdims=True)
    return policy_RZSA, share_RBZ


def fit_neighbors(feature_RBF: Floats, label_RP: Floats, ridge: float) -> Floats:
    """theta [R, F] of P(episode 2 i preferred to 2 i + 1) = sigmoid(theta . (phi_2i - phi_2i+1)).

    On `episode_features` it is the reward table of the two-stage method; on the responsibilities of contexts
    it scores contexts, and acting by their argmax needs no reward (OPPO's preference loss on the optimal
    context). Source: Christiano et al. (2017) for the reward model; OPPO (Kang et al. 2023) for contexts.
    """
    pairs = label_RP.shape[1]
    diff_RPF = feature_RBF[:, 0 : 2 * pairs : 2] - feature_RBF[:, 1 : 2 * pairs : 2]
    return logistic(diff_RPF, label_RP, np.ones_like(label_RP), ridge)
