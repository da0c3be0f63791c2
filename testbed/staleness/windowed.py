"""Windowed generation: every step generates one window of each response and trains on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from testbed.worlds.task_registry import longest_response, task_for
from testbed.worlds.world import World


@dataclass(frozen=True)
class Windowed(SchedulePlan):
    """A plan in which a batch holds one window of `tokens` tokens of every response in flight."""

    tokens: int
    cache: str
    shortest: int = 0

    def check(self, run: Run) -> None:
        """Raise UserError if windows could be empty, or the prompts do not divide among them."""
        parts = self.versions(run, longest_response(run))
        if getattr(task_for(run), "end_token", None) is not None:
            raise UserError(
                f"staleness is 'windowed', but responses of task '{run.task}' may end in any window, and "
                "later ones would be empty; take a task of fixed length, as 'running-sum'."
            )
        if run.prompts % parts:
            raise UserError(
                f"prompts is {run.prompts}, but a response takes {parts} windows of {self.tokens} tokens, "
                f"each with as many prompts; expected a multiple of {parts}."
            )

    def source(
        self, plans: "Sequence[Windowed]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "WindowedSource":
        return WindowedSource(plans[0], runs, world, theta_RP)

    def versions(self, run: Run, length: int) -> int:
        """Return the number of windows of the longest response, each written by a different version."""
        del run
        return -(-length // self.tokens)


class WindowedSource:
    """Build a step's batch: an equal part of each of the last `parts` prompt batches, in its current window.

    Batches begun before step 0 are written with the starting weights.
    """

    def __init__(self, plan: Windowed, runs: tuple[Run, ...], world: "World", theta_RP: Tensor) -> None:
        self.world, self.cache = world, plan.cache
        self.parts, self.prompts = plan.versions(runs[0], world.length), runs[0].prompts
        self.versions = VersionBuffer(theta_RP, [self.parts] * len(runs), dtype=world.version_dtype)
        self.window_T = torch.arange(world.length, device=theta_RP.device) // plan.tokens

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Extend every response by a window under the current weights, and return these windows."""
        self.versions.write(theta_RP, step)
        grown = [self._window(step, k, len(theta_RP)) for k in range(self.parts)]
        share = self.prompts // self.parts
        # A batch's prompts keep their slot, which no other batch in flight has.
        starts = (k * self.prompts + (step - k) % self.parts * share for k in range(self.parts))
        index_N = torch.cat([start + torch.arange(share) for start in starts])
        index_RN = index_N.to(theta_RP.device).expand(len(theta_RP), -1)
        return Generated(pick_groups(grown, index_RN))

    def _window(self, step: int, k: int, replicas: int) -> Rollout:
        """Return the current window, k, of the batch begun k steps ago; later tokens are unknown."""
        start = step - k
        version_W = torch.arange(start, step + 1, device=self.window_T.device).clamp(min=0)
        part_T = self.window_T.clamp(max=k)
        theta_RWP = self.versions.read(version_W.expand(replicas, -1))
        # Draws depend on the batch, the sequence and the token alone: earlier windows are reproduced.
        count = start + self.parts - 1
        rollout = self.world.generate_in_flight(theta_RWP, part_T[None, None], count, self.cache)
        last = k == self.parts - 1
        return replace(
            rollout,
            mask_RBT=rollout.mask_RBT & (self.window_T == k),
            version_RBT=version_W[part_T].expand(rollout.token_RBT.shape),
            reward_RB=rollout.reward_RB if last else torch.zeros_like(rollout.reward_RB),
            truncated_RB=torch.full_like(rollout.reward_RB, not last, dtype=torch.bool),
        )


@schedule("windowed", source="T-PPO (2025), arXiv:2506.15050; from secondary notes")
def windowed(lag: int, *, tokens: int = 4, cache: str = "recomputed") -> Windowed:
    """age = 0 for the tokens of the window that a step writes; the loss reads only these.

    A response of T tokens takes ceil(T / tokens) steps; only its last window has the reward. The others are
    truncated, as advantage egae and the critics know. cache: see schedule partial.
    """
    if lag:
        raise UserError(
            f"lag is {lag}, but schedule 'windowed' trains on tokens written in the same step; expected "
            "lag 0."
        )
    if tokens < 1:
        raise UserError(f"staleness_args.tokens is {tokens}, expected at least 1.")
    return Windowed(tokens, checked_cache(cache))
