"""Weights that change inside a sequence: the version and the log-probability of each token."""

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.errors import UserError

CACHES = ("kept", "recomputed")
"""Treatments of earlier tokens' keys and values when the weights change."""


def checked_cache(cache: str) -> str:
    """Return the treatment of a cache; raise UserError unless it is "kept" or "recomputed"."""
    if cache not in CACHES:
        raise UserError(f"cache is '{cache}', expected {' or '.join(map(repr, CACHES))}.")
    return cache


def checked_versions(version_RBT: Tensor, shape: torch.Size, versions: int) -> Tensor:
    """Return the versions as int64 of the given shape [R, B, T].

    Raises UserError unless they broadcast to it, lie in [0, versions) and never fall along a sequence.
    """
    given = tuple(version_RBT.shape)
    if len(given) != 3 or any(n not in (1, wanted) for n, wanted in zip(given, shape, strict=True)):
        raise UserError(
            f"version_RBT has shape {given}, expected {tuple(shape)} = [R, B, T], or 1 along axes that agree."
        )
    lowest, highest = int(version_RBT.min()), int(version_RBT.max())
    if version_RBT.is_floating_point() or lowest < 0 or highest >= versions:
        raise UserError(
            f"version_RBT holds {version_RBT.dtype} from {lowest} to {highest}, expected whole numbers "
            f"from 0 to {versions - 1}: theta_RWP has {versions} versions."
        )
    falls_RBT = version_RBT[..., 1:] < version_RBT[..., :-1]
    if bool(falls_RBT.any()):
        r, b, t = (int(i) for i in falls_RBT.nonzero()[0])
        raise UserError(
            f"version_RBT falls at [{r}, {b}, {t + 1}] from {int(version_RBT[r, b, t])} to "
            f"{int(version_RBT[r, b, t + 1])}; weights only get newer while a sequence is written."
        )
    return version_RBT.long().expand(shape)


def present(version_RBT: Tensor) -> list[int]:
    """Return the versions that occur, oldest first."""
    return [int(v) for v in version_RBT.unique()]


def logp_by_version(
    logp: Callable[[Tensor], Tensor], theta_RWP: Tensor, version_RBT: Tensor, mask_RBT: Tensor
) -> Tensor:
    """Return log pi(token | before) under each token's own version, [R, B, T], differentiable in theta.

    logp: theta_RP -> log-probabilities [R, B, T] of the tokens, of any policy. It is called only for versions
    of tokens under the mask.
    """
    version_RBT = checked_versions(version_RBT, mask_RBT.shape, theta_RWP.shape[1])
    versions = present(version_RBT[mask_RBT])
    value_RBT = logp(theta_RWP[:, versions[0]])
    for v in versions[1:]:
        value_RBT = torch.where(version_RBT == v, logp(theta_RWP[:, v]), value_RBT)
    return value_RBT
