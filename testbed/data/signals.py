"""Signals: the inputs of an advantage. Shapes and axes as in Batch."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from testbed.data.optional import OptionalFields, as_float
from testbed.errors import UserError


@dataclass(frozen=True)
class Signals(OptionalFields):
    """Rewards and other data for advantages; nothing here carries a gradient.

    reward_B: rewards; whole numbers and booleans become floats. group_B: int64 ids in [0, B).
    mask_BT: bool, tokens the policy chose.
    log_rho_BT: log pi/mu of the weights about to be updated, 0 outside the mask.
    value_BT: a critic's value before each token. token_reward_BT: reward at each token.
    score_norm_BT, score_norm_B: squared norm of grad log pi of a token, of a whole sequence. A token's
        is often the norm with respect to the logits, 1 - 2 pi(y) + sum_v pi(v)^2.
    greedy_reward_B: reward of the greedy response to the same prompt.
    reference_reward_BN: rewards of N responses of the reference policy to the same prompt; [..., B, N].
    history_K: baselines of earlier batches, oldest first, NaN for missing ones; [..., K].
    truncated_B: bool, True if the response was cut before it ended.
    parent_B: int64 index of the sequence with the prefix that this one continues, -1 for none.
    turn_BT: int64 turn of each token, see Batch.

    Raises UserError if a shape disagrees with reward_B, or with the other token fields.
    """

    reward_B: Tensor
    group_B: Tensor
    mask_BT: Tensor | None = None
    log_rho_BT: Tensor | None = None
    value_BT: Tensor | None = None
    token_reward_BT: Tensor | None = None
    score_norm_BT: Tensor | None = None
    score_norm_B: Tensor | None = None
    greedy_reward_B: Tensor | None = None
    reference_reward_BN: Tensor | None = None
    history_K: Tensor | None = None
    truncated_B: Tensor | None = None
    parent_B: Tensor | None = None
    turn_BT: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward_B", as_float(self.reward_B))
        expected = self.reward_B.shape
        width: int | None = None
        for item in fields(self):
            value, axes = getattr(self, item.name), item.name.rpartition("_")[2]
            if value is None:
                continue
            shape = {"B": value.shape, "K": (*value.shape[:-1], *expected[-1:])}.get(axes, value.shape[:-1])
            if axes == "BT":
                width = value.shape[-1] if width is None else width
            if shape != expected or (axes == "BT" and value.shape[-1] != width):
                raise UserError(
                    f"{item.name} has shape {tuple(value.shape)}, but reward_B has shape {tuple(expected)}"
                    f"{'' if width is None else f' and the tokens before it have width {width}'}."
                )

    def tokens(self, name: str, method: str) -> Tensor:
        """Return a field [..., B, T] with zeros outside the mask."""
        value_BT, mask_BT = self.require(name, method), self.require("mask_BT", method)
        return torch.where(mask_BT, value_BT, torch.zeros_like(value_BT))

    def log_weight(self, method: str) -> Tensor:
        """Return the log importance weight of every sequence, the sum of its tokens' log rho; [..., B]."""
        return self.tokens("log_rho_BT", method).sum(-1)
