"""One training loop for every world: stacked cells, exact lag, any recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.batch import Batch
from testbed.config import Arguments, Run
from testbed.diagnostics import log_ratio_histogram
from testbed.optimizers import OPTIMIZERS
from testbed.ratios import log_token
from testbed.recipes import Recipe, recipe
from testbed.recorder import Columns, Recorder
from testbed.rollout import Rollout
from testbed.staleness.exact_lag import ExactLag
from testbed.worlds import World, build_world

Report: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class Arm:
    """The replicas of a pack that share a recipe: a contiguous block of the replica axis."""

    recipe: Recipe
    rows: slice


def train_pack(runs: tuple[Run, ...], report: Report | None = None) -> Columns:
    """Train cells of equal shape side by side and return what they logged, sorted by cell, then step.

    Args:
        runs: cells that differ in recipe, recipe_args, lag, seed and learning_rate only.
        report: called with (steps done, steps in all) as the pack advances.
    """
    order = sorted(range(len(runs)), key=lambda i: (runs[i].recipe, runs[i].recipe_args, i))
    stacked = tuple(runs[i] for i in order)
    arms = plan_arms(stacked)
    world = build_world(stacked)
    theta_RP = world.initial()
    versions = ExactLag(theta_RP, [run.lag for run in stacked])
    optimizer = OPTIMIZERS[stacked[0].optimizer](theta_RP)
    base_rate_R = theta_RP.new_tensor([run.learning_rate for run in stacked])
    alive_R = torch.ones_like(base_rate_R, dtype=torch.bool)
    recorder = Recorder(stacked, order)

    for step in range(stacked[0].steps):
        mu_RP = versions.behavior(theta_RP, step)
        rollout, generated_R = silence_failed(world.generate(mu_RP, step))
        update = gradient(world, arms, theta_RP, rollout)
        alive_R = alive_R & generated_R & update.finite_R
        rate_R = base_rate_R * update.step_factor_R
        recorder.count(log_ratio_histogram(update.log_w_RB))
        if recorder.due(step):
            recorder.add(step, world, arms, theta_RP, mu_RP, rollout, update, rate_R, alive_R)
        grad_RP = torch.where(alive_R[:, None], update.grad_RP, torch.zeros_like(theta_RP))
        moved_RP = optimizer.step(theta_RP, clip_norm(grad_RP, stacked[0].max_grad_norm), rate_R)
        # A replica whose loss, gradient or weights are not finite stays at its last weights for good.
        alive_R = alive_R & torch.isfinite(moved_RP).all(-1)
        theta_RP = torch.where(alive_R[:, None], moved_RP, theta_RP)
        if report is not None:
            report(step + 1, stacked[0].steps)
    return recorder.columns()


def plan_arms(runs: tuple[Run, ...]) -> tuple[Arm, ...]:
    """Return contiguous blocks of equal recipes."""
    blocks: dict[tuple[str, Arguments], list[int]] = {}
    for index, run in enumerate(runs):
        blocks.setdefault((run.recipe, run.recipe_args), []).append(index)
    return tuple(
        Arm(recipe[name].bind(**dict(arguments))(), slice(rows[0], rows[-1] + 1))
        for (name, arguments), rows in blocks.items()
    )


@dataclass(frozen=True)
class Update:
    """One step's gradient and what was computed on the way."""

    logp_RBT: Tensor
    batches: tuple[Batch, ...]
    log_w_RB: Tensor
    grad_RP: Tensor
    finite_R: Tensor
    step_factor_R: Tensor


def gradient(world: World, arms: tuple[Arm, ...], theta_RP: Tensor, rollout: Rollout) -> Update:
    """Return the gradient of every replica's loss at theta; replicas do not see each other."""
    leaf_RP = theta_RP.detach().requires_grad_()
    logp_RBT = world.logp(leaf_RP, rollout)
    batches = tuple(arm.recipe.batch(_rows(rollout, arm.rows)) for arm in arms)
    loss_R = torch.cat(
        [arm.recipe.loss(logp_RBT[arm.rows], batch) for arm, batch in zip(arms, batches, strict=True)]
    )
    (grad_RP,) = torch.autograd.grad(loss_R.sum(), leaf_RP)
    logp_RBT = logp_RBT.detach()
    factors = [arm.recipe.step_factor(logp_RBT[arm.rows], b) for arm, b in zip(arms, batches, strict=True)]
    log_w = [log_token(logp_RBT[arm.rows], b).sum(-1) for arm, b in zip(arms, batches, strict=True)]
    finite_R = torch.isfinite(loss_R.detach()) & torch.isfinite(grad_RP).all(-1)
    return Update(
        logp_RBT, batches, torch.cat(log_w), grad_RP, finite_R, torch.cat(factors).to(theta_RP.dtype)
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


def _rows(rollout: Rollout, rows: slice) -> Rollout:
    return Rollout(
        rollout.prompt_RNK[rows],
        rollout.token_RBT[rows],
        rollout.mask_RBT[rows],
        rollout.logp_mu_RBT[rows],
        rollout.reward_RB[rows],
        rollout.group,
        None if rollout.state_RBT is None else rollout.state_RBT[rows],
    )


def train(run: Run, report: Report | None = None) -> Columns:
    """Train one cell; see train_pack."""
    return train_pack((run,), report)
