"""Runs with batches changed before the loss reads them: effects on rewards and advantages.

An arm is a Run and a Change. The loop, the sources, the critics and the losses are the project's own; a
change receives a learner's batch and returns another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from analysis.kernels.on_use import Tensor, torch
from analysis.tables.cell_table import value_of
from envs.arrays import Ints
from testbed.config.run import Run

if TYPE_CHECKING:
    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.world import World

    Change: TypeAlias = Callable[[Batch, Rollout, Tensor, int], Batch]
    """(batch, rollout, log-probabilities before the step [R, B, T], step) -> the batch to learn from."""
    Reward: TypeAlias = Callable[[Rollout, Tensor], Tensor]
    """(rollout, log-probabilities before the step [R, B, T]) -> rewards [R, B]."""
Maker: TypeAlias = "Callable[[World, Tensor], Change]"
"""(world, initial weights [R, P]) -> the change of a pack."""


@dataclass(frozen=True)
class Arm:
    """A run without seed and rate, and its change.

    change: makes the change of a pack; None for none. bend: rewards [R, B] -> rewards to learn from. reward:
    makes the rewards of a pack in place of the verifier's, of which advantages and critics are made. early:
    number of first steps with samples from the initial weights. begin: (world, weights of the base) ->
    initial weights in place of the base, which a change still gets. later: the run whose verifier rewards the
    second half of the steps. read: (world, weights before the step, batch, rollout) -> the batch to learn
    from, for changes that read more than log-probabilities.
    """

    run: Run
    change: Maker | None = None
    bend: Callable[[Tensor], Tensor] | None = None
    reward: Callable[[World, Tensor], Reward] | None = None
    early: int = 0
    begin: Callable[[Any, Tensor], Tensor] | None = None
    later: Run | None = None
    read: Callable[[Any, Tensor, Batch, Rollout], Batch] | None = None


def trained(arm: Arm, runs: tuple[Run, ...]) -> pd.DataFrame:
    """Return the logged rows of cells of one arm, which differ in seed and learning rate only."""
    from testbed.staleness import build_source
    from testbed.teachers import build_teacher
    from testbed.teachers.guides import build_guided
    from testbed.training.learner import Learner
    from testbed.training.loop import mask_nonfinite_replicas
    from testbed.training.recorder import Recorder
    from testbed.training.update import State, Trainer
    from testbed.worlds.build_world import build_world
    from testbed.worlds.rewards import Rewards
    from testbed.worlds.task_registry import token_task

    class Changed(Learner):
        """A learner whose batches are bent and changed."""

        def batch(self, theta_CP: Tensor, rollout: Rollout, logp_CBT: Tensor, step: int) -> Batch:
            if reward is not None:
                rollout = replace(rollout, reward_RB=reward(rollout, logp_CBT.detach()))
            if arm.bend is not None:
                rollout = replace(rollout, reward_RB=arm.bend(rollout.reward_RB))
            made = super().batch(theta_CP, rollout, logp_CBT, step)
            made = arm.read(self.world, theta_CP, made, rollout) if arm.read else made
            return made if change is None else change(made, rollout, logp_CBT.detach(), step)

    world = build_world(runs)
    base_RP = world.initial()
    state = State.start(arm.begin(world, base_RP) if arm.begin else base_RP)
    change = arm.change(world, base_RP) if arm.change else None
    reward = arm.reward(world, base_RP) if arm.reward else None
    teacher = build_teacher(runs, world, state.theta_RP)
    source = build_guided(build_source(runs, world, state.theta_RP), runs, teacher)
    seeds = tuple(run.seed for run in runs)
    judge = Rewards(arm.later, token_task(arm.later), seeds) if arm.later else None
    offline = tuple(replace(run, staleness="offline") for run in runs)
    before = build_source(offline, world, state.theta_RP) if arm.early else source
    trainer = Trainer.of(runs, world, state.theta_RP, teacher, Changed)
    recorder = Recorder(runs, list(range(len(runs))), world, trainer.learners, state.theta_RP)
    torch.set_num_threads(1)
    for step in range(runs[0].steps):
        trainer.switch_recipes(state, step)
        generated = source.batch(state.theta_RP, step)  # also early: it stores the weights of every step
        if step < arm.early:
            generated = before.batch(state.theta_RP, step)
        rollout, state = mask_nonfinite_replicas(generated.rollout, state)
        if judge is not None and step >= runs[0].steps // 2:
            prompts = rollout.prompt_RNQ.cpu().numpy()
            found = judge.train(prompts, rollout.token_RBT, rollout.mask_RBT, rollout.group)
            rollout = replace(rollout, reward_RB=rollout.reward_RB.new_tensor(found))
        rollout = trainer.mix(state.theta_RP, rollout, step)
        update = trainer.first_pass(state.theta_RP, rollout, step, entropy=recorder.due(step))
        recorder.add(step, state, generated, rollout, update)
        state = trainer.learn(state, rollout, update, step)
        recorder.add_last_pass(step)
    return pd.DataFrame(recorder.columns())


def lessons(
    world: Any, base_RP: Tensor, batches: Iterable[tuple[Ints, Ints]], learning_rate: float
) -> Tensor:
    """Return the base's weights after an Adam step of cross entropy on each batch: prompts and answers."""
    from testbed.policies.optimizers import Adam

    theta_RP, optimizer = base_RP.clone(), Adam(base_RP)
    for batch in batches:
        prompt_RNQ, token_RNT = map(torch.from_numpy, batch)
        leaf_RP = theta_RP.detach().requires_grad_()
        logp_RNT = world.policy.logp(leaf_RP, prompt_RNQ, token_RNT, torch.ones_like(token_RNT).bool())
        slope_RP = torch.autograd.grad(-logp_RNT.mean((1, 2)).sum(), leaf_RP)[0]
        theta_RP = optimizer.step(theta_RP, slope_RP, base_RP.new_full((len(base_RP),), learning_rate))
    return theta_RP.detach()


def metric_values(rows: pd.DataFrame, metric: str) -> list[float]:
    """Return a metric of every cell; NaN if the arm does not log it, such as a proxy without a verifier."""
    lacks = metric.startswith(("val/", "max val/", "mean val/")) and metric.split(" ")[-1] not in rows
    return [np.nan if lacks else value_of(cell, metric) for _, cell in rows.groupby("cell", sort=False)]


def sweep(
    arms: Mapping[str, Arm], metrics: Sequence[str], rates: Mapping[str, float], seeds: Sequence[Any]
) -> pd.DataFrame:
    """Return a row per arm and seed: the metrics, in the words of cell_table, and the rate."""
    frames = []
    for name, arm in arms.items():
        runs = tuple(replace(arm.run, seed=int(seed), learning_rate=rates[name]) for seed in seeds)
        rows = trained(arm, runs)
        found = {metric: metric_values(rows, metric) for metric in metrics}
        frames.append(
            pd.DataFrame({"arm": name, "seed": [int(s) for s in seeds], "rate": rates[name], **found})
        )
    return pd.concat(frames, ignore_index=True)
