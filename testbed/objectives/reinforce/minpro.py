"""MinPRO: replace the prefix ratio by the smallest earlier token ratio."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_min_prefix
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "minpro",
    source="A Step Back: Prefix Importance Ratio Stabilizes Policy Optimization (2026), arXiv:2601.22718",
    ratio="min_prefix",
    reads=("mu", "adv"),
    scope="sequence",
    detached=True,
    max_weight="1+eps_high",
)
def minpro(logp_BT: Tensor, batch: Batch, *, eps_low: float = 1.0, eps_high: float = 0.28) -> Tensor:
    """L = -sg[clip(q_t rho_t, 1 - eps_low, 1 + eps_high)] A log pi, q_t = min over s < t of rho_s.

    One low ratio damps the rest of its sequence. The abstract and one secondary text, no code
    being public, leave open the bounds, q_1 (here 1) and the base of rho (here mu, not anchor); the defaults
    have no lower bound and CISPO's upper one.
    """
    weight_BT = log_min_prefix(logp_BT, batch).exp().clamp(1 - eps_low, 1 + eps_high)
    return score_loss(weight_BT, logp_BT, batch)
