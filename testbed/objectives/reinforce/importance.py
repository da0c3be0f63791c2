"""REINFORCE with a detached importance weight at a chosen level, optionally truncated."""

from __future__ import annotations

import math

from torch import Tensor

from testbed.batch import Batch
from testbed.objectives import objective
from testbed.ratios import log_ratio
from testbed.score import score_loss


@objective(
    "importance_reinforce",
    source="Precup, Sutton & Singh (2000), ICML, Eq. 2; truncation: Ionides (2008), JCGS 17, 295-311",
    ratio="sequence",
    reads=("mu", "adv"),
    scope="sequence",
    detached=True,
    on_policy=1,
    max_weight="cap",
)
def importance_reinforce(
    logp_BT: Tensor, batch: Batch, *, level: str = "sequence", cap: float = math.inf
) -> Tensor:
    """L = -sg[min(W, cap)] A log pi, W = pi/mu at a level: sequence, prefix, token or geometric.

    With level "sequence" and no cap it is unbiased for the policy gradient wherever mu > 0; its
    variance grows with E_mu W^2. With a sampled terminal reward every other level is biased.
    """
    weight_BT = log_ratio(level, logp_BT, batch).exp().clamp(max=cap)
    return score_loss(weight_BT, logp_BT, batch)
