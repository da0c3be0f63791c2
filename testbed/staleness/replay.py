"""Replay: most of a batch comes from earlier generations, chosen by age, number of uses and a priority."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed import rng
from testbed.config.run import Run
from testbed.data.batch import REPLAY, ROLLOUT
from testbed.data.rollout import Rollout
from testbed.data.select import pick_groups
from testbed.errors import UserError, unknown
from testbed.staleness import schedule
from testbed.staleness.by_age import with_version
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.worlds.world import World

LOG_LEAST, LOG_MOST = -12.0, 7.0
"""Bound at which ARB clips log-probabilities before averaging."""
LEAST_WEIGHT = 1e-12
"""Log-weight of a group without advantage: such groups come last, in random order."""


@dataclass(frozen=True)
class Replay(SchedulePlan):
    """A plan in which a share of a batch is fresh and the rest comes from the last `window` generations.

    counts: True if an age limit discards groups with uses left.
    """

    share: float
    reuse: int
    window: int
    priority: str
    alpha: float
    decay: float
    counts: bool = False
    shortest: int = 0
    mean: float = float("nan")

    def versions(self, run: Run, length: int) -> int:
        """Return 0: it stores generated samples, not weights."""
        del run, length
        return 0

    def within(self, run: Run) -> "Replay":
        """Return the plan under an age limit: older groups leave the store, so nothing waits."""
        if run.too_old not in ("wait", "discard") or run.age_limit >= self.window:
            return self
        return replace(self, window=run.age_limit, counts=run.too_old == "discard")

    def source(
        self, plans: "Sequence[Replay]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "ReplaySource":
        """Return the source of a pack; raise UserError if the fresh share is less than one group."""
        del theta_RP
        return ReplaySource(plans[0], runs, world)


@dataclass
class Stored:
    """One step's generation. uses_RN: uses of each group in training; 0 for one that never was fresh."""

    rollout: Rollout
    uses_RN: Ints


class ReplaySource:
    """Generate, store, and mix fresh and stored groups."""

    def __init__(self, plan: Replay, runs: tuple[Run, ...], world: "World") -> None:
        self.plan, self.world, self.prompts = plan, world, runs[0].prompts
        self.seeds = tuple(run.seed for run in runs)
        self.fresh = round(plan.share * self.prompts)
        if self.fresh < 1:
            raise UserError(
                f"a fresh share of {plan.share:g} of {self.prompts} prompts is less than one group; "
                "raise `prompts` or staleness_args.share."
            )
        self.store: deque[Stored] = deque(maxlen=max(plan.window, 1))

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return fresh groups and stored ones; fresh ones fill in when too few are stored."""
        version_R1 = torch.full((len(self.seeds), 1), step, dtype=torch.int64, device=theta_RP.device)
        fresh = with_version(self.world.generate(theta_RP, step), version_R1)
        key_RM = self._keys(theta_RP, step)
        choices = [key_M.argsort(kind="stable")[: self._room(key_M)] for key_M in key_RM]
        uses_RN = np.zeros((len(self.seeds), self.prompts), dtype=np.int64)
        index_RN = np.tile(np.arange(self.prompts), (len(self.seeds), 1))
        for r, chosen in enumerate(choices):
            kept = self.prompts - len(chosen)
            uses_RN[r, :kept] = 1
            index_RN[r, kept:] = self.prompts + chosen
            for number in chosen:
                self.store[number // self.prompts].uses_RN[r, number % self.prompts] += 1
        rollout = fresh
        if self.plan.share < 1:
            origin = torch.full_like(fresh.reward_RB, ROLLOUT, dtype=torch.int64)
            index = torch.from_numpy(index_RN).to(theta_RP.device)
            stored = [_replayed(each.rollout) for each in self.store]
            rollout = pick_groups([replace(fresh, origin_RB=origin), *stored], index)
        replayed_R = (index_RN >= self.prompts).mean(-1)
        lost_R = self._forget(Stored(fresh, uses_RN))
        lost = {"staleness/discarded": lost_R} if self.plan.counts else {}
        return Generated(rollout, None, {"staleness/replayed_share": replayed_R, **lost})

    def _room(self, key_M: Floats) -> int:
        """Return the number of stored groups that fill up the batch, at most those stored."""
        return min(self.prompts - self.fresh, int(np.isfinite(key_M).sum()))

    def _forget(self, newest: Stored) -> Floats:
        """Store the newest; return how many groups with uses left leave the store; [R]."""
        lost_R = np.zeros(len(self.seeds))
        if self.plan.window == 0 or len(self.store) == self.store.maxlen:
            uses_RN = self.store[0].uses_RN if self.store else newest.uses_RN
            lost_R = ((uses_RN > 0) & (uses_RN < self.plan.reuse)).sum(-1).astype(np.float64)
        if self.plan.window:
            self.store.append(newest)
        return lost_R

    def _keys(self, theta_RP: Tensor, step: int) -> Floats:
        """Return a key per stored group, oldest generation first; the lowest keys are used; [R, M].

        key = -log w - Gumbel noise draws groups without replacement, each with probability w / sum w of those
        left (Efraimidis and Spirakis, 2006); inf: unusable.
        """
        if not self.store or self.fresh == self.prompts:
            return np.zeros((len(self.seeds), 0))
        uses_RM = np.concatenate([each.uses_RN for each in self.store], axis=1)
        # A generation's draws depend on its age, not on its position in the store.
        shape = (len(self.store), self.prompts)
        streams = (rng.generator(seed, "staleness/replay", step) for seed in self.seeds)
        uniform_RAN = np.stack([stream.random(shape)[::-1] for stream in streams])
        # A uniform of 0 would be noise of inf, and an infinite key counts as unusable.
        gumbel_RM = -np.log(-np.log1p(-np.maximum(uniform_RAN.reshape(uses_RM.shape), 2.0**-60)))
        key_RM = -self._log_weight(theta_RP) - gumbel_RM
        return np.where((uses_RM > 0) & (uses_RM < self.plan.reuse), key_RM, np.inf)

    def _log_weight(self, theta_RP: Tensor) -> Floats:
        stored = [each.rollout for each in self.store]
        if self.plan.priority == "on-policy":
            return on_policyness(self.world, theta_RP, stored, self.plan.alpha)
        if self.plan.priority == "advantage":
            return recent_advantage(stored, self.plan.decay)
        return np.zeros((len(self.seeds), len(stored) * self.prompts))


def on_policyness(world: "World", theta_RP: Tensor, stored: Sequence[Rollout], alpha: float) -> Floats:
    """log w = u / alpha, u = mean over a group's sequences of mean token log pi, clipped to [-12, 7]; [R, M].

    pi: the current weights. A common factor of all weights changes nothing. Source: ARB, arXiv:2512.10510.
    """
    index_M = torch.arange(sum(each.prompt_RNQ.shape[1] for each in stored), device=theta_RP.device)
    together = pick_groups(stored, index_M.expand(len(theta_RP), -1))
    with torch.no_grad():
        logp_RBT = world.logp(theta_RP, together).clamp(LOG_LEAST, LOG_MOST)
    mask_RBT = together.mask_RBT
    mean_RB = torch.where(mask_RBT, logp_RBT, torch.zeros_like(logp_RBT)).sum(-1) / mask_RBT.sum(-1)
    group_RM: Floats = mean_RB.unflatten(1, (-1, together.group)).mean(-1).double().cpu().numpy()
    return group_RM / alpha


def recent_advantage(stored: Sequence[Rollout], decay: float) -> Floats:
    """log w = log(mean |reward - group mean| + 1e-12) + age log decay; the newest has age 1; [R, M]."""
    parts = []
    for age, rollout in zip(range(len(stored), 0, -1), stored, strict=True):
        reward_RNG = rollout.reward_RB.unflatten(1, (-1, rollout.group)).double().cpu().numpy()
        spread_RN = np.abs(reward_RNG - reward_RNG.mean(-1, keepdims=True)).mean(-1)
        parts.append(np.log(spread_RN + LEAST_WEIGHT) + age * np.log(decay))
    return np.concatenate(parts, axis=1)


def _replayed(rollout: Rollout) -> Rollout:
    return replace(rollout, origin_RB=torch.full_like(rollout.reward_RB, REPLAY, dtype=torch.int64))


PRIORITIES = ("uniform", "on-policy", "advantage")


@schedule("replay", source="ARB (2025), arXiv:2512.10510; sampling: Efraimidis and Spirakis (2006)")
def replay(
    lag: int,
    *,
    share: float = 0.25,
    reuse: int = 4,
    window: int = 8,
    priority: str = "uniform",
    alpha: float = 5.0,
    decay: float = 0.9,
) -> Replay:
    """age = 0 for a fresh `share` of every batch, 1 .. window for groups from earlier generations.

    Every group is used at most `reuse` times, the fresh use included, and once per batch. If the store has
    too few groups, as at the start, more of the batch is fresh. Only fresh groups are stored. priority:
    "uniform"; "on-policy", weight exp(u / alpha) with u the mean token log-probability under the current
    weights (ARB), one more pass over the store per step; "advantage", weight mean |advantage| at generation
    times decay^age.
    """
    if lag:
        raise UserError(f"lag is {lag}, but schedule 'replay' generates with the present weights; set lag=0.")
    if priority not in PRIORITIES:
        raise unknown("priority", priority, PRIORITIES)
    if not 0 < share <= 1 or reuse < 1 or window < 1 or not alpha > 0 or not 0 < decay <= 1:
        raise UserError(
            f"share {share:g}, reuse {reuse}, window {window}, alpha {alpha:g}, decay {decay:g}: expected "
            "0 < share <= 1, 0 < decay <= 1, alpha above 0 and the others at least 1."
        )
    uses = 1 + min(reuse - 1, window)
    if uses * share < 1 - 1e-9:
        raise UserError(
            f"a fresh share of {share:g} needs every group {1 / share:g} times, but reuse {reuse} and window "
            f"{window} allow {uses} uses; raise them or share."
        )
    return Replay(float(share), reuse, window, priority, float(alpha), float(decay))
