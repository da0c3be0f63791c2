"""Batches by weights of known ages: the samples of step t come from the weights of step t - age."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed import rng
from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.staleness.age_distribution import AgeDistribution, Ages
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.staleness.versions import VersionBuffer
from testbed.worlds.generation import engine_of
from testbed.worlds.world import BehaviorWeights, World

MOST_SKIPPED = 10_000
"""Number of batches discarded in a row after which a schedule counts as unusable."""


@dataclass(frozen=True)
class Waiting:
    """Ages truncated at a limit: the trainer waits for newer weights instead of using older samples."""

    ages: Ages
    limit: int

    def __call__(self, seed: int, step: int) -> Ints:
        return np.minimum(self.ages(seed, step), self.limit)

    def distribution(self, distribution: AgeDistribution) -> AgeDistribution:
        """Return the distribution of min(age, limit)."""
        cut_K = np.minimum(distribution.age_K, self.limit)
        age_K = np.unique(cut_K)
        share_K = [distribution.share_K[cut_K == age].sum() for age in age_K]
        return AgeDistribution.of(age_K, share_K)

    def counts(self, run: Run, step: int) -> dict[str, float]:
        """Return the time steps that the trainer waits before this step for the slowest slice."""
        oldest = int(np.minimum(self.ages(run.seed, step), step).max())
        return {"staleness/stalled": float(max(oldest - self.limit, 0))}


@dataclass
class Discarding:
    """A schedule's ages in order, without those above a limit; a function of (seed, step).

    read: slices of the schedule inspected so far, per seed. kept, lost: per seed and step, the ages used and
    the number of slices discarded before the batch was complete.
    """

    ages: Ages
    limit: int
    run: Run
    read: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[Ints]] = field(default_factory=dict)
    lost: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, seed: int, step: int) -> Ints:
        while len(self.kept.setdefault(seed, [])) <= step:
            self._next(seed)
        return self.kept[seed][step]

    def distribution(self, distribution: AgeDistribution) -> AgeDistribution:
        """Return the distribution of the age conditional on being at most the limit."""
        young_K = distribution.age_K <= self.limit
        return AgeDistribution.of(distribution.age_K[young_K], distribution.share_K[young_K])

    def _next(self, seed: int) -> None:
        step, read = len(self.kept[seed]), self.read.get(seed, 0)
        slices = len(self.ages(seed, 0))
        chosen: list[int] = []
        start = read
        while len(chosen) < slices:
            # Early in a run no sample is older than the run itself.
            age = min(int(self.ages(seed, read // slices)[read % slices]), step)
            chosen += [age] if age <= self.limit else []
            read += 1
            if read - start > MOST_SKIPPED * slices:
                raise UserError(
                    f"at step {step} schedule '{self.run.staleness}' gave {MOST_SKIPPED} batches without a "
                    f"sample of age_limit = {self.limit} steps or less; raise age_limit."
                )
        self.read[seed] = read
        self.kept[seed].append(np.array(chosen))
        self.lost.setdefault(seed, []).append(read - start - slices)

    def counts(self, run: Run, step: int) -> dict[str, float]:
        """Return the groups discarded before this step's batch was complete."""
        slices = len(self(run.seed, step))
        return {"staleness/discarded": self.lost[run.seed][step] * run.prompts / slices}


@dataclass(frozen=True)
class ByAge(SchedulePlan):
    """A plan that assigns an age of weights to every slice of a batch.

    ages: see Ages. depth: number of newest versions it can ask for, the current one included. first: True if
    it also asks for the starting weights when they are older. slices: equal parts of a batch's prompts, each
    with a separate age. shortest, mean: least and mean age in optimizer steps in the long run; inf if ages
    grow without end, NaN if the mean does not exist. distribution: long-run shares of the ages, over slices
    and steps. limit: the effect of an age limit on the ages, and its cost.
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
        """Return the source of a pack; raise UserError if the prompts do not divide into the slices."""
        return ByAgeSource(plans, runs, world, theta_RP)

    def versions(self, run: Run, length: int) -> int:
        """Return the depth, at most the number of the run's steps."""
        del length
        return min(self.depth + engine_of(run).past, run.steps) + self.first

    def within(self, run: Run) -> "ByAge":
        """Return the plan with ages truncated at the limit, or renormalized below it."""
        if run.too_old in RAGGED:
            return self
        wait, limit = run.too_old == "wait", run.age_limit
        cut = Waiting(self.ages, limit) if wait else Discarding(self.ages, limit, run)
        # With `first` the depth does not bound the ages, so the limit alone has to.
        depth = limit + 1 if self.first else min(self.depth, limit + 1)
        left = None if self.distribution is None else cut.distribution(self.distribution)
        mean = math.nan if left is None else left.mean
        return replace(self, ages=cut, depth=depth, first=False, mean=mean, distribution=left, limit=cut)

    def check(self, run: Run) -> None:
        """Raise UserError if the run's prompts do not divide into the slices."""
        if run.prompts % self.slices:
            raise UserError(
                f"prompts is {run.prompts}, which {self.slices} slices of different age cannot share evenly; "
                "change prompts or staleness_args.slices."
            )


class ByAgeSource:
    """Keep the versions that a pack's plans can ask for, and generate every batch from them."""

    def __init__(self, plans: Sequence[ByAge], runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> None:
        self.plans, self.runs, self.world = plans, runs, world
        self.slices = plans[0].slices
        if len({plan.slices for plan in plans}) > 1:
            raise ValueError("cells that cut their batches differently cannot run stacked; see packs.plan")
        # A run of n steps has n versions, however old the weights its schedule may ask for.
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
        """Return this step's samples, marked with their versions."""
        self.versions.write(theta_RP, step)
        version_RY = self.version(step)
        past_RY = (version_RY - self.past).clamp(min=0)
        past_XP = self.versions.read(past_RY).flatten(0, 1) if self.past else None
        behavior = BehaviorWeights(self.versions.read(version_RY).flatten(0, 1), self.slices, past_XP)
        older = (past_XP,) if self.past else ()
        rollout = self.world.generate(behavior.weights_XP, step, self.slices, *older)
        return Generated(with_version(rollout, version_RY), behavior, self._cost(step))

    def _cost(self, step: int) -> dict[str, Floats]:
        """Return the waits or discards that an age limit causes, by metric name."""
        cells = zip(self.plans, self.runs, strict=True)
        rows = [plan.limit.counts(run, step) for plan, run in cells if plan.limit is not None]
        return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def by_distribution(name: str, distribution: AgeDistribution, slices: int = 1) -> ByAge:
    """Return the plan in which every slice draws its age, from (seed, step) alone.

    With a single age nothing is drawn and the batch is not sliced, so the result equals exact(age). Raises
    UserError for slices < 1.
    """
    if slices < 1:
        raise UserError(f"slices is {slices}, expected at least 1.")
    alone = distribution.age_K.size == 1

    def ages(seed: int, step: int) -> Ints:
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
    """Raise UserError unless lag is the mean age, rounded up: 0 only if every sample is fresh."""
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
