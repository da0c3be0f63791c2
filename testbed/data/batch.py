"""Batch: the container that objectives read. Shapes and numbers are checked when it is made."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from testbed.data.optional import OptionalFields, as_float
from testbed.errors import UserError

ROLLOUT, EXPERT, REPLAY = 0, 1, 2
"""Origin of a sequence: this step's generation, a demonstration, an earlier generation."""


@dataclass(frozen=True)
class Batch(OptionalFields):
    """Sequences with the log-probabilities, rewards and advantages that an objective may read.

    Axes: B sequences, T tokens; any leading axes (replicas) are allowed on every field.

    logp_mu_BT: log-probabilities (nats) under the policy that produced the tokens.
    adv_BT: advantages.
    mask_BT: bool; True for tokens the policy chose, False for padding and tool output.
    reward_B: rewards; whole numbers and booleans become floats.
    group_B: int64 ids in [0, B); sequences with equal ids answer the same prompt.
    logp_anchor_BT: the trainer's log-probabilities at the start of the update (default: behavior).
    logp_ref_BT: log-probabilities under the fixed policy of a KL penalty.
    turn_BT: int64 turn of each token, counted from 0, never falling along a sequence.
    version_BT: int64 weights version that produced each token.
    origin_B: int64 origin of a sequence: ROLLOUT, EXPERT (logp_mu is then not read) or REPLAY.
    statistic: an objective's batch statistic of the whole batch, if this batch is only a part of it; see
        testbed.losses.batch_statistic.

    Raises UserError if a shape disagrees, a log-probability, advantage or reward is not finite, a group id is
    out of range, a turn falls, or a sequence has no token under the mask.
    """

    logp_mu_BT: Tensor
    adv_BT: Tensor
    mask_BT: Tensor
    reward_B: Tensor
    group_B: Tensor
    logp_anchor_BT: Tensor = field(default_factory=lambda: torch.empty(0))
    logp_ref_BT: Tensor | None = None
    turn_BT: Tensor | None = None
    version_BT: Tensor | None = None
    origin_B: Tensor | None = None
    statistic: Tensor | None = None

    def __post_init__(self) -> None:
        if self.logp_anchor_BT.numel() == 0:
            object.__setattr__(self, "logp_anchor_BT", self.logp_mu_BT)
        _check_shapes(self)
        empty = ~self.mask_BT.any(-1)
        if self.mask_BT.numel() == 0 or bool(empty.any()):
            which = [tuple(int(i) for i in row) for row in empty.nonzero()[:5]]
            names = [w[0] if len(w) == 1 else w for w in which]
            raise UserError(f"sequences {names} have no token under mask_BT; drop them first.")
        for name in ("logp_mu_BT", "adv_BT", "logp_anchor_BT", "logp_ref_BT"):
            check_finite(name, getattr(self, name), self.mask_BT)
            object.__setattr__(self, name, _without_garbage(getattr(self, name), self.mask_BT))
        object.__setattr__(self, "reward_B", as_float(self.reward_B))
        check_finite("reward_B", self.reward_B, torch.ones_like(self.reward_B, dtype=torch.bool))
        _check_turns(self.turn_BT, self.mask_BT)
        groups = self.group_B
        if groups.numel() and (int(groups.min()) < 0 or int(groups.max()) >= groups.shape[-1]):
            raise UserError(
                f"group_B holds ids from {int(groups.min())} to {int(groups.max())}; "
                f"expected ids in [0, {groups.shape[-1]}), one number per prompt."
            )

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with a function, e.g. a slice, applied to its tensors (not to `statistic`)."""
        changed = {
            item.name: function(value)
            for item in fields(self)
            if isinstance(value := getattr(self, item.name), Tensor) and item.name != "statistic"
        }
        return replace(self, **changed)


def check_finite(name: str, value: Tensor | None, mask_BT: Tensor) -> None:
    """Raise UserError with count and first position if a value under the mask is not finite."""
    if value is None:
        return
    bad = mask_BT & ~torch.isfinite(value)
    if bool(bad.any()):
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise UserError(
            f"{name} has {int(bad.sum())} non-finite values under the mask, the first at {first} "
            f"({float(value[first])}). Drop those sequences or correct the log-probabilities that made them."
        )


def _without_garbage(value: Tensor | None, mask_BT: Tensor) -> Tensor | None:
    """Return the value with 0 for non-finite entries outside the mask: 0 times NaN is a NaN gradient."""
    if value is None or bool(torch.isfinite(value).all()):
        return value
    return torch.where(mask_BT, value, torch.zeros_like(value))


def _check_shapes(batch: Batch) -> None:
    expected = batch.mask_BT.shape
    if batch.mask_BT.dtype != torch.bool or len(expected) < 2:
        raise UserError(
            f"mask_BT has dtype {batch.mask_BT.dtype} and shape {tuple(expected)}; "
            "expected bool and at least [B, T]."
        )
    for item in fields(batch):
        value = getattr(batch, item.name)
        if value is None or item.name == "statistic":
            continue
        wanted = expected[:-1] if item.name.endswith("_B") else expected
        if value.shape != wanted:
            raise UserError(
                f"{item.name} has shape {tuple(value.shape)}, but mask_BT has shape {tuple(expected)}: "
                f"expected {tuple(wanted)}."
            )


def _check_turns(turn_BT: Tensor | None, mask_BT: Tensor) -> None:
    if turn_BT is None:
        return
    lowest = torch.where(mask_BT, turn_BT, torch.zeros_like(turn_BT)).min()
    # -1 outside the mask: tool output and padding must not raise the turn that later tokens are held to.
    highest_BT = torch.where(mask_BT, turn_BT, torch.full_like(turn_BT, -1)).cummax(-1).values
    falls_BT = mask_BT & (turn_BT < highest_BT)
    if bool(falls_BT.any()) or int(lowest) < 0 or int(highest_BT.max()) >= turn_BT.shape[-1]:
        raise UserError(
            f"turn_BT holds ids from {int(lowest)} to {int(highest_BT.max())}"
            f"{' and falls along a sequence' if bool(falls_BT.any()) else ''}; expected turns counted from 0 "
            f"that never fall, below the number of tokens ({turn_BT.shape[-1]})."
        )
