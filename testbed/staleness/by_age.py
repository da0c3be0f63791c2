"""Batches by weights of known ages: the samples of step t come from the weights of step t - age."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed import rng
from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.staleness.age_distribution import AgeDistribution, Ages
from testbed.staleness.base import Generated, SchedulePlan
from testbed.staleness.limited_ages import Discarding, Waiting
from testbed.staleness.versions import VersionBuffer
from testbed.worlds.base import BehaviorWeights, World
from testbed.worlds.generation import engine_of


@dataclass(frozen=True)
class ByAge(SchedulePlan):
    """A plan that gives every slice of a batch the age of its weights.

    ages: see Ages. depth: newest versions it can ask for, the present one included. first: whether it also
    asks for the weights at the start when they are older. slices: equal parts of a batch's prompts, each with
    an age of its own. shortest, mean: least and mean age in optimizer steps, once training has run for longer
    than any age; inf where ages grow without end, NaN where there is no such mean. distribution: shares of
    the ages, over slices and steps, by then. limit: what an age limit made of the ages, and what it costs.
    """

    ages: Ages
    depth: int
    first: bool = False
    slices: int = 1
    shortest: float = 0
    mean: float = float("nan")
    distribution: AgeDistribution | None = None
    limit: Waiting | Discarding | None = None
    keeps_past: ClassVar[bool] = True

    def source(
        self, plans: "Sequence[ByAge]", runs: tuple[Run, ...], world: World, theta_RP: Tensor
    ) -> "ByAgeSource":
        """Return the source of a pack; raise UserError when prompts cannot be cut into the slices."""
        return ByAgeSource(plans, runs, world, theta_RP)

    def versions(self, run: Run, length: int) -> int:
        """Return the depth: as many as the run has steps, at most."""
        del length
        return min(self.depth + engine_of(run).past, run.steps) + self.first

    def within(self, run: Run) -> "ByAge":
        """Return the plan with its ages cut at the limit, or without those above it; see limited_ages."""
        if run.too_old in RAGGED:
            return self
        wait, limit = run.too_old == "wait", run.age_limit
        cut = Waiting(self.ages, limit) if wait else Discarding(self.ages, limit, run)
        depth = limit + 1 if self.first else min(self.depth, limit + 1)
        left = None if self.distribution is None else cut.distribution(self.distribution)
        mean = math.nan if left is None else left.mean
        return replace(self, ages=cut, depth=depth, first=False, mean=mean, distribution=left, limit=cut)

    def check(self, run: Run) -> None:
        """Raise UserError when the run's prompts cannot be cut into the slices."""
        if run.prompts % self.slices:
            raise UserError(
                f"prompts is {run.prompts}, which {self.slices} slices of different age cannot share evenly; "
                "change prompts or staleness_args.slices."
            )


class ByAgeSource:
    """Keeps the versions a pack's plans can ask for and generates every batch from them."""

    def __init__(self, plans: Sequence[ByAge], runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> None:
        self.plans, self.runs, self.world = plans, runs, world
        self.slices = plans[0].slices
        if len({plan.slices for plan in plans}) > 1:
            raise ValueError("cells that cut their batches differently cannot run stacked; see packs.plan")
        # A run of n steps has n versions, however deep its schedule could look.
        self.past = engine_of(runs[0]).past
        depths = [min(plan.depth + self.past, run.steps) for plan, run in zip(plans, runs, strict=True)]
        first = any(plan.first for plan in plans)
        self.versions = VersionBuffer(theta_RP, depths, first, dtype=world.version_dtype)

    def version(self, step: int) -> Tensor:
        """Return the version that generates each slice at this step: max(step - age, 0); int64 [R, Y]."""
        cells = zip(self.plans, self.runs, strict=True)
        age_RY = np.stack([plan.ages(run.seed, step) for plan, run in cells])
        return torch.from_numpy(np.maximum(step - age_RY, 0))

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return the samples of this step, marked with their versions."""
        self.versions.write(theta_RP, step)
        version_RY = self.version(step)
        past_RY = (version_RY - self.past).clamp(min=0)
        past_XP = self.versions.read(past_RY).flatten(0, 1) if self.past else None
        behavior = BehaviorWeights(self.versions.read(version_RY).flatten(0, 1), self.slices, past_XP)
        older = (past_XP,) if self.past else ()
        rollout = self.world.generate(behavior.weights_XP, step, self.slices, *older)
        return Generated(with_version(rollout, version_RY), behavior, self._cost(step))

    def _cost(self, step: int) -> dict[str, NDArray[np.float64]]:
        """Return what an age limit made the trainer wait or throw away, by metric name."""
        cells = zip(self.plans, self.runs, strict=True)
        rows = [plan.limit.counts(run, step) for plan, run in cells if plan.limit is not None]
        return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def by_distribution(name: str, distribution: AgeDistribution, slices: int = 1) -> ByAge:
    """Return the plan by which every slice of a batch draws its age, by (seed, step) alone.

    Where there is one age there is nothing to draw and the batch stays in one piece, so that no schedule can
    tell itself from exact(age). Raises UserError for slices < 1.
    """
    if slices < 1:
        raise UserError(f"slices is {slices}, expected at least 1.")
    alone = distribution.age_K.size == 1

    def ages(seed: int, step: int) -> NDArray[np.int64]:
        if alone:
            return distribution.age_K
        return distribution.draw(rng.generator(seed, f"staleness/{name}", step).random(slices))

    return ByAge(
        ages,
        depth=distribution.longest + 1,
        slices=1 if alone else slices,
        shortest=distribution.shortest,
        mean=distribution.mean,
        distribution=distribution,
    )


def check_mean(name: str, lag: int, distribution: AgeDistribution) -> None:
    """Raise UserError unless lag is the mean age, rounded up: 0 only where every sample is fresh."""
    expected = math.ceil(distribution.mean - 1e-9)
    if lag != expected:
        raise UserError(
            f"lag is {lag}, but the ages of schedule '{name}' are {distribution.mean:g} on average; "
            f"set lag={expected}{'' if expected == distribution.mean else ', the mean rounded up'}."
        )


def with_version(rollout: Rollout, version_RY: Tensor) -> Rollout:
    """Return the rollout with every token marked by the version of its slice."""
    R, B, T = rollout.token_RBT.shape
    version_RB = version_RY.to(rollout.token_RBT.device).repeat_interleave(B // version_RY.shape[1], dim=1)
    return replace(rollout, version_RBT=version_RB[..., None].expand(R, B, T))
