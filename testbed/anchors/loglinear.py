"""Anchors without a forward pass: interpolate between behavior and target by the age of the token."""

from typing import ClassVar

import torch
from torch import Tensor

from testbed.anchors import Anchor, AnchorInputs, anchor
from testbed.errors import UserError
from testbed.recipes.composition import Recipe


class LogLinear(Anchor):
    """log anchor = log mu + alpha (log pi - log mu), alpha from the versions of token, anchor and weights."""

    every_pass = True
    name: ClassVar[str] = "loglinear"

    def __init__(self, age: int, fresh: float) -> None:
        self.age, self.fresh = age, fresh

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the interpolation at the weights of this pass."""
        log_mu_CBT = inputs.rollout.logp_mu_RBT
        return log_mu_CBT + self.alpha(inputs) * (inputs.logp_CBT - log_mu_CBT)

    def alpha(self, inputs: AnchorInputs) -> Tensor:
        """Return the share of the target at every token [C, B, T]; raise UserError without versions."""
        version_CBT = inputs.rollout.version_RBT
        if version_CBT is None:
            raise UserError(f"anchor '{self.name}' needs the version of every token; this batch has none.")
        return share(version_CBT, inputs.step, self.age, self.fresh).to(inputs.logp_CBT.dtype)


class Linear(LogLinear):
    """anchor = (1 - alpha) mu + alpha pi, a mixture of probabilities."""

    name = "linear"

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the log of the mixture at the weights of this pass."""
        alpha_CBT = self.alpha(inputs)
        log_mu_CBT = inputs.rollout.logp_mu_RBT
        # log 0 = -inf is that end of the mixture: logaddexp returns the other one.
        return torch.logaddexp((1 - alpha_CBT).log() + log_mu_CBT, alpha_CBT.log() + inputs.logp_CBT)


def share(version_BT: Tensor, step: int, age: int, fresh: float) -> Tensor:
    """alpha = (v_prox - v_mu) / (v_theta - v_mu), v_theta = step, v_prox = max(step - age, v_mu); float64.

    `fresh` if v_mu = v_theta, where the formula is 0 / 0.
    """
    passed_BT = step - version_BT
    within_BT = (passed_BT - age).clamp(min=0).double() / passed_BT.clamp(min=1)
    return torch.where(passed_BT > 0, within_BT, torch.full_like(within_BT, fresh))


@anchor(
    "loglinear",
    source="A-3PO (2025), arXiv:2512.06547; inclusionAI/AReaL 4aef98d8, docs/algorithms/prox_approx.md",
)
def loglinear(recipe: Recipe, *, age: int = 1, fresh: float = 0.0) -> Anchor:
    """log anchor = log mu + alpha (sg[log pi] - log mu), alpha = (v_prox - v_mu) / (v_theta - v_mu).

    v_prox is `age` steps behind the weights, but never older than the token. fresh: alpha of tokens as young
    as the weights, where the formula gives 0 / 0: AReaL's code uses 0 (the anchor is mu), its comment says 1
    (the anchor is pi, at every pass).
    """
    del recipe
    return LogLinear(*checked(age, fresh))


def checked(age: int, fresh: float) -> tuple[int, float]:
    """Return both; raise UserError for an age below 0 or a share outside [0, 1]."""
    if age < 0 or not 0 <= fresh <= 1:
        raise UserError(
            f"age is {age} and fresh is {fresh}; expected steps back, at least 0, and a share in [0, 1]."
        )
    return age, fresh


@anchor(
    "linear",
    source="inclusionAI/AReaL 4aef98d8, areal/trainer/ppo/actor.py (approximation 'linear', only logged)",
)
def linear(recipe: Recipe, *, age: int = 1, fresh: float = 0.0) -> Anchor:
    """log anchor = log((1 - alpha) mu + alpha sg[pi]), alpha as in loglinear.

    A mixture sums to one over the tokens, so unlike loglinear it needs no normalizer. As log is concave, it
    is never below loglinear: u = pi/anchor is smaller, and clips positives later.
    """
    del recipe
    return Linear(*checked(age, fresh))
