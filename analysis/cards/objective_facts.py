"""Exact numbers that compare objectives, independent of the scale of their weights.

A batch is a group of two responses with the advantage of REINFORCE leave-one-out, A = R - R of the other, so
objectives with groups or pairs compare fairly with the rest. A learning rate absorbs the scale of the
weights, so every number here ignores it: for the mean gradient m = E g and c = <m, grad J> / |m|^2 (0 if
negative), the bias is |c m - grad J| / |grad J| = sqrt(1 - cos^2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.kernels.on_use import torch
from envs.arrays import Floats
from testbed.objectives import objective

if TYPE_CHECKING:
    from testbed.exact.gradient_report import Bench, Objective

GROUP = 2
ADVANTAGE = "leave_one_out"
TOP = 0.1
"""Share of all batches used by `concentration`: these hold the largest squared gradients."""
ZERO = 1e-12
"""Norm relative to the target's below which a mean gradient is rounding error."""

BANDIT_COPIES = (6, 5, 4, 3, 2)
"""mu of the bandit, in twentieths: a batch with each action that often equals the expectation."""
BANDIT_REWARD = (0.0, 0.2, 0.5, 0.8, 1.0)
RATE, UPDATES = 2.0, 1000
ROUNDINGS = (None, 12, 11, 10, 9)
"""Decimals to which log mu is rounded; an ending that differs between them depends on the last digits."""
SAME = 1e-3
"""Largest difference of the gains between roundings that counts as equal."""
SETTLED = 0.01
"""Largest change of a probability over the second half of the updates that counts as settled."""


def gradient_facts(function: Objective, bench: Bench) -> dict[str, float]:
    """Return bias, its parts, noise, ESS and concentration of an objective on a tree, between mu and pi.

    bias: see the module; 1 if the mean gradient is 0 or points away. bias_state, bias_suffix, bias_clipping:
    signed shares with sum bias, as in testbed.exact.gradient_report. noise: sqrt(tr Cov g) / |E g|.
    ess: (E sum |w|)^2 / (E n E sum w^2) over the n tokens of groups with unequal rewards, w the effective
    weight. concentration: share of E|g|^2 in the tenth of batches with the largest |g|. NaN if the gradient
    or its mean is 0.
    """
    from testbed.exact.gradient_report import resolve
    from testbed.exact.group import batches, group_advantage, squared_norm

    resolved, _, level = resolve(function)
    index_RB, law_R = batches(bench, GROUP)
    adv = group_advantage(bench, index_RB, ADVANTAGE, {})
    weight = bench.batch_weights(resolved, index_RB, adv, None)
    mass_LT = np.zeros(bench.leaves.state_LT.shape)
    np.add.at(mass_LT, index_RB, law_R[:, None, None] * weight)
    mean_SA, square_R = bench.scatter(mass_LT), squared_norm(bench, index_RB, weight)
    reward_RB = bench.leaves.reward_L[index_RB]
    unequal_R = (reward_RB != reward_RB[:, :1]).any(-1)
    counted = bench.leaves.mask_LT[index_RB] & unequal_R[:, None, None]
    square = float(law_R @ square_R)
    return {
        **_direction(bench, mean_SA, level),
        "noise": _noise(square, mean_SA, bench.target_SA),
        "ess": _ess(law_R, weight, counted),
        "concentration": _concentration(law_R, square_R) if square > 0 else float("nan"),
    }


def _direction(bench: Bench, mean_SA: Floats, level: str) -> dict[str, float]:
    target_SA = bench.target_SA
    square, target = float((mean_SA**2).sum()), float(np.linalg.norm(target_SA))
    inner = float((mean_SA * target_SA).sum())
    scale = max(inner, 0.0) / square if square > (ZERO * target) ** 2 else 0.0
    bias_SA = scale * mean_SA - target_SA
    norm = float(np.linalg.norm(bias_SA))
    parts = bench.split(scale * mean_SA, level, "R")
    known = norm > 1e-9 * target  # smaller is rounding error, without parts
    shares = {
        f"bias_{name}": float((part_SA * bias_SA).sum()) / (norm * target) if known else 0.0
        for name, part_SA in parts.items()
    }
    return {"bias": norm / target if known else 0.0, **shares}


def _noise(square: float, mean_SA: Floats, target_SA: Floats) -> float:
    mean = float(np.linalg.norm(mean_SA))
    if mean <= ZERO * float(np.linalg.norm(target_SA)):
        return float("nan")
    return float(np.sqrt(max(square - mean**2, 0.0))) / mean


def _ess(law_R: Floats, weight: Floats, counted: Floats) -> float:
    size = np.where(counted, np.abs(weight), 0.0)
    first, second = (float(law_R @ (size**power).sum((-2, -1))) for power in (1, 2))
    tokens = float(law_R @ counted.sum((-2, -1)))
    return first**2 / (tokens * second) if second > 0 else float("nan")


def _concentration(law_R: Floats, square_R: Floats, top: float = TOP) -> float:
    """Return the share of E|g|^2 of the `top` most extreme batches; the one at the border counts in part."""
    order = np.argsort(-square_R, kind="stable")
    law, part = law_R[order], (law_R * square_R)[order]
    reach = np.cumsum(law)
    taken = np.clip((top - (reach - law)) / np.where(law > 0, law, 1.0), 0.0, 1.0)
    return float((taken * part).sum() / part.sum())


@dataclass(frozen=True)
class Ending:
    """Limit of an objective on fixed data, per bandit, with the best action rare and common.

    gain: mean of (J - J(mu)) / (best reward - J(mu)) at the end; NaN if it depends on the last digits of mu,
    as for a step with a switch. low, high: its range over ROUNDINGS of mu, within SAME if the gain is
    decided. settled: True if no probability moved by more than SETTLED in the second half. path: J after
    every update without rounding, [bandits, UPDATES + 1].
    """

    gain: float
    low: float
    high: float
    settled: bool
    path_XU: Floats


def ending(function: str | Callable[..., torch.Tensor], updates: int = UPDATES) -> Ending:
    """Follow an objective's exact gradient in the logits of two bandits, from pi = mu, at RATE, per rounding.

    Five actions with rewards 0, .2, .5, .8, 1; mu = anchor = ref is (.3, .25, .2, .15, .1) and its reverse.
    The batch is one group with each action 20 mu times, A = R - mean R, losses averaged over it: its gradient
    is the expectation for all objectives, including those with groups and batch statistics.
    """
    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    named = objective[function].function if isinstance(function, str) else function
    copies = torch.tensor([BANDIT_COPIES, BANDIT_COPIES[::-1]])
    action = torch.stack([torch.repeat_interleave(torch.arange(5), row) for row in copies])
    action = action.expand(len(ROUNDINGS), *action.shape)
    exact = (copies.double() / copies.sum(-1, keepdim=True)).log()
    logits = torch.stack([exact if digits is None else exact.round(decimals=digits) for digits in ROUNDINGS])
    mu = logits.exp()
    reward = torch.tensor(BANDIT_REWARD, dtype=torch.float64)
    start = torch.take_along_dim(logits, action, -1)[..., None]
    reward_B = reward[action]
    base = reward_B.mean(-1, keepdim=True)
    zeros = torch.zeros_like(action)
    batch = Batch(
        logp_mu_BT=start, adv_BT=(reward_B - base)[..., None],
        mask_BT=torch.ones_like(start, dtype=torch.bool), reward_B=reward_B, group_B=zeros,
        logp_anchor_BT=start, logp_ref_BT=start,
        turn_BT=zeros[..., None], origin_B=zeros,
    )  # fmt: skip
    onehot = torch.nn.functional.one_hot(action, 5).double()
    values, half = [], mu
    for step in range(updates + 1):
        pi = torch.softmax(logits, -1)
        half = pi if step == updates // 2 else half
        values.append(pi @ reward)
        logp = torch.take_along_dim(torch.log_softmax(logits, -1), action, -1)[..., None]
        weight = effective_weights(named, logp, batch)
        logits = logits + RATE * (weight * (onehot - pi[..., None, :])).mean(-2)
    path = torch.stack(values, -1)
    gain_K = ((path[..., -1] - base[..., 0]) / (reward.max() - base[..., 0])).mean(-1)
    low, high = float(gain_K.min()), float(gain_K.max())
    moved = float((pi - half).abs().max())
    gain = float(gain_K[0]) if high - low <= SAME else float("nan")
    return Ending(gain, low, high, moved <= SETTLED, path[0].numpy())
