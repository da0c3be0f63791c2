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
from testbed.worlds.base import BehaviorWeights, World


@dataclass(frozen=True)
class Generated:
    """A batch before learning.

    behavior: None where no fixed set of weights made it, so that no exact distribution of ratios is known.
    counts: what the schedule counted at this step, by metric name, each [R].
    empty: whether no sample is left, so that there is nothing to learn from.
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
        """Take note of the weights at the start of a step and return the batch it learns from."""
        ...


class SchedulePlan(ABC):
    """Plan that determines the ages of one cell's samples.

    shortest, mean: least and mean age in optimizer steps, once training has run for longer than any age; inf
    where ages grow without end, NaN where there is no such mean or it is not known beforehand.
    distribution: shares of the ages by then; None where it is not known beforehand.
    slices: equal parts of a batch's prompts, each with an age of its own.
    keeps_past: whether its source can also give weights that are older than those that generate.
    """

    shortest: float
    mean: float = math.nan
    distribution: AgeDistribution | None = None
    slices: int = 1
    keeps_past: ClassVar[bool] = False

    @abstractmethod
    def source(self, plans: Sequence[Self], runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Source:
        """Return the source of a pack whose cells have these plans, all of this plan's type.

        theta_RP: weights at the start. Raises UserError when they need more memory than there is.
        """

    @abstractmethod
    def versions(self, run: Run, length: int) -> int:
        """Return how many versions of the weights the source keeps for this run.

        length: most tokens of a response. Raises UserError when it may not keep as many as it needs.
        """

    def check(self, run: Run) -> None:  # noqa: B027 - most plans fit every run
        """Raise UserError when the run's fields do not go with the plan."""

    def within(self, run: Run) -> "SchedulePlan":
        """Return the plan under the run's age limit, which it is told where it changes what is generated.

        Raises UserError for an answer to old samples that the schedule cannot give.
        """
        if run.too_old not in RAGGED:
            raise UserError(
                f"schedule '{run.staleness}' cannot {run.too_old} for samples older than age_limit = "
                f"{run.age_limit}; expected too_old {' or '.join(RAGGED)}."
            )
        return self
