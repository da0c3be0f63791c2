"""What a schedule of staleness is: a plan for one cell, and the source of a pack's batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.worlds.base import BehaviorWeights, World


@dataclass(frozen=True)
class Generated:
    """A batch before learning.

    behavior: None where no fixed set of weights made it, so that no exact ratio law is known.
    counts: what the schedule counted at this step, by metric name, each [R].
    empty: whether no sample is left, so that there is nothing to learn from.
    """

    rollout: Rollout
    behavior: BehaviorWeights | None = None
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self.rollout.reward_RB.shape[-1] == 0


class Source(Protocol):
    """Where a pack's batches come from."""

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Take note of the weights at the start of a step and return the batch it learns from."""
        ...


class Plan(Protocol):
    """How the samples of one cell come to have their ages.

    shortest: least age in optimizer steps, once training has run for longer than any age.
    """

    shortest: float

    def source(self, plans: Sequence[Any], runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Source:
        """Return the source of a pack whose cells have these plans, all of this plan's type."""
        ...
