"""Partial rollouts: an unfinished response continues under the next weights."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.data.select import pick_groups
from testbed.errors import UserError
from testbed.policies.token_versions import checked_cache
from testbed.staleness import schedule
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.staleness.versions import VersionBuffer
from testbed.worlds.world import World


@dataclass(frozen=True)
class Partial(SchedulePlan):
    """A plan in which every response grows by `tokens` tokens a step until its whole group is done.

    most_versions: limit on the versions kept, 0 for none.
    """

    tokens: int
    cache: str
    most_versions: int
    shortest: int = 0

    def source(
        self, plans: "Sequence[Partial]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "PartialSource":
        """Return the source of a pack; raise UserError if the longest response spans more than the buffer."""
        return PartialSource(plans[0], runs, world, theta_RP)

    def versions(self, run: Run, length: int) -> int:
        """Return the number of steps of the longest response."""
        del run
        parts = -(-length // self.tokens)
        if self.most_versions and parts > self.most_versions:
            raise UserError(
                f"a response of {length} tokens, {self.tokens} per step, is written by {parts} versions, but "
                f"the version buffer keeps {self.most_versions}. Raise versions or tokens."
            )
        return parts


class Done(NamedTuple):
    """A finished group: the generation that finished it, and its position there."""

    rollout: Rollout
    place: int


class PartialSource:
    """Start one batch of groups per step and return one: those finished first, then those started first.

    A group takes at most `parts` steps. As many batches start before step 0, under the starting weights, so
    there is always a full batch of finished groups; none is older than 2 parts.
    """

    def __init__(self, plan: Partial, runs: tuple[Run, ...], world: "World", theta_RP: Tensor) -> None:
        self.world, self.tokens, self.cache = world, plan.tokens, plan.cache
        self.parts = plan.versions(runs[0], world.length)
        self.prompts, self.group = runs[0].prompts, runs[0].group
        self.versions = VersionBuffer(theta_RP, [self.parts] * len(runs), dtype=world.version_dtype)
        self.part_T = torch.arange(world.length, device=theta_RP.device) // plan.tokens
        self.ready: list[deque[Done]] = [deque() for _ in runs]

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Extend every response under the current weights, and return the groups that waited longest."""
        self.versions.write(theta_RP, step)
        first = 1 - self.parts if step == 0 else step
        for now in range(first, step + 1):
            for start in range(now - self.parts + 1, now + 1):
                if start > -self.parts:
                    self._grow(start, now)
        taken = [[line.popleft() for _ in range(self.prompts)] for line in self.ready]
        rollouts = list({id(done.rollout): done.rollout for line in taken for done in line}.values())
        offset = {id(rollout): index * self.prompts for index, rollout in enumerate(rollouts)}
        index_RN = [[offset[id(done.rollout)] + done.place for done in line] for line in taken]
        return Generated(pick_groups(rollouts, torch.tensor(index_RN, device=rollouts[0].reward_RB.device)))

    def _grow(self, start: int, now: int) -> None:
        """Regenerate the batch begun at `start` up to the end of step `now`; keep groups just finished.

        Draws depend on the batch, the sequence and the token alone, so earlier steps' tokens are reproduced
        exactly.
        """
        part_T = self.part_T.clamp(max=now - start)
        version_W = torch.arange(start, now + 1, device=part_T.device).clamp(min=0)
        theta_RWP = self.versions.read(version_W.expand(len(self.ready), -1))
        count = start + self.parts - 1
        rollout = self.world.generate_in_flight(theta_RWP, part_T[None, None], count, self.cache)
        length_RN = rollout.mask_RBT.sum(-1).unflatten(1, (self.prompts, self.group)).amax(-1)
        done_RN = -(-length_RN // self.tokens) - 1 == now - start
        version_RBT = version_W[part_T].expand(rollout.token_RBT.shape)
        rollout = replace(rollout, version_RBT=version_RBT)
        for line, done_N in zip(self.ready, done_RN.tolist(), strict=True):
            line.extend(Done(rollout, place) for place, done in enumerate(done_N) if done)


@schedule(
    "partial", source="Kimi Team (2025), k1.5, arXiv:2501.12599, Section 2.6.2; Fu et al. (2025), AReaL"
)
def partial(lag: int, *, tokens: int = 4, cache: str = "recomputed", versions: int = 0) -> Partial:
    """age of token t = steps since its part t // tokens was written (one part a step), then queued.

    Each step starts a batch of prompts, adds `tokens` tokens to every response in flight under the current
    weights, and trains on one batch of groups: those finished first, then those started first. cache: after
    each step keys and values are discarded and "recomputed", or "kept". versions: limit on the versions kept,
    0 for none. With tokens >= T no rollout is partial: the synchronous trainer.
    """
    if lag:
        raise UserError(
            f"lag is {lag}, but under schedule 'partial' ages follow from lengths; leave lag at 0 and change "
            "staleness_args.tokens."
        )
    if tokens < 1 or versions < 0:
        raise UserError(f"tokens {tokens} and versions {versions}: expected at least 1 and 0.")
    return Partial(tokens, checked_cache(cache), versions)
