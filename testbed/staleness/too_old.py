"""What becomes of samples that are older than Run.age_limit, under every schedule.

A sample is one group of responses, as old as its oldest token. Age: optimizer steps since the weights.

wait: nobody trains on older samples, because the trainer waits for younger ones: ages are cut at the limit.
discard: too old samples are thrown away, and the next ones take their places.
drop: they leave the batch, which gets smaller; a batch that is left empty makes no update.
truncate: tokens that are too old leave the loss. A sequence without any other leaves the batch, but its
group goes on without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.data.select import pick_groups
from testbed.errors import UserError
from testbed.staleness.age_law import AgeLaw
from testbed.staleness.base import Generated, Source
from testbed.staleness.by_age import Ages, ByAge
from testbed.worlds.base import BehaviorWeights

MOST_SKIPPED = 10_000
"""Batches that may be discarded in a row, before the schedule counts as one that makes nothing else."""


def limited(plan: Any, run: Run) -> Any:
    """Return the plan of a cell with an age limit; raise UserError where no sample can be young enough.

    A plan that has to know the limit while it makes batches has a method within(limit, too_old).
    """
    limit, rule = run.age_limit, run.too_old
    if limit < 0:
        return plan
    if math.isinf(plan.shortest):
        raise UserError(
            f"age_limit is {limit}, but under schedule '{run.staleness}' samples grow older without end, so "
            "that all of them are too old in the end; set age_limit to -1."
        )
    if plan.shortest > limit:
        raise UserError(
            f"age_limit is {limit}, but schedule '{run.staleness}' with lag {run.lag} makes no sample "
            f"younger than {plan.shortest:g} steps; raise age_limit to {plan.shortest:g} or lower lag."
        )
    if isinstance(plan, ByAge):
        return _limited_ages(plan, run)
    if hasattr(plan, "within"):
        return plan.within(limit, rule)
    if rule not in RAGGED:
        raise UserError(
            f"schedule '{run.staleness}' cannot {rule} for samples older than age_limit = {limit}; expected "
            f"too_old {' or '.join(RAGGED)}."
        )
    return plan


def _limited_ages(plan: ByAge, run: Run) -> ByAge:
    if run.too_old in RAGGED:
        return plan
    limit, ages = run.age_limit, plan.ages
    cut = Waiting(ages, limit) if run.too_old == "wait" else Discarding(ages, limit, run)
    depth = limit + 1 if plan.first else min(plan.depth, limit + 1)
    law = None if plan.law is None else cut.law(plan.law)
    mean = float("nan") if law is None else law.mean
    return replace(plan, ages=cut, depth=depth, first=False, mean=mean, law=law)


@dataclass(frozen=True)
class Waiting:
    """Ages cut at a limit: who would be older is waited for, with newer weights."""

    ages: Ages
    limit: int

    def __call__(self, seed: int, step: int) -> NDArray[np.int64]:
        return np.minimum(self.ages(seed, step), self.limit)

    def law(self, law: AgeLaw) -> AgeLaw:
        """Return the law of min(age, limit)."""
        age_K = np.unique(np.minimum(law.age_K, self.limit))
        share_K = [law.share_K[np.minimum(law.age_K, self.limit) == age].sum() for age in age_K]
        return AgeLaw.of(age_K, share_K)

    def counts(self, run: Run, step: int) -> dict[str, float]:
        """Return the steps of time that the trainer waits before this step for the slowest slice."""
        oldest = int(np.minimum(self.ages(run.seed, step), step).max())
        return {"staleness/stalled": float(max(oldest - self.limit, 0))}


@dataclass
class Discarding:
    """The ages of a schedule in their order, without those above a limit; a function of (seed, step).

    read: slices of the schedule that were looked at, per seed. kept, lost: per seed and step, the ages that
    are used and the number of slices that were thrown away before they were complete.
    """

    ages: Ages
    limit: int
    run: Run
    read: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[NDArray[np.int64]]] = field(default_factory=dict)
    lost: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, seed: int, step: int) -> NDArray[np.int64]:
        while len(self.kept.setdefault(seed, [])) <= step:
            self._next(seed)
        return self.kept[seed][step]

    def law(self, law: AgeLaw) -> AgeLaw:
        """Return the law of the age given that it is at most the limit."""
        young_K = law.age_K <= self.limit
        return AgeLaw.of(law.age_K[young_K], law.share_K[young_K])

    def _next(self, seed: int) -> None:
        step, read = len(self.kept[seed]), self.read.get(seed, 0)
        slices = len(self.ages(seed, 0))
        chosen: list[int] = []
        start = read
        while len(chosen) < slices:
            # At the start of a run nothing is older than the run itself.
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
        """Return the groups thrown away before this step's batch was complete."""
        slices = len(self(run.seed, step))
        return {"staleness/discarded": self.lost[run.seed][step] * run.prompts / slices}


def with_age_limit(source: Source, plans: list[Any], runs: tuple[Run, ...]) -> Source:
    """Return the source with what the limit asks of it beside the plans; itself where that is nothing.

    Raises UserError for stacked cells whose batches may differ in size.
    """
    if runs[0].age_limit < 0:
        return source
    if runs[0].too_old in RAGGED:
        if len(runs) > 1:
            raise UserError(
                f"too_old '{runs[0].too_old}' makes batches of unequal size, so {len(runs)} cells cannot run "
                "stacked; train them one by one, as testbed.execution.packs plans it."
            )
        return Leaving(source, runs[0].age_limit, runs[0].too_old)
    if isinstance(plans[0], ByAge):
        return Counting(source, plans, runs)
    return source


@dataclass(frozen=True)
class Counting:
    """A source whose plans know what the limit costs."""

    source: Source
    plans: list[ByAge]
    runs: tuple[Run, ...]

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return the batch with what was waited for or thrown away."""
        generated = self.source.batch(theta_RP, step)
        cells = zip(self.plans, self.runs, strict=True)
        counted = [plan.ages.counts(run, step) for plan, run in cells]  # type: ignore[attr-defined]
        counts = {name: np.array([row[name] for row in counted]) for name in counted[0]}
        return replace(generated, counts={**generated.counts, **counts})


@dataclass(frozen=True)
class Leaving:
    """A source of one replica whose batches lose what is too old."""

    source: Source
    limit: int
    rule: str

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return what is left of the batch, and how much that is."""
        generated = self.source.batch(theta_RP, step)
        leave = drop if self.rule == "drop" else truncate
        left = leave(generated, step, self.limit)
        before, after = generated.rollout.reward_RB.shape[1], left.rollout.reward_RB.shape[1]
        counts = {
            "staleness/dropped_share": np.array([1.0 - after / before]),
            "staleness/empty": np.array([float(after == 0)]),
        }
        return replace(left, counts={**generated.counts, **left.counts, **counts})


def drop(generated: Generated, step: int, limit: int) -> Generated:
    """Return the batch of one replica without the groups of which a token is older than the limit."""
    rollout = generated.rollout
    old_RB = (too_old(rollout, step, limit)).any(-1)
    keep_N = ~old_RB.unflatten(1, (-1, rollout.group)).any(-1)[0]
    lengths = length_counts(rollout, ~keep_N.repeat_interleave(rollout.group)[None])
    kept = pick_groups([rollout], keep_N.nonzero()[:, 0][None])
    return Generated(kept, _rest(generated.behavior, keep_N), lengths)


def truncate(generated: Generated, step: int, limit: int) -> Generated:
    """Return the batch of one replica with only young tokens in the mask, and the sequences that have any."""
    rollout = generated.rollout
    old_RBT = too_old(rollout, step, limit)
    mask_RBT = rollout.mask_RBT & ~old_RBT
    lost_RB = ~mask_RBT.any(-1)
    counts = {
        **length_counts(rollout, lost_RB),
        "staleness/masked_share": (old_RBT.sum((1, 2)) / rollout.mask_RBT.sum((1, 2))).cpu().numpy(),
    }
    zeroed_RBT = rollout.logp_mu_RBT.masked_fill(old_RBT, 0.0)
    rollout = replace(rollout, mask_RBT=mask_RBT, logp_mu_RBT=zeroed_RBT)
    if not bool(lost_RB.any()):
        return Generated(rollout, generated.behavior, counts)
    return Generated(_single(rollout, ~lost_RB[0]), None, counts)


def _single(rollout: Rollout, keep_B: Tensor) -> Rollout:
    """Return some sequences of one replica, each with its own prompt and the number of its group."""
    alone = replace(
        rollout,
        prompt_RNK=rollout.prompt_RNK.repeat_interleave(rollout.group, dim=1),
        group=1,
        group_RB=rollout.groups(),
    )
    kept = pick_groups([alone], keep_B.nonzero()[:, 0][None])
    # Group numbers lie below the number of sequences, however many have left.
    number_B = kept.groups()[0].unique(return_inverse=True)[1]
    return replace(kept, group_RB=number_B[None])


def _rest(behavior: BehaviorWeights | None, keep_N: Tensor) -> BehaviorWeights | None:
    """Return the weights of the slices that are left; None where a slice is left in part, or none is."""
    if behavior is None:
        return None
    keep_SN = keep_N.unflatten(0, (behavior.slices, -1))
    whole_S = keep_SN.all(-1)
    if not bool(whole_S.any()) or bool((keep_SN.any(-1) & ~whole_S).any()):
        return None
    past_XP = None if behavior.past_XP is None else behavior.past_XP[whole_S]
    return BehaviorWeights(behavior.weights_XP[whole_S], int(whole_S.sum()), past_XP)


def too_old(rollout: Rollout, step: int, limit: int) -> Tensor:
    """Return which tokens under the mask are older than the limit; bool [R, B, T]."""
    if rollout.version_RBT is None:
        raise ValueError("a rollout without versions has no ages")
    return rollout.mask_RBT & (step - rollout.version_RBT > limit)


def length_counts(rollout: Rollout, lost_RB: Tensor) -> Mapping[str, NDArray[np.float64]]:
    """Return the mean length in tokens of the sequences that stay and that are lost; NaN where none is."""
    length_RB = rollout.mask_RBT.sum(-1).double()
    parts = {"staleness/length_kept": ~lost_RB, "staleness/length_lost": lost_RB}
    return {
        name: ((length_RB * chosen_RB).sum(-1) / chosen_RB.sum(-1)).cpu().numpy()
        for name, chosen_RB in parts.items()
    }
