"""Step-size rules: multiply the learning rate by a factor per replica.

They scale the learning rate because Adam's normalization would undo a scaled loss.
"""

from typing import Literal

import torch
from torch import Tensor

from testbed.diagnostics.ratio_metrics import ess, kl_estimates
from testbed.errors import UserError, unknown

RULES = ("sqrt", "linear")


def ess_factor(
    log_w_B: Tensor, *, reference: float = 1.0, rule: Literal["sqrt", "linear"] = "sqrt"
) -> Tensor:
    """Return min(1, ESS share / reference), or its square root; [...].

    VCPO (arXiv:2602.17616): ESS is Kish's, of unclipped sequence ratios, over all sequences of the
    optimizer step; "sqrt" is for Adam, "linear" for plain gradient descent.

    Args:
        log_w_B: log pi/mu of whole sequences at the weights before the step [..., B].
        reference: ESS share that counts as on-policy. The authors use 1, and 0.55 for many turns.
        rule: sqrt or linear.

    Raises UserError for an unknown rule or a reference that is not positive.
    """
    if rule not in RULES:
        raise unknown("step-size rule", rule, RULES)
    if not reference > 0:
        raise UserError(f"reference={reference} was given; expected an ESS share above 0.")
    factor = (ess(log_w_B) / reference).clamp(max=1)
    return factor.sqrt() if rule == "sqrt" else factor


def trust_region_factor(
    log_rho_BT: Tensor, mask_BT: Tensor, *, limit: float, estimator: str = "mu_pi_k3"
) -> Tensor:
    """Return 1 while a KL estimate is at most `limit`, else 0, which skips the step; [...].

    Schulman et al. (2017), arXiv:1707.06347, in the common form of early stopping. A NaN estimate also stops.

    Args:
        log_rho_BT: log pi/mu of tokens (or pi/anchor, to bound one update), 0 outside the mask.
        mask_BT: bool [..., B, T].
        limit: nats per token.
        estimator: one of diagnostics.kl_estimates, such as mu_pi_k1, mu_pi_k3 or pi_mu_k3.

    Raises UserError for an unknown estimator.
    """
    estimates = {name.rpartition("kl_")[2]: kl for name, kl in kl_estimates(log_rho_BT, mask_BT).items()}
    if estimator not in estimates:
        raise unknown("KL estimator", estimator, estimates)
    return torch.where(estimates[estimator] <= limit, 1.0, 0.0).to(log_rho_BT.dtype)
