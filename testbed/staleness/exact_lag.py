"""Exact lag k: the weights of exactly k optimizer steps ago, per replica."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.errors import UserError


class ExactLag:
    """A ring of lag + 1 snapshots per replica in one buffer.

    At step t the weights theta_t are written to slot t mod (k + 1) and slot (t + 1) mod (k + 1) is
    read: it holds theta_{t-k}, or theta_0 while t < k. With k = 0 both are the same slot, so what is
    read is what was written, bit for bit.
    """

    def __init__(self, theta_RP: Tensor, lag_R: Sequence[int]) -> None:
        if len(lag_R) != theta_RP.shape[0]:
            raise UserError(f"{len(lag_R)} lags were given for {theta_RP.shape[0]} replicas.")
        if min(lag_R) < 0:
            raise UserError(f"lag {min(lag_R)} is negative; weights of the future cannot generate data.")
        self.lag_R = torch.tensor(lag_R, dtype=torch.int64, device=theta_RP.device)
        size_R = self.lag_R + 1
        self.offset_R = size_R.cumsum(0) - size_R
        self.slots_MP = theta_RP.detach().repeat_interleave(size_R, dim=0)

    @staticmethod
    def bytes(parameters: int, lag_R: Sequence[int], itemsize: int = 4) -> int:
        """Memory of the ring for so many parameters per replica."""
        return sum(lag + 1 for lag in lag_R) * parameters * itemsize

    def behavior(self, theta_RP: Tensor, step: int) -> Tensor:
        """Store the weights of this step and return those of exactly lag steps before; [R, P]."""
        size_R = self.lag_R + 1
        self.slots_MP[self.offset_R + step % size_R] = theta_RP.detach()
        return self.slots_MP[self.offset_R + (step + 1) % size_R]

    def version(self, step: int) -> Tensor:
        """The step whose weights generate at this step: max(step - lag, 0); int64 [R]."""
        return (step - self.lag_R).clamp(min=0)
