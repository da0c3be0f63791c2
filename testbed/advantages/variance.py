"""Baselines that reduce the variance of the gradient estimate: weighted means of rewards.

Var of w (R - b) grad log pi is least at b* = E[w^2 |grad log pi|^2 R] / E[w^2 |grad log pi|^2] (Greensmith,
Bartlett and Baxter, 2004, JMLR 5, 1471-1530); the entries approximate the two factors differently. A baseline
that includes the response's reward biases the gradient by O(1/G).
"""

import math
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.compact import Compact
from testbed.data.groups import (
    are_equal,
    group_max,
    group_size,
    group_sum,
    group_weighted_average,
    group_weighted_quantile,
)
from testbed.data.signals import Signals
from testbed.errors import unknown

VCPO = "mit-han-lab/vcpo c7f030f0 2026-03-02"
Average: TypeAlias = Literal["mean", "median", "winsorized"]


@advantage("opo", source="Hao et al. (2025), OPO, arXiv:2505.23585", needs=("mask_BT",), scope="group")
def opo(signals: Signals) -> Tensor:
    """A = R - sum T R / sum T over the group, T the tokens of a response.

    Optimal on-policy if |grad log pi|^2 is proportional to the length. A group of one gets 0.
    """
    log_length_B = signals.require("mask_BT", "opo").sum(-1).to(signals.reward_B.dtype).log()
    return signals.reward_B - group_weighted_average(signals.reward_B, log_length_B, signals.group_B)


@advantage(
    "optimal_baseline", source="VCPO (2026), arXiv:2602.17616; formula as in the authors' README, c7f030f0",
    needs=("mask_BT", "log_rho_BT", "score_norm_B"), scope="group",
)  # fmt: skip
def optimal_baseline(
    signals: Signals,
    *,
    norm: Literal["score", "proxy"] = "score",
    cap: float = math.inf,
    scope: Literal["group", "batch"] = "group",
    average: Average = "mean",
) -> Tensor:
    """A = R - b, b = sum w^2 n R / sum w^2 n over the group, w = min(W, cap), n = |grad log pi|^2.

    W = pi/mu of the whole sequence. norm: "score" reads n from score_norm_B, gradients of the whole network;
    "proxy" sums score_norm_BT over the tokens, which needs no backward pass but ignores that gradients of
    different tokens are not orthogonal. scope: "batch" uses one b for all prompts. With cap equal to the
    truncation of the gradient's weights, b is the minimizer for that estimator. A group of one gets 0.
    average: "median" is the weighted median and "winsorized" the weighted mean of rewards clipped to their
    weighted 5 % and 95 % quantiles, both with the weights w^2 n.
    """
    method = "optimal_baseline"
    if norm not in ("score", "proxy"):
        raise unknown("score norm", norm, ("score", "proxy"))
    if scope not in ("group", "batch"):
        raise unknown("baseline scope", scope, ("group", "batch"))
    if norm == "score":
        norm_B = signals.require("score_norm_B", method)
    else:
        norm_B = signals.tokens("score_norm_BT", method).sum(-1)
    log_energy_B = 2 * signals.log_weight(method).clamp(max=math.log(cap)) + norm_B.log()
    group_B = signals.group_B if scope == "group" else torch.zeros_like(signals.group_B)
    return signals.reward_B - weighted_center(signals.reward_B, log_energy_B, group_B, average)


@advantage.variant("optimal_baseline@author", source=f"{VCPO}, optimal baseline of the actor")
def optimal_baseline_author(signals: Signals, *, cap: float = 8.0, average: Average = "mean") -> Tensor:
    """A = R - b, b = sum v R / sum v over the group, v = min(W, cap)^2 W^2 |grad log pi|^2.

    Unlike in the paper the measured gradient norm already contains the truncated weight and is multiplied by
    W^2, about W^4: the response with the largest ratio nearly decides the baseline alone. average: its three
    aggregators mean, median and winsorized, as in optimal_baseline.
    """
    method = "optimal_baseline@author"
    log_w_B = signals.log_weight(method)
    log_weight_B = 2 * log_w_B + 2 * log_w_B.clamp(max=math.log(cap))
    log_energy_B = log_weight_B + signals.require("score_norm_B", method).log()
    return signals.reward_B - weighted_center(signals.reward_B, log_energy_B, signals.group_B, average)


def weighted_center(value_B: Tensor, log_weight_B: Tensor, group_B: Tensor, average: str) -> Tensor:
    """Return the weighted mean, median or winsorized mean of every sequence's group; [..., B].

    A weighted quantile q is the smallest value at which the cumulative weight reaches q of the total: for two
    values of equal weight the median is the smaller one.
    """
    if average == "mean":
        return group_weighted_average(value_B, log_weight_B, group_B)
    if average == "median":
        return group_weighted_quantile(value_B, log_weight_B, group_B, 0.5)
    if average == "winsorized":
        low_B, high_B = (group_weighted_quantile(value_B, log_weight_B, group_B, q) for q in (0.05, 0.95))
        return group_weighted_average(value_B.clamp(low_B, high_B), log_weight_B, group_B)
    raise unknown("average", average, get_args(Average))


@advantage(
    "optimal_token_baseline",
    source="Li et al. (2026), The Optimal Token Baseline, arXiv:2602.07078; verl 1dda039b core_algos.py",
    needs=("mask_BT", "score_norm_BT"), uses=("token_reward_BT",), per_token=True, scope="group",
)  # fmt: skip
def optimal_token_baseline(
    signals: Signals, *, level: Literal["none", "token", "sequence"] = "none", zero_tail: bool = False
) -> Tensor:
    """A = G_t - b_t, b_t = sum E_t G_t / sum E_t over the group's responses that have a token t.

    G_t: reward from token t on. E_t = sum over s <= t of w_s^2 n_s, the energy so far, n_s = score_norm_BT
    (in the paper the logit proxy 1 - 2 pi(y) + sum_v pi(v)^2) and w_s the ratio of a level ("none": 1).
    zero_tail: baseline 0 instead of the response's return if no other response is that long (verl's
    multi-turn form). A group of one has baseline 0, as in verl. Tokens are counted under the mask. The
    form is that of verl's code; the paper's equations were in no text at hand to compare.
    """
    method = "optimal_token_baseline"
    energy_BT = signals.tokens("score_norm_BT", method)
    if level not in ("none", "token", "sequence"):
        raise unknown("ratio level", level, ("none", "token", "sequence"))
    if level != "none":
        sequence = level == "sequence"
        log_BT = signals.log_weight(method)[..., None] if sequence else signals.tokens("log_rho_BT", method)
        # The baseline is a ratio of energies: a group's largest weight cancels, and may overflow in float32.
        top_B = group_max(log_BT.amax(-1), signals.group_B)
        top_B = torch.where(top_B.isfinite(), top_B, 0.0)
        energy_BT = energy_BT.double() * (2 * (log_BT - top_B[..., None])).double().exp()
    compact = Compact(signals.require("mask_BT", method))
    return_BT = compact.put(returns(signals, method))
    energy_BT = torch.where(compact.filled_BT, compact.put(energy_BT).cumsum(-1), 0.0)
    # Group sums at every t: the token axis comes first, the group axis last.
    group_TB = signals.group_B.unsqueeze(-2).expand(energy_BT.mT.shape)
    total_TB = group_sum(energy_BT.mT, group_TB)
    weighted_TB = group_sum((energy_BT * return_BT).mT, group_TB)
    baseline_BT = (weighted_TB / torch.where(total_TB > 0, total_TB, 1.0)).mT.to(return_BT.dtype)
    size_B = group_size(signals.reward_B, signals.group_B)
    alone_BT = (size_B == 1)[..., None].expand(baseline_BT.shape)
    if zero_tail:
        alone_BT = alone_BT | (group_sum(compact.filled_BT.to(total_TB.dtype).mT, group_TB).mT == 1)
    baseline_BT = torch.where(alone_BT, 0.0, baseline_BT)
    level_BT = are_equal(torch.maximum(return_BT, baseline_BT), torch.minimum(return_BT, baseline_BT))
    return compact.take(torch.where(level_BT, 0.0, return_BT - baseline_BT))


def returns(signals: Signals, method: str) -> Tensor:
    """Return the sum of rewards from every token on, without discount; [..., B, T]."""
    return token_rewards(signals, method).flip(-1).cumsum(-1).flip(-1)


def token_rewards(signals: Signals, method: str) -> Tensor:
    """Return token_reward_BT if known, else reward_B at the last token under the mask."""
    if signals.token_reward_BT is not None:
        return signals.tokens("token_reward_BT", method)
    mask_BT = signals.require("mask_BT", method)
    last_BT = mask_BT & (mask_BT.cumsum(-1) == mask_BT.sum(-1, keepdim=True))
    return torch.where(last_BT, signals.reward_B[..., None], torch.zeros_like(signals.reward_B)[..., None])


@advantage(
    "importance_mean",
    source="Huang et al. (2025), RAPID, arXiv:2510.03515; Eq. 4 is in neither abstract nor public reviews",
    needs=("mask_BT", "log_rho_BT"),
    scope="group",
)
def importance_mean(signals: Signals, *, eta: float = 2.0, normalize: bool = True) -> Tensor:
    """A = R - b, b = sum w R / sum w over the group, w = min(W, eta), W = pi/mu of the sequence.

    The group mean under the current policy. normalize: False divides by G instead of by the sum of weights.
    The paper's abstract and its public reviews say neither how it normalizes nor whether the response itself
    counts; the defaults are ours, eta is the paper's. Use the same weights in the loss.
    """
    log_w_B = signals.log_weight("importance_mean").clamp(max=math.log(eta))
    if normalize:
        return signals.reward_B - group_weighted_average(signals.reward_B, log_w_B, signals.group_B)
    size_B = group_size(signals.reward_B, signals.group_B)
    return signals.reward_B - group_sum(log_w_B.exp() * signals.reward_B, signals.group_B) / size_B
