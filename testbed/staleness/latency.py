"""A group takes as long as its longest response, so age depends on length; finished groups queue."""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.data.select import pick_groups
from testbed.errors import UserError
from testbed.staleness import schedule
from testbed.staleness.by_age import with_version
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.worlds.world import World

STRIDE = 2**20
"""Random streams: wait w before a step draws from stream step + w STRIDE."""
MOST_WAITS = 2**12 - 1
"""Counters have 32 bits: STRIDE * (MOST_WAITS + 1) of them."""


@dataclass(frozen=True)
class Latency(SchedulePlan):
    """A plan in which a group is ready base + ceil(longest response / speed) time steps after its start.

    limit, rule: the age limit and its rule, if they change which groups are used.
    """

    speed: float
    base: int
    concurrency: int
    limit: int = -1
    rule: str = ""
    shortest: int = 0
    mean: float = float("nan")

    def versions(self, run: Run, length: int) -> int:
        """Return 0: it stores generated samples, not weights."""
        del run, length
        return 0

    def within(self, run: Run) -> "Latency":
        """Return the plan under an age limit."""
        return replace(self, limit=run.age_limit, rule=run.too_old)

    def source(
        self, plans: "Sequence[Latency]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "LatencySource":
        del theta_RP
        return LatencySource(plans, runs, world)


def time_of_groups(length_xG: Ints, speed: float, base: int) -> Ints:
    """Return base + ceil(longest response / speed), the time steps that each group takes, int64 [x]."""
    latency_x: Ints = base + np.ceil(length_xG.max(-1) / speed).astype(np.int64)
    return latency_x


class Group(NamedTuple):
    """A group: when it is ready, its start number, its weights and the location of its samples."""

    due: int
    number: int
    version: int
    draw: int
    place: int


class CellQueue:
    """One cell's groups: in flight, ready, and chosen for the next batch."""

    def __init__(self, plan: Latency, prompts: int) -> None:
        self.plan, self.prompts = plan, prompts
        self.clock = self.started = self.used = 0
        self.flying: list[Group] = []
        self.ready: deque[Group] = deque()
        self.batch: list[Group] = []
        self.lost: list[Group] = []

    def room(self) -> int:
        """Return how many groups may start now."""
        room = self.prompts
        if self.plan.concurrency:
            room = min(room, self.plan.concurrency - len(self.flying))
        if self.plan.rule == "wait":
            # A group within the (limit + 1) batches in flight, trained in order, meets the limit.
            out = len(self.flying) + len(self.ready) + len(self.batch)
            room = min(room, (self.plan.limit + 1) * self.prompts - out)
        return room

    def start(self, latency_N: Ints, version: int, draw: int) -> None:
        """Start as many drawn groups as there is room for, in order; advance one time step."""
        for place in range(self.room()):
            due = self.clock + int(latency_N[place])
            heapq.heappush(self.flying, Group(due, self.started, version, draw, place))
            self.started += 1
        self.land()
        self.clock += 1

    def land(self) -> None:
        """Move finished groups from flight to the queue."""
        while self.flying and self.flying[0].due <= self.clock:
            self.ready.append(heapq.heappop(self.flying))

    def fill(self, step: int) -> None:
        """Move groups from the queue to the batch until it is full."""
        if self.plan.rule == "wait":
            # Trained in the order of their starts: a group that ends early waits for those before it.
            self.ready = deque(sorted(self.ready, key=lambda group: group.number))
        while self.ready and len(self.batch) < self.prompts:
            if self.plan.rule == "wait" and self.ready[0].number != self.used:
                break
            group = self.ready.popleft()
            too_old = self.plan.rule == "discard" and step - group.version > self.plan.limit
            (self.lost if too_old else self.batch).append(group)
            self.used += 1

    def take(self) -> tuple[list[Group], list[Group]]:
        """Return and clear the full batch and the groups discarded for it."""
        taken = self.batch, self.lost
        self.batch, self.lost = [], []
        return taken

    def held(self) -> set[int]:
        """Return the draws that have samples which may still be used."""
        return {group.draw for group in (*self.flying, *self.ready)}


class LatencySource:
    """Simulate generation and training, one time step per update or wait."""

    def __init__(self, plans: Sequence[Latency], runs: tuple[Run, ...], world: "World") -> None:
        self.world, self.prompts, self.group = world, runs[0].prompts, runs[0].group
        self.speed, self.base = plans[0].speed, plans[0].base
        self.discards = plans[0].rule == "discard"
        self.lines = [CellQueue(plan, self.prompts) for plan in plans]
        self.drawn: dict[int, Rollout] = {}
        self.length_RN: dict[int, Floats] = {}
        self.draws = 0
        if runs[0].steps > STRIDE:
            raise UserError(
                f"steps is {runs[0].steps}, but schedule 'latency' has random numbers for {STRIDE} only."
            )

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return the next groups of every cell, after each cell's waits."""
        waits_R, made_R = np.zeros(len(self.lines)), np.zeros(0)
        for wait in count():
            late = [line for line in self.lines if not wait or len(line.batch) < self.prompts]
            if not late:
                break
            if wait > MOST_WAITS:
                raise UserError(
                    f"at step {step} the trainer has waited {MOST_WAITS} time steps for {self.prompts} "
                    "groups; raise staleness_args.speed or staleness_args.concurrency."
                )
            waits_R += [line in late for line in self.lines]
            for line in late:
                line.land()
            # Without room in any queue nothing starts, and the durations of the last round are not read.
            if not wait or any(line.room() for line in late):
                latency_RN = self._generate(theta_RP, step, wait)
                made_R = made_R if wait else self.length_RN[self.draws].mean(-1)
            for line, latency_N in zip(self.lines, latency_RN, strict=True):
                if line in late:
                    line.start(latency_N, step, self.draws)
                    line.fill(step)
        # The first round is the time step itself, so only the later ones are waits.
        return self._delivered(waits_R - 1, made_R)

    def _generate(self, theta_RP: Tensor, step: int, wait: int) -> Ints:
        """Store the groups generated by the current weights; return each group's duration, int64 [R, N]."""
        shape = (len(self.lines), self.prompts)
        rollout = self.world.generate(theta_RP, step + wait * STRIDE)
        version_R1 = torch.full((shape[0], 1), step, dtype=torch.int64, device=theta_RP.device)
        self.draws += 1
        self.drawn[self.draws] = with_version(rollout, version_R1)
        length_RNG = rollout.mask_RBT.sum(-1).reshape(*shape, self.group).cpu().numpy()
        self.length_RN[self.draws] = length_RNG.mean(-1)
        return time_of_groups(length_RNG, self.speed, self.base)

    def _delivered(self, waits_R: Floats, made_R: Floats) -> Generated:
        taken = [line.take() for line in self.lines]
        draws = sorted({group.draw for batch, _ in taken for group in batch})
        first = {draw: position * self.prompts for position, draw in enumerate(draws)}
        index_RN = [[first[group.draw] + group.place for group in batch] for batch, _ in taken]
        rollouts = [self.drawn[draw] for draw in draws]
        device = rollouts[0].reward_RB.device
        rollout = pick_groups(rollouts, torch.tensor(index_RN, dtype=torch.int64, device=device))
        counts = {
            "staleness/stalled": waits_R,
            "staleness/length_made": made_R,
            "staleness/length_kept": self._lengths([batch for batch, _ in taken]),
        }
        if self.discards:
            counts["staleness/discarded"] = np.array([float(len(lost)) for _, lost in taken])
            counts["staleness/length_lost"] = self._lengths([lost for _, lost in taken])
        held = set().union(*(line.held() for line in self.lines))
        for draw in [draw for draw in self.drawn if draw not in held]:
            del self.drawn[draw], self.length_RN[draw]
        return Generated(rollout, None, counts)

    def _lengths(self, groups_R: Sequence[Sequence[Group]]) -> Floats:
        """Return the mean length of each replica's groups, NaN if there are none; [R]."""
        lengths = (
            [self.length_RN[group.draw][r, group.place] for group in groups]
            for r, groups in enumerate(groups_R)
        )
        return np.array([np.mean(each) if each else np.nan for each in lengths])


@schedule("latency", source="Applied Compute (2026), queue-max against queue-drop; the simulation is our own")
def latency(lag: int, *, speed: float = 1.0, base: int = 0, concurrency: int = 0) -> Latency:
    """age = updates between start and use; a group takes base + ceil(longest response / speed) time steps.

    Time advances in steps of the trainer. In each step finished groups join a queue, ordered by finish, then
    by start. `prompts` new groups start under the current weights, while fewer than `concurrency` are in
    flight (0 sets no limit). The trainer updates on the first `prompts` groups of the queue. If there are
    fewer it waits: time passes and groups start, but the weights stay. So the first batch comes from the
    starting weights, after waits (warm-up). Ages count updates, not waits. speed: tokens per time step; inf
    with base 0 makes every age 0: the synchronous trainer.
    """
    if lag:
        raise UserError(
            f"lag is {lag}, but under schedule 'latency' ages follow from lengths; leave lag at 0 and change "
            "staleness_args: speed, base, concurrency."
        )
    if not speed > 0 or base < 0 or concurrency < 0:
        raise UserError(
            f"speed {speed:g}, base {base}, concurrency {concurrency}: expected a speed above 0 and the "
            "others at least 0."
        )
    return Latency(float(speed), base, concurrency)
