"""What generates for stacked cells: an engine around the policy, at weights per part of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from testbed.config import Run
from testbed.mismatch import engine
from testbed.mismatch.behavior import Behavior
from testbed.rollout import Rollout

Logp: TypeAlias = Callable[[Tensor, Rollout], Tensor]


class Generation:
    """The engine that generates for stacked cells, and what their anchors ask it to note."""

    def __init__(self, runs: tuple[Run, ...], policy: Any) -> None:
        first = runs[0]
        self.policy, self.seeds = policy, tuple(run.seed for run in runs)
        self.engine = engine(first.mismatch, **dict(first.mismatch_args))
        self.notes_trainer = first.anchor == "snapshot"
        self.sliced(1)  # an engine that this policy cannot have is refused before any training

    def sliced(self, slices: int) -> Behavior:
        """Return the engine around the weights of `slices` parts per replica."""
        return Behavior(self.policy, self.engine, self.seeds, slices)

    def noted(self, theta_XP: Tensor, rollout: Rollout, slices: int, logp: Logp) -> Rollout:
        """Return the rollout with the trainer's log-probabilities at the generating weights, if asked for."""
        if not self.notes_trainer:
            return rollout
        logp_XBT = logp(theta_XP, rollout.split(slices)).detach()
        return replace(rollout, logp_trainer_RBT=whole(logp_XBT, slices))


def cut(value_RX: Tensor, slices: int) -> Tensor:
    """Return equal parts of axis 1 as replicas of their own, [R * slices, X / slices, ...]."""
    return value_RX.unflatten(1, (slices, -1)).flatten(0, 1)


def whole(value_XY: Tensor, slices: int) -> Tensor:
    """Return what was cut, [R, Y * slices, ...]."""
    return value_XY.unflatten(0, (-1, slices)).flatten(1, 2)
