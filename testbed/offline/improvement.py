"""Policy improvement between on and off policy: hybrid critics, PPO's outer loop."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Counts, collect, ratio


def softmax(logits_RSA: Floats) -> Floats:
    """exp(logits) / sum, [R, S, A]."""
    mass_RSA = np.exp(logits_RSA - logits_RSA.max(-1, keepdims=True))
    return np.asarray(mass_RSA / mass_RSA.sum(-1, keepdims=True))


def natural_step(logits_RSA: Floats, q_RSA: Floats, step_size: ArrayLike) -> Floats:
    """logits + step_size Q, centered: natural policy gradient of a softmax table. Source: Kakade (2001)."""
    moved_RSA = logits_RSA + np.asarray(step_size, np.float64).reshape(-1, 1, 1) * q_RSA
    return np.asarray(moved_RSA - moved_RSA.max(-1, keepdims=True))


def monte_carlo(
    world: FiniteMDP,
    pi_RSA: Floats,
    episodes: int,
    key_R: NDArray[np.uint64],
    *,
    step: int = 0,
    at_once: int = 4096,
) -> tuple[Floats, Floats]:
    """Visits and mean discounted return to go of every pair in fresh episodes, [R, S, A] each; 0 without
    visits.

    At most `at_once` episodes are in memory; parts draw from steps `step`, `step` + 1, …. Source: Sutton &
    Barto (2018), section 5.1, every visit.
    """
    visit_RSA = np.zeros_like(pi_RSA)
    sum_RSA = np.zeros_like(pi_RSA)
    for part, first in enumerate(range(0, episodes, at_once)):
        log = collect(world, pi_RSA[:, None], min(at_once, episodes - first), key_R, step=step + part)
        gained = log.counts(world.states, world.actions, log.returns_to_go(world.discount))
        visit_RSA += log.counts(world.states, world.actions).visit_RSA
        sum_RSA += gained.visit_RSA
    return visit_RSA, ratio(sum_RSA, visit_RSA)


def hybrid_critic(
    feature_RSAF: Floats,
    pi_RSA: Floats,
    discount: float,
    *,
    offline: Counts,
    visit_RSA: Floats,
    return_RSA: Floats,
    trust: ArrayLike,
    rounds: int = 50,
    ridge: float = 1e-8,
) -> Floats:
    """Q = phi w, [R, S, A], w fitted to on-policy returns and off-policy Bellman targets, alternately.

    w <- argmin sum n_on (phi w - G)^2 / N_on + trust sum n_off (phi w - r - discount E_pi phi w_old)^2 /
    N_off. trust 0 is on-policy regression, a large one FQE on the offline data. trust: a number or [R];
    features [S, A, F] are shared by all. Source: HNPG (Zhou et al. 2023, "Offline data enhanced on-policy
    policy gradient with provable guarantees"), its hybrid critic.
    """
    trust_R11 = np.broadcast_to(np.asarray(trust, np.float64).reshape(-1, 1, 1), (len(pi_RSA), 1, 1))
    on_RSA = visit_RSA / np.maximum(visit_RSA.sum((-1, -2), keepdims=True), 1e-300)
    total_R11 = np.maximum(offline.visit_RSA.sum((-1, -2), keepdims=True), 1e-300)
    off_RSA = trust_R11 * offline.visit_RSA / total_R11
    feature_RXF = np.broadcast_to(feature_RSAF, (*pi_RSA.shape, feature_RSAF.shape[-1]))
    feature_RXF = feature_RXF.reshape(len(pi_RSA), -1, feature_RSAF.shape[-1])
    weight_RX1 = (on_RSA + off_RSA).reshape(len(pi_RSA), -1, 1)
    gram_RFF = feature_RXF.swapaxes(1, 2) @ (weight_RX1 * feature_RXF)
    gram_RFF = gram_RFF + ridge * np.eye(feature_RXF.shape[-1])
    seen_RX1 = (on_RSA * return_RSA + off_RSA * offline.reward_RSA).reshape(len(pi_RSA), -1, 1)
    fixed_RF = (feature_RXF.swapaxes(1, 2) @ seen_RX1)[..., 0]
    mean_RSF = (pi_RSA[..., None] * feature_RXF.reshape(*pi_RSA.shape, -1)).sum(2)
    ahead_RXF = (discount * offline.moves_RSAS @ mean_RSF[:, None]).reshape(feature_RXF.shape)
    boot_RFF = (off_RSA.reshape(len(pi_RSA), -1, 1) * feature_RXF).swapaxes(1, 2) @ ahead_RXF
    weight_RF = np.zeros_like(fixed_RF)
    for _ in range(rounds):
        right_RF = fixed_RF + (boot_RFF @ weight_RF[..., None])[..., 0]
        weight_RF = np.linalg.solve(gram_RFF, right_RF[..., None])[..., 0]
    return (feature_RXF @ weight_RF[..., None]).reshape(pi_RSA.shape)


def clipped_passes(
    logits_RSA: Floats,
    visit_RSA: Floats,
    advantage_RSA: Floats,
    *,
    passes: int,
    step_size: ArrayLike,
    clip: float,
    old_RSA: Floats | None = None,
) -> Floats:
    """`passes` gradient steps in the logits on sum n/N min(rho A, clip(rho, 1 - clip, 1 + clip) A), [R, S,
    A].

    rho = pi / old, by default pi at entry. A pair has no gradient once its ratio leaves the interval in the
    direction of its advantage (Schulman et al. 2017, equation 7); n(s, a) of a data set replaces its steps.
    """
    rate_R11 = np.asarray(step_size, np.float64).reshape(-1, 1, 1)
    share_RSA = visit_RSA / np.maximum(visit_RSA.sum((-1, -2), keepdims=True), 1e-300)
    old_RSA = softmax(logits_RSA) if old_RSA is None else old_RSA
    for _ in range(passes):
        pi_RSA = softmax(logits_RSA)
        rho_RSA = pi_RSA / old_RSA
        flat_RSA = np.where(advantage_RSA >= 0, rho_RSA > 1 + clip, rho_RSA < 1 - clip)
        pull_RSA = np.where(flat_RSA, 0.0, share_RSA * rho_RSA * advantage_RSA)
        logits_RSA = logits_RSA + rate_R11 * (pull_RSA - pi_RSA * pull_RSA.sum(-1, keepdims=True))
    return logits_RSA


def outer_loop(
    world: FiniteMDP,
    key_R: NDArray[np.uint64],
    *,
    episodes: int,
    iterations: int,
    step_size: ArrayLike,
    passes: int = 0,
    clip: float = 0.2,
) -> Floats:
    """Exact discounted value of the policy before every outer iteration, [K, R]: samples, advantages, outer
    step.

    passes 0 is the KL-regularized step pi <- pi exp(step_size A) / Z in closed form, else `clipped_passes`. A
    comes from `monte_carlo` returns of `episodes` fresh episodes a cell, minus the state's mean over its
    visits. Values, like returns, are those of the world's horizon. Source: mirror descent on policies (Tomar
    et al. 2022) as the outer step that PPO's passes split up; the split is designed here.
    """
    logits_RSA = np.zeros((len(key_R), world.states, world.actions))
    # As many parts as `monte_carlo` draws, each from a step of its own: no numbers are drawn twice.
    parts = -(-episodes // 4096)
    values = []
    for iteration in range(iterations):
        pi_RSA = softmax(logits_RSA)
        values.append(world.value(pi_RSA))
        visit_RSA, mean_RSA = monte_carlo(world, pi_RSA, episodes, key_R, step=iteration * parts)
        total_RS1 = np.maximum(visit_RSA.sum(-1, keepdims=True), 1.0)
        centered_RSA = mean_RSA - (visit_RSA * mean_RSA).sum(-1, keepdims=True) / total_RS1
        centered_RSA = np.where(visit_RSA > 0, centered_RSA, 0.0)
        if passes:
            logits_RSA = clipped_passes(
                logits_RSA, visit_RSA, centered_RSA, passes=passes, step_size=step_size, clip=clip
            )
        else:
            logits_RSA = natural_step(logits_RSA, centered_RSA, step_size)
    return np.stack(values)
