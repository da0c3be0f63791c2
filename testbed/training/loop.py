"""One training loop for every world: stacked cells, any schedule of lag, any recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.config.run import Arguments, Run
from testbed.data.rollout import Rollout
from testbed.diagnostics.ratios import log_ratio_histogram
from testbed.recipes import recipe
from testbed.staleness import build_source
from testbed.training.learner import Arm, Learner, mixed
from testbed.training.recorder import Columns, Recorder
from testbed.training.update import Update, gradient
from testbed.worlds.base import World
from testbed.worlds.build import build_world

Report: TypeAlias = Callable[[int, int], None]


def train_pack(runs: tuple[Run, ...], report: Report | None = None) -> Columns:
    """Train cells of equal shape side by side and return what they logged, sorted by cell, then step.

    A step generates one batch and updates on it once, or `Recipe.passes` times; lag counts steps. A batch
    of which nothing is left for its age makes no update.

    Args:
        runs: cells that differ in the fields of packs.STACKED only.
        report: called with (steps done, steps in all) as the pack advances.
    """
    order = sorted(range(len(runs)), key=lambda i: (runs[i].recipe, runs[i].recipe_args, i))
    stacked = tuple(runs[i] for i in order)
    world = build_world(stacked)
    theta_RP = world.initial()
    source = build_source(stacked, world, theta_RP)
    learners = start(stacked, world, theta_RP)
    alive_R = torch.ones(len(stacked), dtype=torch.bool, device=theta_RP.device)
    recorder = Recorder(stacked, order)
    tell = report or (lambda *_: None)

    for step in range(stacked[0].steps):
        for learner in learners:
            learner.enter(theta_RP[learner.rows], step)
        generated = source.batch(theta_RP, step)
        if generated.empty:
            recorder.add_empty(step, world, theta_RP, generated, alive_R)
            tell(step + 1, stacked[0].steps)
            continue
        rollout, generated_R = silence_failed(generated.rollout)
        alive_R = alive_R & generated_R
        rollout = mixed(learners, rollout, step)
        update = gradient(world, learners, theta_RP, rollout, step)
        recorder.count(log_ratio_histogram(update.log_w_RB))
        if recorder.due(step):
            # Logged before the update, but after its gradient has shown who diverges.
            rate_R = base_rates(stacked, theta_RP) * update.step_factor_R
            recorder.add(
                step, world, learners, theta_RP, generated, rollout, update, rate_R, alive_R & update.finite_R
            )
        theta_RP, alive_R = advance(stacked, world, learners, theta_RP, rollout, update, alive_R, step)
        if recorder.due(step):
            recorder.add_last_pass(learners)
        tell(step + 1, stacked[0].steps)
    return recorder.columns()


def advance(
    runs: tuple[Run, ...],
    world: World,
    learners: tuple[Learner, ...],
    theta_RP: Tensor,
    rollout: Rollout,
    update: Update,
    alive_R: Tensor,
    step: int,
) -> tuple[Tensor, Tensor]:
    """Return the weights after every pass over one batch, and which replicas are still finite; [R]."""
    start_RP = theta_RP
    for turn in range(max(learner.recipe.passes for learner in learners)):
        moving = [learner for learner in learners if turn < learner.recipe.passes]
        if turn:
            theta_RP = reposition(moving, start_RP, theta_RP, turn)
            update = gradient(world, learners, theta_RP, rollout, step, update.batches, turn)
        alive_R = alive_R & update.finite_R
        rate_R = base_rates(runs, theta_RP) * update.step_factor_R
        grad_RP = torch.where(alive_R[:, None], update.grad_RP, torch.zeros_like(theta_RP))
        grad_RP = clip_norm(grad_RP, runs[0].max_grad_norm)
        moved_RP = theta_RP.clone()
        for learner in moving:
            rows = learner.rows
            moved_RP[rows] = learner.optimizer.step(theta_RP[rows], grad_RP[rows], rate_R[rows])
        for learner, batch in zip(learners, update.batches, strict=True):
            # At an arm's own last pass: how many its neighbors in the pack make must not matter to it.
            if turn == learner.recipe.passes - 1:
                learner.adapt(update.logp_RBT[learner.rows], batch, step)
        # A replica whose loss, gradient or weights are not finite stays at its last weights for good.
        alive_R = alive_R & torch.isfinite(moved_RP).all(-1)
        theta_RP = torch.where(alive_R[:, None], moved_RP, theta_RP)
    for learner in learners:
        learner.average(theta_RP[learner.rows])
    return theta_RP, alive_R


def reposition(moving: list[Learner], start_RP: Tensor, theta_RP: Tensor, turn: int) -> Tensor:
    """Return the weights with every arm before its last pass pulled back towards the start of the step."""
    for learner in moving:
        if turn == learner.recipe.passes - 1 and learner.recipe.reposition != 1.0:
            rows = learner.rows
            theta_RP = theta_RP.clone()
            theta_RP[rows] = torch.lerp(start_RP[rows], theta_RP[rows], learner.recipe.reposition)
    return theta_RP


def base_rates(runs: tuple[Run, ...], like: Tensor) -> Tensor:
    """Return every replica's own learning rate [R]."""
    return like.new_tensor([run.learning_rate for run in runs])


def plan_arms(runs: tuple[Run, ...]) -> tuple[Arm, ...]:
    """Return contiguous blocks of equal recipes."""
    blocks: dict[tuple[str, Arguments], list[int]] = {}
    for index, run in enumerate(runs):
        blocks.setdefault((run.recipe, run.recipe_args), []).append(index)
    return tuple(
        Arm(recipe[name].bind(**dict(arguments))(), slice(rows[0], rows[-1] + 1))
        for (name, arguments), rows in blocks.items()
    )


def start(runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> tuple[Learner, ...]:
    """Return one learner per arm of a pack, before the first step."""
    return tuple(
        Learner(
            arm,
            world,
            theta_RP[arm.rows],
            runs[0].optimizer,
            runs[0].steps,
            tuple(run.seed for run in runs[arm.rows]),
            runs[0].anchor,
            runs[0].anchor_args,
        )
        for arm in plan_arms(runs)
    )


def silence_failed(rollout: Rollout) -> tuple[Rollout, Tensor]:
    """Return the rollout and which replicas generated with finite log-probabilities; bool [R].

    The others are recorded as diverged by the caller; their log-probabilities are zeroed so that they
    cannot stop the replicas they are stacked with.
    """
    finite_R = torch.isfinite(rollout.logp_mu_RBT).flatten(1).all(-1)
    logp_RBT = rollout.logp_mu_RBT.masked_fill(~finite_R[:, None, None], 0.0)
    return replace(rollout, logp_mu_RBT=logp_RBT), finite_R


def clip_norm(grad_RP: Tensor, limit: float) -> Tensor:
    """Scale each replica's gradient down to a norm of at most limit; 0 switches it off."""
    if limit <= 0:
        return grad_RP
    norm_R1 = grad_RP.norm(dim=-1, keepdim=True)
    return grad_RP * (limit / norm_R1.clamp(min=limit))


def train(run: Run, report: Report | None = None) -> Columns:
    """Train one cell; see train_pack."""
    return train_pack((run,), report)
