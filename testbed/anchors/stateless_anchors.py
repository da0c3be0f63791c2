"""Stateless anchors: read from the batch, or computed with the weights that train on it."""

import torch
from torch import Tensor

from testbed.anchors import Anchor, AnchorInputs, anchor
from testbed.anchors.weight_anchors import Average
from testbed.data.batch import EXPERT
from testbed.errors import UserError
from testbed.recipes.composition import Recipe


class Behavior(Anchor):
    """log mu itself."""

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the log-probabilities that came with the batch."""
        return inputs.rollout.logp_mu_RBT


class Recomputed(Anchor):
    """The weights at the start of the step."""

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the log-probabilities of the first pass; later passes keep them."""
        return inputs.logp_CBT


class Missing(Recomputed):
    """The weights of every pass."""

    every_pass = True


class Snapshot(Anchor):
    """The trainer's engine at each token's version."""

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the log-probabilities recorded at generation; demonstrations, without one, have d = 1."""
        rollout = inputs.rollout
        if rollout.logp_trainer_RBT is None:
            raise UserError(
                "anchor 'snapshot' needs the trainer's log-probabilities at each token's version, which "
                "this schedule does not record; use anchor 'version' or 'recompute'."
            )
        if rollout.origin_RB is None:
            return rollout.logp_trainer_RBT
        expert_CB1 = (rollout.origin_RB == EXPERT)[..., None]
        return torch.where(expert_CB1, rollout.logp_mu_RBT, rollout.logp_trainer_RBT)


OWN = {"behavior": Behavior, "current": Recomputed}


@anchor("recipe", source="the recipe's own source")
def own(recipe: Recipe) -> Anchor:
    """The recipe's anchor: behavior, the weights at the start of the step, or their moving average."""
    averaged = recipe.anchor == "ewma"
    return Average(dict(recipe.anchor_args)["decay"]) if averaged else OWN[recipe.anchor]()


@anchor("behavior", source="Schulman et al. (2017), arXiv:1707.06347; verl's bypass mode")
def behavior(recipe: Recipe) -> Anchor:
    """log anchor = log mu: d = 1, and one clip limits staleness and engine mismatch together."""
    del recipe
    return Behavior()


@anchor("recompute", source="Fu et al. (2025), AReaL, arXiv:2505.24298: prox_logp_method 'recompute'")
def recompute(recipe: Recipe) -> Anchor:
    """log anchor = log pi at the start of the step: u starts at 1, and d carries mismatch and staleness."""
    del recipe
    return Recomputed()


@anchor("missing", source="Missing Old Logits (2026), arXiv:2605.12070: the failure it describes")
def missing(recipe: Recipe) -> Anchor:
    """log anchor = sg[log pi] at every pass, as if old log-probabilities were lost: u = 1, no clip binds."""
    del recipe
    return Missing()


@anchor("snapshot", source="Missing Old Logits (2026), arXiv:2605.12070: snapshot tracking, its exact repair")
def snapshot(recipe: Recipe) -> Anchor:
    """log anchor = log pi at each token's version: d is engine mismatch alone, u staleness alone."""
    del recipe
    return Snapshot()
