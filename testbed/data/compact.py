"""Tokens under the mask moved together, so that neighbors in time are neighbors in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Compact:
    """The tokens of every sequence from the left, without the gaps of tool output.

    mask_BT: bool. All compact tensors are [..., B, T]: token number t under the mask is at t.
    """

    mask_BT: Tensor

    @property
    def length_B1(self) -> Tensor:
        """Tokens under the mask; int64 [..., B, 1]."""
        return self.mask_BT.sum(-1, keepdim=True)

    @property
    def filled_BT(self) -> Tensor:
        """Positions that hold a token; bool [..., B, T]."""
        return torch.arange(self.mask_BT.shape[-1], device=self.mask_BT.device) < self.length_B1

    def put(self, value_BT: Tensor) -> Tensor:
        """Return compact values, 0 in empty positions."""
        width = value_BT.shape[-1]
        # Tokens outside the mask all go to one extra position, which is then cut off.
        place_BT = torch.where(self.mask_BT, self.mask_BT.cumsum(-1) - 1, width)
        room = torch.zeros(*value_BT.shape[:-1], width + 1, dtype=value_BT.dtype, device=value_BT.device)
        return room.scatter(-1, place_BT, value_BT)[..., :width]

    def take(self, compact_BT: Tensor) -> Tensor:
        """Return every token's value at its original position, 0 outside the mask."""
        # Before the first token under the mask the place is -1; what is gathered there is zeroed below.
        value_BT = compact_BT.gather(-1, (self.mask_BT.cumsum(-1) - 1).clamp(min=0))
        return torch.where(self.mask_BT, value_BT, torch.zeros_like(value_BT))
