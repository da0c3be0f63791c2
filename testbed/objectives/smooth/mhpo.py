"""MHPO: pass the log-ratio through a tanh and damp it by a hazard."""

import math

from torch import Tensor
from torch.nn.functional import softplus

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives import objective

ON_POLICY = math.exp(-(math.log(2) ** 1.5) - (math.log(2) / 0.8) ** 2)


@objective(
    "mhpo", source="Wang et al. (2026), arXiv:2603.16929", reads=("anchor", "adv"), detached=True,
    on_policy=ON_POLICY,
)  # fmt: skip
def mhpo(
    logp_BT: Tensor,
    batch: Batch,
    *,
    c: float = 1.5,
    k_pos: float = 1.5,
    lam_pos: float = 1.0,
    k_neg: float = 2.0,
    lam_neg: float = 0.8,
) -> Tensor:
    """L = -exp(psi - sg[zeta]) A, psi = c tanh(log u / c), u = pi/anchor.

    zeta = (softplus(psi) / lam_pos)^k_pos + (softplus(-psi) / lam_neg)^k_neg, for both signs of A. The weight
    exp(psi - zeta) sech^2(log u / c) stays below e^c. On-policy it is 0.265, not 1: about a quarter of other
    objectives' step at the same learning rate. Formula and values come from secondary sources; the paper's
    body was not read. Aggregate with sequence_mean.
    """
    psi_BT = c * (log_token(logp_BT, batch, base="anchor") / c).tanh()
    fixed_BT = psi_BT.detach()
    grown_BT = (softplus(fixed_BT) / lam_pos) ** k_pos
    shrunk_BT = (softplus(-fixed_BT) / lam_neg) ** k_neg
    return -(psi_BT - grown_BT - shrunk_BT).exp() * batch.adv_BT
