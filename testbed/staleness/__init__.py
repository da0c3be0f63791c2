"""Staleness: which weights version makes the data.

`schedule` registers makers of plans: maker(lag, *, …) -> Plan. A plan says, for one cell, how its samples
come to have their ages; `lag` is the mean age wherever a schedule mixes ages. A plan's `source` joins the
plans of a pack's cells into what the training loop asks for a batch. Adding a schedule is one file here.

>>> from testbed.staleness import plan_for
>>> plan_for(Run(lag=4)).ages(seed=0, step=9)
array([4])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor

from testbed.config import Run
from testbed.registry import Registry
from testbed.rollout import Rollout

if TYPE_CHECKING:
    from testbed.worlds import World

schedule = Registry("schedule", package="testbed.staleness")


@dataclass(frozen=True)
class BehaviorWeights:
    """The weights that generated a batch: slice s of replica r comes from row r * slices + s of weights_XP.

    The slices are equal parts of a batch's prompts, in order. past_XP: older weights that the engine reads
    beside them, where it reads any.
    """

    weights_XP: Tensor
    slices: int = 1
    past_XP: Tensor | None = None


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


def plan_for(run: Run) -> Any:
    """Return the plan of a cell under its age limit.

    Raises UserError for an unknown schedule, argument or impossible value.
    """
    from testbed.staleness.too_old import limited

    return limited(schedule[run.staleness].bind(**dict(run.staleness_args))(run.lag), run)


def build_source(runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Source:
    """Return where the batches of stacked cells come from; theta_RP are the weights they start with."""
    from testbed.staleness.too_old import with_age_limit

    plans = [plan_for(run) for run in runs]
    return with_age_limit(plans[0].source(plans, runs, world, theta_RP), plans, runs)
