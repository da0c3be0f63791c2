"""Signals: what an advantage may read. Shapes and axes as in Batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from testbed.errors import UserError


@dataclass(frozen=True)
class Signals:
    """Rewards and what else is known before advantages are assigned; nothing here carries a gradient.

    reward_B: rewards. group_B: int64 ids in [0, B).
    mask_BT: bool, tokens the policy chose.
    log_rho_BT: log pi/mu of the weights about to be updated, 0 outside the mask.
    value_BT: a critic's value before each token. token_reward_BT: reward at each token.
    score_norm_BT, score_norm_B: squared norm of grad log pi of a token, of a whole sequence.
    greedy_reward_B: reward of the greedy response to the same prompt.
    history_H: baselines of earlier batches, oldest first, NaN where there is none yet; [..., H].
    truncated_B: bool, the response was cut before it ended.
    parent_B: int64 index of the sequence whose prefix this one continues, -1 for none.
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
    history_H: Tensor | None = None
    truncated_B: Tensor | None = None
    parent_B: Tensor | None = None

    def require(self, name: str, method: str) -> Tensor:
        """Return an optional field; raise UserError naming the method that needs it when it is missing."""
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            raise UserError(
                f"advantage '{method}' needs {name}, which is not known here; pass it to Signals."
            )
        return value
