"""Advantages over turns, for responses that consist of several turns of several tokens.

An action is a turn's tokens under the mask; `turn_BT` gives the turn. gamma discounts between actions, not
inside one.
"""

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.advantages.critic_advantages import backward_sum, in_a_row, next_value
from testbed.data.compact import Compact
from testbed.data.groups import are_equal
from testbed.data.signals import Signals

NEEDS = ("mask_BT", "value_BT", "turn_BT")


@advantage(
    "turn_gae",
    source="Zhou et al. (2024), ArCHer, arXiv:2402.19446 (utterance-level critic); the sum is GAE's, 2016",
    needs=NEEDS, uses=("token_reward_BT",), per_token=True, scope="sequence",
)  # fmt: skip
def turn_gae(signals: Signals, *, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """A = sum over turns k >= j of (gamma lam)^(k-j) (r_k + gamma V_{k+1} - V_k), for all tokens of turn j.

    V_k is the critic's value before the first token of turn k, r_k the sum of rewards within it. Values
    inside a turn are not read.
    """
    compact, value_BT, reward_BT = in_a_row(signals, "turn_gae")
    ends_BT, first_BT = _edges(signals, compact, "turn_gae")
    start_BT = value_BT.gather(-1, first_BT)
    # Inside a turn the value stays that before it, so only its last token has a difference.
    after_BT = torch.where(ends_BT, gamma * next_value(start_BT), start_BT)
    decay_BT = torch.ones_like(value_BT).masked_fill(ends_BT, gamma * lam)
    total_BT = backward_sum(reward_BT + after_BT - start_BT, decay_BT)
    return compact.take(total_BT.gather(-1, first_BT))


@advantage(
    "bad", source="Wen et al. (2024), POAD, arXiv:2405.15821 (Bellman backup with action decomposition)",
    needs=NEEDS, uses=("token_reward_BT",), per_token=True, scope="sequence",
)  # fmt: skip
def bad(signals: Signals, *, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """A = delta_t + g_t lam A_{t+1}, delta_t = r_t + g_t V_{t+1} - V_t; g = gamma after a turn's last token.

    Inside a turn g = 1, so an action of many tokens is discounted like one of a single token. gae with the
    same gamma discounts every token. Equal at gamma 1.
    """
    compact, value_BT, reward_BT = in_a_row(signals, "bad")
    ends_BT, _ = _edges(signals, compact, "bad")
    factor_BT = torch.ones_like(value_BT).masked_fill(ends_BT, gamma)
    delta_BT = reward_BT + factor_BT * next_value(value_BT) - value_BT
    return compact.take(backward_sum(delta_BT, factor_BT * lam))


@advantage(
    "standardized",
    source="Schulman et al. (2017), PPO; per-batch normalization as Zheng et al. (2023), arXiv:2307.04964",
    needs=("mask_BT", "value_BT"), uses=("token_reward_BT",), per_token=True, scope="batch",
)  # fmt: skip
def standardized(
    signals: Signals, *, of: str = "gae", gamma: float = 1.0, lam: float = 0.95, eps: float = 1e-8
) -> Tensor:
    """A = (X - mean of X) / (std of X + eps) over the batch's tokens, X the advantage `of`, by default gae.

    The std divides by the count. The inputs that X needs besides values are required too.
    """
    mask_BT = signals.require("mask_BT", "standardized")
    signals.require("value_BT", "standardized")
    value_BT: Tensor = advantage[of].bind(gamma=gamma, lam=lam)(signals)
    count_11 = mask_BT.sum((-2, -1), keepdim=True)
    centered_BT = (value_BT - value_BT.sum((-2, -1), keepdim=True) / count_11) * mask_BT
    spread_11 = (centered_BT.square().sum((-2, -1), keepdim=True) / count_11).sqrt()
    high_11 = value_BT.masked_fill(~mask_BT, -torch.inf).amax((-2, -1), keepdim=True)
    low_11 = value_BT.masked_fill(~mask_BT, torch.inf).amin((-2, -1), keepdim=True)
    return torch.where(are_equal(high_11, low_11), 0.0, centered_BT / (spread_11 + eps)).to(value_BT.dtype)


def _edges(signals: Signals, compact: Compact, method: str) -> tuple[Tensor, Tensor]:
    """Return True for compact tokens that end their turn, and the index of their turn's first token."""
    turn_BT = signals.require("turn_BT", method)
    # Add 1, because positions after the last token are 0, which must not be a turn.
    turn_BT = compact.put((turn_BT + 1) * compact.mask_BT)
    ends_BT = turn_BT != next_value(turn_BT)
    starts_BT = torch.cat([torch.ones_like(ends_BT[..., :1]), ends_BT[..., :-1]], -1)
    place_T = torch.arange(turn_BT.shape[-1], device=turn_BT.device)
    return ends_BT, torch.where(starts_BT, place_T, 0).cummax(-1).values
