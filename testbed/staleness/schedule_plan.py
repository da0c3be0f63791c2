"""The interface of a schedule of staleness: a plan for one cell, and the source of a pack's batches."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from torch import Tensor

from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.staleness.age_distribution import AgeDistribution
from testbed.worlds.world import BehaviorWeights, World


@dataclass(frozen=True)
class Generated:
    """A batch before learning.

    behavior: None if no fixed set of weights made it; the exact distribution of ratios is then unknown.
    counts: the schedule's counters at this step, by metric name, each [R].
    empty: True if no sample is left to learn from.
    """

    rollout: Rollout
    behavior: BehaviorWeights | None = None
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self.rollout.reward_RB.shape[-1] == 0


@runtime_checkable
class Source(Protocol):
    """Source of a pack's batches."""

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Store the weights at the start of a step and return the batch that the step learns from."""
        ...


class SchedulePlan(ABC):
    """Plan that determines the ages of one cell's samples.

    shortest, mean: least and mean age in optimizer steps in the long run; inf if ages grow without end, NaN
    if the mean does not exist or is unknown in advance.
    distribution: long-run shares of the ages; None if unknown in advance.
    slices: equal parts of a batch's prompts, each with a separate age.
    keeps_past: True if its source can also give weights older than those that generate.
    """

    shortest: float
    mean: float = math.nan
    distribution: AgeDistribution | None = None
    slices: int = 1
    keeps_past: ClassVar[bool] = False

    @abstractmethod
    def source(self, plans: Sequence[Self], runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Source:
        """Return the source of a pack of cells with these plans, all of this plan's type.

        theta_RP: weights at the start. Raises UserError if they need more memory than is available.
        """

    @abstractmethod
    def versions(self, run: Run, length: int) -> int:
        """Return how many versions of the weights the source keeps for this run.

        length: most tokens of a response. Raises UserError if it needs more than it may keep.
        """

    def check(self, run: Run) -> None:  # noqa: B027 - most plans fit every run
        """Raise UserError if the run's fields do not fit the plan."""

    def within(self, run: Run) -> "SchedulePlan":
        """Return the plan under the run's age limit, changed if the limit changes what it generates.

        Raises UserError for an age rule that the schedule does not support.
        """
        if run.too_old not in RAGGED:
            raise UserError(
                f"schedule '{run.staleness}' cannot {run.too_old} for samples older than age_limit = "
                f"{run.age_limit}; expected too_old {' or '.join(RAGGED)}."
            )
        return self
