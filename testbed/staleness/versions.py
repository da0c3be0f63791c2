"""The weights of earlier optimizer steps, per replica, in one buffer of known size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.errors import UserError


class VersionBuffer:
    """A ring of the newest `depth` versions per replica.

    Version t is written to slot t mod depth. With depth 1 the version that is written is the one that is
    read, bit for bit.

    Args:
        theta_RP: weights at the start: version 0.
        depth_R: newest versions kept per replica, the present one included.
        first: also keep version 0 for good.
    """

    def __init__(self, theta_RP: Tensor, depth_R: Sequence[int], first: bool = False) -> None:
        if len(depth_R) != theta_RP.shape[0]:
            raise UserError(f"{len(depth_R)} depths were given for {theta_RP.shape[0]} replicas.")
        if min(depth_R) < 1:
            raise UserError(f"depth {min(depth_R)} keeps no version; expected at least 1, the present one.")
        self.depth_R = torch.tensor(depth_R, dtype=torch.int64, device=theta_RP.device)
        self.offset_R = self.depth_R.cumsum(0) - self.depth_R
        self.first_RP = theta_RP.detach().clone() if first else None
        self.slots_MP = theta_RP.detach().repeat_interleave(self.depth_R, dim=0)
        self.newest = 0

    @staticmethod
    def bytes(parameters: int, depth_R: Sequence[int], itemsize: int = 4) -> int:
        """Memory of the ring for so many parameters per replica, without version 0."""
        return sum(depth_R) * parameters * itemsize

    def write(self, theta_RP: Tensor, version: int) -> None:
        """Keep the weights of a version; versions come one after the other."""
        self.slots_MP[self.offset_R + version % self.depth_R] = theta_RP.detach()
        self.newest = version

    def read(self, version_RS: Tensor) -> Tensor:
        """Return the weights of S versions per replica, [R, S, P].

        Raises UserError for a version that is not kept: newer than the newest, negative, or too old.
        """
        gone_RS = version_RS <= self.newest - self.depth_R[:, None]
        if self.first_RP is not None:
            gone_RS = gone_RS & (version_RS > 0)
        bad_RS = gone_RS | (version_RS > self.newest) | (version_RS < 0)
        if bool(bad_RS.any()):
            replica, place = (int(i) for i in bad_RS.nonzero()[0])
            raise UserError(
                f"version {int(version_RS[replica, place])} of replica {replica} was asked for at version "
                f"{self.newest}, but the newest {int(self.depth_R[replica])} are kept"
                f"{' and version 0' if self.first_RP is not None else ''}."
            )
        weights_RSP = self.slots_MP[self.offset_R[:, None] + version_RS % self.depth_R[:, None]]
        if self.first_RP is None:
            return weights_RSP
        return torch.where((version_RS == 0)[..., None], self.first_RP[:, None], weights_RSP)
