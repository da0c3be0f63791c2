"""Advantages from a critic's values, by recursion from the last token to the first.

Rewards are token_reward_BT if known, else reward_B at the last token. Tokens outside the mask are skipped:
the value after a tool's output follows the value before it.
"""

import math

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.advantages.variance import token_rewards
from testbed.data.compact import Compact
from testbed.data.signals import Signals


@advantage(
    "gae", source="Schulman et al. (2016), arXiv:1506.02438, Eq. 16", needs=("mask_BT", "value_BT"),
    uses=("token_reward_BT",), per_token=True, scope="sequence",
)  # fmt: skip
def gae(signals: Signals, *, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """A = sum over j >= t of (gamma lam)^(j-t) delta_j, delta_j = r_j + gamma V_{j+1} - V_j.

    The value after the last token is 0, for a truncated response too. lam = 1 gives return - V.
    """
    compact, value_BT, reward_BT = in_a_row(signals, "gae")
    delta_BT = reward_BT + gamma * next_value(value_BT) - value_BT
    return compact.take(backward_sum(delta_BT, torch.full_like(delta_BT, gamma * lam)))


@advantage(
    "egae", source="T-PPO (2025), arXiv:2506.15050; from secondary notes",
    needs=("mask_BT", "value_BT", "truncated_B"), uses=("token_reward_BT",), per_token=True,
    scope="sequence",
)  # fmt: skip
def egae(signals: Signals, *, gamma: float = 1.0, lam: float = 0.95) -> Tensor:
    """A = GAE in which a truncated response continues with the value of its last state.

    A truncated response has no reward yet: its reward_B is ignored (token_reward_BT is read), and V after the
    last token is V before it. With gamma 1 the last advantage is then 0 and the others sum delta up to the
    token before; with an exact critic these others are unbiased. The secondary notes that
    were read name no lam; the default is gae's.
    """
    compact, value_BT, reward_BT = in_a_row(signals, "egae")
    cut_B1 = signals.require("truncated_B", "egae")[..., None]
    length_B1 = compact.length_B1
    place_T = torch.arange(value_BT.shape[-1], device=value_BT.device)
    ends_BT = cut_B1 & (place_T == length_B1 - 1)
    if signals.token_reward_BT is None:
        reward_BT = torch.where(ends_BT, 0.0, reward_BT)
    next_BT = torch.where(ends_BT, value_BT, next_value(value_BT))
    delta_BT = reward_BT + gamma * next_BT - value_BT
    return compact.take(backward_sum(delta_BT, torch.full_like(delta_BT, gamma * lam)))


@advantage(
    "v_trace", source="Espeholt et al. (2018), IMPALA, arXiv:1802.01561, Eq. 1 and Section 4.2",
    needs=("mask_BT", "value_BT", "log_rho_BT"), uses=("token_reward_BT",), per_token=True,
    scope="sequence",
)  # fmt: skip
def v_trace(
    signals: Signals, *, rho_bar: float = 1.0, c_bar: float = 1.0, gamma: float = 1.0, lam: float = 1.0
) -> Tensor:
    """A = r_t + gamma v_{t+1} - V_t, v_t = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1}).

    delta_t = min(rho_bar, rho_t) (r_t + gamma V_{t+1} - V_t), c_t = lam min(c_bar, rho_t), rho = pi/mu of a
    token. The paper's gradient also multiplies A by min(rho_bar, rho_t); the objective must do that:
    importance_reinforce with level "token" and cap rho_bar. On-policy with lam 1: return - V.
    """
    compact, value_BT, reward_BT = in_a_row(signals, "v_trace")
    log_rho_BT = compact.put(signals.tokens("log_rho_BT", "v_trace"))
    error_BT = reward_BT + gamma * next_value(value_BT) - value_BT
    delta_BT = log_rho_BT.clamp(max=math.log(rho_bar)).exp() * error_BT
    trace_BT = gamma * lam * log_rho_BT.clamp(max=math.log(c_bar)).exp()
    correction_BT = backward_sum(delta_BT, trace_BT)
    return compact.take(error_BT + gamma * next_value(correction_BT))


def in_a_row(signals: Signals, method: str) -> tuple[Compact, Tensor, Tensor]:
    """Return compact values and rewards, 0 after the last token."""
    compact = Compact(signals.require("mask_BT", method))
    value_BT = compact.put(signals.tokens("value_BT", method))
    return compact, value_BT, compact.put(token_rewards(signals, method))


def next_value(value_BT: Tensor) -> Tensor:
    """Return the next token's value, 0 after the last."""
    return torch.cat([value_BT[..., 1:], torch.zeros_like(value_BT[..., :1])], dim=-1)


def backward_sum(delta_BT: Tensor, decay_BT: Tensor) -> Tensor:
    """Return x_t = delta_t + decay_t x_{t+1}.

    A recursion, because the closed form divides by products of decays, which underflow.
    """
    delta_TB, decay_TB = (x.movedim(-1, 0).contiguous() for x in (delta_BT, decay_BT))
    later_B = torch.zeros_like(delta_TB[0])
    found = []
    for delta_B, decay_B in zip(reversed(delta_TB.unbind()), reversed(decay_TB.unbind()), strict=True):
        later_B = delta_B + decay_B * later_B
        found.append(later_B)
    return torch.stack(found[::-1], dim=-1)
