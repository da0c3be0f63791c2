"""Handle samples older than Run.age_limit, under every schedule.

A sample is one group of responses, as old as its oldest token. Age: optimizer steps since its weights.

wait: the trainer waits for younger samples: ages are truncated at the limit. discard: samples that are too
old are discarded, and the next ones take their places.
drop: they leave the batch, which shrinks; an empty batch makes no update.
truncate: tokens that are too old leave the loss. A sequence left without tokens leaves the batch; the rest of
its group stays.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from envs.arrays import Floats
from testbed.config.pack import RAGGED
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.data.select import pick_groups
from testbed.errors import UserError
from testbed.staleness.schedule_plan import Generated, SchedulePlan, Source
from testbed.worlds.world import BehaviorWeights


def limited(plan: SchedulePlan, run: Run) -> SchedulePlan:
    """Return the plan of a cell with an age limit; raise UserError if every sample would be too old."""
    limit = run.age_limit
    if limit < 0:
        return plan
    if math.isinf(plan.shortest):
        raise UserError(
            f"age_limit is {limit}, but under schedule '{run.staleness}' the age of samples grows without "
            "bound, so all of them exceed the limit eventually; set age_limit to -1."
        )
    if plan.shortest > limit:
        raise UserError(
            f"age_limit is {limit}, but schedule '{run.staleness}' with lag {run.lag} makes no sample "
            f"younger than {plan.shortest:g} steps; raise age_limit to {plan.shortest:g} or lower lag."
        )
    return plan.within(run)


def with_age_limit(source: Source, runs: tuple[Run, ...]) -> Source:
    """Wrap the source to apply the age rule that plans do not handle; return it unchanged if none is needed.

    Raises UserError for stacked cells if their batch sizes may differ.
    """
    if runs[0].age_limit < 0 or runs[0].too_old not in RAGGED:
        return source
    if len(runs) > 1:
        raise UserError(
            f"too_old '{runs[0].too_old}' makes batches of unequal size, so {len(runs)} cells cannot run "
            "stacked; train them one by one, as testbed.execution.packs plans it."
        )
    return FilteredSource(source, runs[0].age_limit, runs[0].too_old)


@dataclass(frozen=True)
class FilteredSource:
    """A source of one replica that removes samples or tokens that are too old."""

    source: Source
    limit: int
    rule: str

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return the rest of the batch, and its size."""
        generated = self.source.batch(theta_RP, step)
        leave = drop if self.rule == "drop" else truncate
        left = leave(generated, step, self.limit)
        before, after = generated.rollout.reward_RB.shape[1], left.rollout.reward_RB.shape[1]
        share, empty = np.array([1.0 - after / before]), np.array([float(after == 0)])
        counts = {"staleness/dropped_share": share, "staleness/empty": empty}
        return replace(left, counts={**generated.counts, **left.counts, **counts})


def drop(generated: Generated, step: int, limit: int) -> Generated:
    """Return one replica's batch without the groups that have a token older than the limit."""
    rollout = generated.rollout
    old_RB = too_old(rollout, step, limit).any(-1)
    keep_N = ~old_RB.unflatten(1, (-1, rollout.group)).any(-1)[0]
    lengths = length_counts(rollout, ~keep_N.repeat_interleave(rollout.group)[None])
    kept = pick_groups([rollout], keep_N.nonzero()[:, 0][None])
    return Generated(kept, _rest(generated.behavior, keep_N), lengths)


def truncate(generated: Generated, step: int, limit: int) -> Generated:
    """Return one replica's batch with only young tokens in the mask, and the sequences with any left."""
    rollout = generated.rollout
    old_RBT = too_old(rollout, step, limit)
    mask_RBT = rollout.mask_RBT & ~old_RBT
    lost_RB = ~mask_RBT.any(-1)
    share_R = old_RBT.sum((1, 2)) / rollout.mask_RBT.sum((1, 2))
    counts = {**length_counts(rollout, lost_RB), "staleness/masked_share": share_R.cpu().numpy()}
    zeroed_RBT = rollout.logp_mu_RBT.masked_fill(old_RBT, 0.0)
    rollout = replace(rollout, mask_RBT=mask_RBT, logp_mu_RBT=zeroed_RBT)
    if not bool(lost_RB.any()):
        return Generated(rollout, generated.behavior, counts)
    prompt_RBQ = rollout.prompt_RNQ.repeat_interleave(rollout.group, dim=1)
    alone = replace(rollout, prompt_RNQ=prompt_RBQ, group=1, group_RB=rollout.groups())
    kept = pick_groups([alone], (~lost_RB[0]).nonzero()[:, 0][None])
    # Keep group numbers below the number of sequences after removals.
    number_B = kept.groups()[0].unique(return_inverse=True)[1]
    return Generated(replace(kept, group_RB=number_B[None]), None, counts)


def _rest(behavior: BehaviorWeights | None, keep_N: Tensor) -> BehaviorWeights | None:
    """Return the weights of the slices left; None if a slice is left in part, or none is left."""
    if behavior is None:
        return None
    keep_YN = keep_N.unflatten(0, (behavior.slices, -1))
    whole_Y = keep_YN.all(-1)
    if not bool(whole_Y.any()) or bool((keep_YN.any(-1) & ~whole_Y).any()):
        return None
    past_XP = None if behavior.past_XP is None else behavior.past_XP[whole_Y]
    return BehaviorWeights(behavior.weights_XP[whole_Y], int(whole_Y.sum()), past_XP)


def too_old(rollout: Rollout, step: int, limit: int) -> Tensor:
    """Return True for tokens under the mask that are older than the limit; bool [R, B, T]."""
    if rollout.version_RBT is None:
        raise ValueError("a rollout without versions has no ages")
    return rollout.mask_RBT & (step - rollout.version_RBT > limit)


def length_counts(rollout: Rollout, lost_RB: Tensor) -> Mapping[str, Floats]:
    """Return the mean length in tokens of kept and of lost sequences; NaN if there are none."""
    length_RB = rollout.mask_RBT.sum(-1).double()
    parts = {"staleness/length_kept": ~lost_RB, "staleness/length_lost": lost_RB}
    means = {name: (length_RB * part_RB).sum(-1) / part_RB.sum(-1) for name, part_RB in parts.items()}
    return {name: mean_R.cpu().numpy() for name, mean_R in means.items()}
