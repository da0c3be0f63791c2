"""Compute the signals that advantages read: a table from field name to function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.data.rollout import Rollout
from testbed.recipes.composition import Recipe
from testbed.teachers import Teacher
from testbed.worlds.world import World


@dataclass(frozen=True)
class SignalInputs:
    """An arm's batch before its advantages are computed.

    theta_CP, logp_CBT: weights at the start of the step, and their log-probabilities of the tokens.
    rows: the arm's replicas in the pack. history_CK: baselines of earlier batches, oldest first.
    """

    world: World
    recipe: Recipe
    teacher: Teacher
    rows: slice
    theta_CP: Tensor
    rollout: Rollout
    logp_CBT: Tensor
    history_CK: Tensor
    step: int


Provider: TypeAlias = Callable[[SignalInputs], "Tensor | None"]


def signals_for(names: tuple[str, ...], inputs: SignalInputs) -> dict[str, Tensor | None]:
    """Return the named fields of Signals; names without a table entry are left out."""
    return {name: PROVIDERS[name](inputs) for name in names if name in PROVIDERS}


def critic_signals(value_CBT: Tensor, logp_CBT: Tensor, rollout: Rollout) -> dict[str, Tensor | None]:
    """Return the batch fields that critics, and advantages with a critic, read."""
    cut_CB = rollout.truncated_RB
    return {
        "value_BT": value_CBT,
        "log_rho_BT": log_ratio(logp_CBT, rollout),
        "truncated_B": torch.zeros_like(rollout.reward_RB, dtype=torch.bool) if cut_CB is None else cut_CB,
    }


def log_ratio(logp_CBT: Tensor, rollout: Rollout) -> Tensor:
    """Return log pi/mu of every token, [C, B, T]; 0 outside the mask."""
    log_rho_CBT = logp_CBT - rollout.logp_mu_RBT
    return torch.where(rollout.mask_RBT, log_rho_CBT, torch.zeros_like(log_rho_CBT))


def sequence_score_norm(world: World, theta_CP: Tensor, rollout: Rollout) -> Tensor:
    """Return the squared norm of grad log pi of every sequence, [C, B]: one backward pass per sequence."""
    leaf_CP = theta_CP.detach().requires_grad_()
    logp_CB = world.logp(leaf_CP, rollout).sum(-1)
    norms = []
    for index in range(logp_CB.shape[1]):
        (grad_CP,) = torch.autograd.grad(logp_CB[:, index].sum(), leaf_CP, retain_graph=True)
        norms.append(grad_CP.square().sum(-1))
    return torch.stack(norms, dim=1)


def _reference_reward(inputs: SignalInputs) -> Tensor:
    teacher, size = inputs.teacher, inputs.recipe.baselines.reference_group
    weights_CP, seen = teacher.weights(inputs.theta_CP), teacher.seen(inputs.rollout)
    return inputs.world.reference_reward(weights_CP, seen, inputs.rows, size, inputs.step)


PROVIDERS: Mapping[str, Provider] = {
    "log_rho_BT": lambda of: log_ratio(of.logp_CBT, of.rollout),
    "score_norm_BT": lambda of: of.world.score_norm(of.theta_CP, of.rollout),
    "score_norm_B": lambda of: sequence_score_norm(of.world, of.theta_CP, of.rollout),
    "greedy_reward_B": lambda of: of.world.greedy_reward(of.theta_CP, of.rollout),
    "reference_reward_BN": _reference_reward,
    "parent_B": lambda of: of.rollout.parents(),
    "history_K": lambda of: of.history_CK,
    "turn_BT": lambda of: of.world.turns(of.rollout),
}
