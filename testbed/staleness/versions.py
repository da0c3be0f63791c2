"""The weights of earlier optimizer steps, per replica, in one buffer of known size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.staleness.storage import allocate


class VersionBuffer:
    """A ring of the newest `depth` versions per replica.

    Version t is written to slot t mod depth. With depth 1 the version written is the version read, bit for
    bit.

    Args:
        theta_RP: weights at the start: version 0.
        depth_R: number of newest versions kept per replica, the current one included.
        first: also keep version 0 permanently.
        limit: most bytes of memory, see storage.allocate.
        dtype: storage type of the versions, if it differs from theirs; read converts back.

    Raises:
        UserError: the versions exceed the limit; nothing has been allocated.
    """

    def __init__(
        self,
        theta_RP: Tensor,
        depth_R: Sequence[int],
        first: bool = False,
        limit: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if len(depth_R) != theta_RP.shape[0]:
            raise UserError(f"{len(depth_R)} depths were given for {theta_RP.shape[0]} replicas.")
        if min(depth_R) < 1:
            raise UserError(f"depth {min(depth_R)} keeps no version; expected at least 1, the present one.")
        span = f"{min(depth_R)}" if min(depth_R) == max(depth_R) else f"{min(depth_R)} to {max(depth_R)}"
        what = f"{len(depth_R)} cells x {span} versions"
        self.slots_MP = allocate(sum(depth_R), theta_RP, what, limit, dtype)
        self.device, self.dtype = theta_RP.device, theta_RP.dtype
        # Slots in a file are on the CPU whatever the device.
        self.depth_R = torch.tensor(depth_R, dtype=torch.int64, device=self.slots_MP.device)
        self.offset_R = self.depth_R.cumsum(0) - self.depth_R
        self.first_RP = theta_RP.detach().clone() if first else None
        self.newest = 0
        self.write(theta_RP, 0)

    @staticmethod
    def bytes(parameters: int, depth_R: Sequence[int], itemsize: int = 4) -> int:
        """Memory of the ring for a number of parameters per replica, without version 0."""
        return sum(depth_R) * parameters * itemsize

    def write(self, theta_RP: Tensor, version: int) -> None:
        """Store a version's weights, the newest or the next one; any other raises ValueError."""
        if version not in (self.newest, self.newest + 1):
            raise ValueError(f"version {version} was written after {self.newest}; none may be left out")
        self.slots_MP[self.offset_R + version % self.depth_R] = theta_RP.detach().to(self.slots_MP)
        self.newest = version

    def read(self, version_RW: Tensor) -> Tensor:
        """Return the weights of W versions per replica, [R, W, P].

        Raises UserError for a version not kept: newer than the newest, negative, or too old.
        """
        version_RW = version_RW.to(self.slots_MP.device)
        gone_RW = version_RW <= self.newest - self.depth_R[:, None]
        if self.first_RP is not None:
            gone_RW = gone_RW & (version_RW > 0)
        bad_RW = gone_RW | (version_RW > self.newest) | (version_RW < 0)
        if bool(bad_RW.any()):
            replica, place = (int(i) for i in bad_RW.nonzero()[0])
            raise UserError(
                f"version {int(version_RW[replica, place])} of replica {replica} was asked for at version "
                f"{self.newest}, but the newest {int(self.depth_R[replica])} are kept"
                f"{' and version 0' if self.first_RP is not None else ''}."
            )
        weights_RWP = self.slots_MP[self.offset_R[:, None] + version_RW % self.depth_R[:, None]]
        weights_RWP = weights_RWP.to(self.device, self.dtype)
        if self.first_RP is None:
            return weights_RWP
        start_RW1 = (version_RW == 0)[..., None].to(self.device)
        return torch.where(start_RW1, self.first_RP[:, None], weights_RWP)
