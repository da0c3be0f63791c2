"""Check that the recorded version of every token is the version that wrote it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.worlds.world import World

Logp: TypeAlias = Callable[[Tensor, Rollout], Tensor]


@torch.no_grad()
def check_versions(
    world: "World",
    weights: Mapping[int, Tensor],
    rollout: Rollout,
    sample: Sequence[int] | None = None,
    tolerance: float = 1e-5,
    logp: Logp | None = None,
) -> int:
    """Recompute log mu at every recorded version; return the number of tokens that match.

    Args:
        world: where the rollout was generated.
        weights: theta_RP at the start of every step, by version.
        rollout: as generated, before replayed groups or demonstrations are mixed in.
        sample: sequences to check, of every replica; all by default.
        tolerance: largest allowed difference of a log-probability, nats.
        logp: log-probabilities at given weights in the engine that generated; by default the trainer's. With
            an engine mismatch it is `world.generation.sliced(1).logp` at the rollout's step.

    Raises:
        UserError: no versions are recorded, a recorded version is not in weights, or a log-probability
            differs; the message names replica, sequence, token, version and both numbers.
    """
    if rollout.version_RBT is None:
        raise UserError("the rollout records no versions, so there is nothing to check.")
    looked_RBT = torch.zeros_like(rollout.mask_RBT)
    looked_RBT[:, slice(None) if sample is None else list(sample)] = True
    looked_RBT &= rollout.mask_RBT
    found_RBT = torch.zeros_like(rollout.logp_mu_RBT)
    for version in rollout.version_RBT[looked_RBT].unique().tolist():
        if version not in weights:
            raise UserError(
                f"{_place(looked_RBT & (rollout.version_RBT == version))} records version {version}, but "
                f"the weights of that version are not kept; kept are {min(weights)} to {max(weights)}."
            )
        at_RBT = (logp or world.logp)(weights[version], rollout)
        found_RBT = torch.where(rollout.version_RBT == version, at_RBT.to(found_RBT.dtype), found_RBT)
    # Written so that a NaN log-probability fails.
    wrong_RBT = looked_RBT & ~((found_RBT - rollout.logp_mu_RBT).abs() <= tolerance)
    if bool(wrong_RBT.any()):
        r, b, t = (int(i) for i in wrong_RBT.nonzero()[0])
        recorded, found = float(rollout.logp_mu_RBT[r, b, t]), float(found_RBT[r, b, t])
        raise UserError(
            f"{_place(wrong_RBT)} records version {int(rollout.version_RBT[r, b, t])} and log mu "
            f"{recorded:.6g}, but its weights give {found:.6g}; {int(wrong_RBT.sum())} of "
            f"{int(looked_RBT.sum())} tokens differ by more than {tolerance:g}."
        )
    return int(looked_RBT.sum())


def _place(where_RBT: Tensor) -> str:
    r, b, t = (int(i) for i in where_RBT.nonzero()[0])
    return f"token {t} of sequence {b} of replica {r}"
