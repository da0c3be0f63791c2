"""The anchor that costs no forward pass: between behavior and target, in log-probabilities, by version."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.anchors import Anchor, AnchorInputs, anchor
from testbed.errors import UserError
from testbed.recipes.composition import Recipe


class LogLinear(Anchor):
    """log anchor = log mu + alpha (log pi - log mu), alpha from the versions of token, anchor and weights."""

    every_pass = True

    def __init__(self, age: int, fresh: float) -> None:
        self.age, self.fresh = age, fresh

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the interpolation at the weights of this pass."""
        version_ABT = inputs.rollout.version_RBT
        if version_ABT is None:
            raise UserError("anchor 'loglinear' needs the version of every token; this batch has none.")
        alpha_ABT = share(version_ABT, inputs.step, self.age, self.fresh).to(inputs.logp_ABT.dtype)
        log_mu_ABT = inputs.rollout.logp_mu_RBT
        return log_mu_ABT + alpha_ABT * (inputs.logp_ABT - log_mu_ABT)


def share(version_BT: Tensor, step: int, age: int, fresh: float) -> Tensor:
    """alpha = (v_prox - v_mu) / (v_theta - v_mu), v_theta = step, v_prox = max(step - age, v_mu); float64.

    `fresh` where v_mu = v_theta, which leaves 0 / 0.
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

    v_prox is `age` steps behind the weights, and never older than the token. fresh: alpha of tokens as young
    as the weights, where the formula says 0 / 0: AReaL's code takes 0 (the anchor is mu), its comment says 1
    (the anchor is pi, at every pass).
    """
    del recipe
    if age < 0 or not 0 <= fresh <= 1:
        raise UserError(
            f"age is {age} and fresh is {fresh}; expected steps back, at least 0, and a share in [0, 1]."
        )
    return LogLinear(age, fresh)
