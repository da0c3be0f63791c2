"""Metrics of fresh samples on held-out prompts: length, entropy, KL to the start, best of k."""

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed.data.held_out import HeldOut
from testbed.data.rollout import Rollout
from testbed.diagnostics.metric_names import PASS_KS
from testbed.diagnostics.ratio_metrics import masked_mean
from testbed.errors import UserError

SOLVED = 1.0 - 1e-6
"""Rewards of at least this count as success: tasks score from 0 to 1, and 1 is a right answer."""


def pass_at_k(success_XN: ArrayLike, k: int) -> Floats:
    """1 - C(n - c, k) / C(n, k) with c successes among n samples: Chen et al. (2021), eq. 1; [...].

    Unbiased for P(at least one of k independent samples succeeds) = 1 - (1 - p)^k, for all n >= k.

    Args:
        success_XN: bool [..., n], independent samples of one policy for one prompt along the last axis.
        k: number of samples to pick the answer from.

    Raises UserError unless 1 <= k <= n.
    """
    success_XN = np.asarray(success_XN, dtype=bool)
    n = _samples(success_XN.shape, k)
    found_by_count = np.array([1.0 - comb(n - c, k) / comb(n, k) for c in range(n + 1)])
    passed_X: Floats = found_by_count[success_XN.sum(-1)]
    return passed_X


def max_at_k(reward_XN: ArrayLike, k: int) -> Floats:
    """sum_i C(i - 1, k - 1) / C(n, k) r_(i), with r_(1) <= … <= r_(n); [...].

    The mean of the largest reward over all subsets of k of the n samples, so unbiased for the expected best
    of k independent ones; for rewards 0 and 1 it is pass@k. By the argument of Chen et al. (2021), eq. 1.

    Args:
        reward_XN: rewards [..., n] of independent samples of one policy for one prompt.
        k: number of samples to take the best of.

    Raises UserError unless 1 <= k <= n.
    """
    reward_XN = np.asarray(reward_XN, dtype=np.float64)
    n = _samples(reward_XN.shape, k)
    weight_N = np.array([comb(i, k - 1) / comb(n, k) for i in range(n)])
    best_X: Floats = np.sort(reward_XN, axis=-1) @ weight_N
    return best_X


def _samples(shape: tuple[int, ...], k: int) -> int:
    n = shape[-1] if shape else 0
    if not 1 <= k <= n:
        raise UserError(f"k is {k} for {n} samples per prompt; expected 1 <= k <= {n}: draw more samples.")
    return n


def held_out_metrics(drawn: HeldOut) -> dict[str, Tensor | Floats]:
    """Return all metrics of the policy itself, by metric name, each [R]."""
    known: dict[str, Tensor | Floats] = dict(drawn.exact)
    answers = drawn.answers
    if answers is None:
        return known
    known["accuracy"] = answers.reward_RB.mean(-1)
    length_R = answers.mask_RBT.sum(-1).double().mean(-1)
    entropy_R = -masked_mean(answers.logp_mu_RBT.double(), answers.mask_RBT)
    known.update({"val/response_length": length_R, "val/entropy": entropy_R})
    if drawn.logp_start_RBT is not None:
        known.update(start_metrics(answers, drawn.logp_start_RBT))
    if drawn.level_RN is not None:
        known.update(difficulty_metrics(by_prompt(answers), drawn.level_RN, drawn.levels))
    if drawn.more is not None:
        more_RNG = by_prompt(drawn.more)
        first_RNG = by_prompt(answers)[:, : more_RNG.shape[1]]
        known.update(pass_metrics(np.concatenate([first_RNG, more_RNG], axis=-1)))
    return known


def start_metrics(answers: Rollout, logp_start_RBT: Tensor) -> dict[str, Tensor]:
    """Return k1 and k3 of KL(pi, start) per token, from samples of pi; each [R].

    k1 = log pi - log start, k3 = start/pi - 1 + k1: both unbiased, k3 never negative. Source: Schulman
    (2020), Approximating KL Divergence.

    Args:
        answers: samples of pi with their log-probabilities.
        logp_start_RBT: log-probabilities of the first answers' tokens under the starting weights.
    """
    first = logp_start_RBT.shape[1]
    mask_RBT = answers.mask_RBT[:, :first]
    log_r_RBT = (logp_start_RBT - answers.logp_mu_RBT[:, :first]).double()
    return {
        "val/kl_start_k1": masked_mean(-log_r_RBT, mask_RBT),
        "val/kl_start_k3": masked_mean(log_r_RBT.expm1() - log_r_RBT, mask_RBT),
    }


def pass_metrics(reward_RNG: Floats) -> dict[str, Floats]:
    """Return pass@k and max@k, means over prompts [R], for those k of PASS_KS that G samples allow."""
    found = {}
    for k in PASS_KS:
        if k <= reward_RNG.shape[-1]:
            found[f"val/pass@{k}"] = pass_at_k(reward_RNG >= SOLVED, k).mean(-1)
            found[f"val/max@{k}"] = max_at_k(reward_RNG, k).mean(-1)
    return found


def difficulty_metrics(reward_RNG: Floats, level_RN: Ints, levels: Sequence[int]) -> dict[str, Floats]:
    """Return the mean reward of each level's prompts [R]; NaN if a replica has none."""
    reward_RN = reward_RNG.mean(-1)
    found = {}
    for level in levels:
        at_RN = level_RN == level
        count_R = at_RN.sum(-1)
        total_R = np.where(at_RN, reward_RN, 0.0).sum(-1)
        found[f"val/accuracy_difficulty_{level}"] = np.divide(
            total_R, count_R, out=np.full(len(count_R), np.nan), where=count_R > 0
        )
    return found


def by_prompt(answers: Rollout) -> Floats:
    """Return the rewards of the answers to each prompt, float64 [R, N, G]."""
    reward_RNG: Floats = answers.reward_RB.unflatten(1, (-1, answers.group)).double().cpu().numpy()
    return reward_RNG
