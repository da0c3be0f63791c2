"""One gradient of a pack, and what was computed on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.data.rollout import Rollout
from testbed.losses.ratios import log_token
from testbed.training.learner import Learner
from testbed.worlds.base import World


@dataclass(frozen=True)
class Update:
    """One gradient and what was computed on the way."""

    logp_RBT: Tensor
    batches: tuple[Batch, ...]
    log_w_RB: Tensor
    grad_RP: Tensor
    finite_R: Tensor
    step_factor_R: Tensor


def gradient(
    world: World,
    learners: tuple[Learner, ...],
    theta_RP: Tensor,
    rollout: Rollout,
    step: int = 0,
    batches: tuple[Batch, ...] | None = None,
    turn: int = 0,
) -> Update:
    """Return the gradient of every replica's loss at theta; replicas do not see each other.

    batches: those of the step's first pass; advantages and reference stay what they were, and so does the
    anchor unless it follows the weights. turn: which pass over the batch this is, from 0.
    """
    leaf_RP = theta_RP.detach().requires_grad_()
    logp_RBT = world.numerator(leaf_RP, rollout, step, turn)
    if batches is None:
        batches = tuple(
            learner.batch(theta_RP[learner.rows], rollout.rows(learner.rows), logp_RBT[learner.rows], step)
            for learner in learners
        )
    else:
        batches = tuple(
            learner.follow(
                theta_RP[learner.rows], batch, rollout.rows(learner.rows), logp_RBT[learner.rows], step
            )
            for learner, batch in zip(learners, batches, strict=True)
        )
    loss_R = torch.cat(
        [
            learner.recipe.loss(logp_RBT[learner.rows], batch, learner.hyper(step), step, learner.steps)
            for learner, batch in zip(learners, batches, strict=True)
        ]
    )
    penalty_R = world.penalty(leaf_RP)
    loss_R = loss_R if penalty_R is None else loss_R + penalty_R
    (grad_RP,) = torch.autograd.grad(loss_R.sum(), leaf_RP)
    logp_RBT = logp_RBT.detach()
    arms = list(zip(learners, batches, strict=True))
    factors = [learner.recipe.step_factor(logp_RBT[learner.rows], b) for learner, b in arms]
    log_w = [log_token(logp_RBT[learner.rows], b).sum(-1) for learner, b in arms]
    finite_R = torch.isfinite(loss_R.detach()) & torch.isfinite(grad_RP).all(-1)
    return Update(
        logp_RBT, batches, torch.cat(log_w), grad_RP, finite_R, torch.cat(factors).to(theta_RP.dtype)
    )
