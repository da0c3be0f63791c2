"""A*-PO: OAPL's regression against a fixed reference, with an optimal value estimated in advance."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.aggregate import spread
from testbed.losses.ratios import log_token, sequence_advantage
from testbed.objectives import objective


@objective(
    "a_star_po",
    source="Brantley et al. (2025), arXiv:2505.20686; ZhaolinGao/A-PO, verl/trainer/apo/core_algos.py",
    ratio="sequence", reads=("ref", "adv"), scope="sequence", on_policy=2e-3, sign=False, penalty=True,
)  # fmt: skip
def a_star_po(logp_BT: Tensor, batch: Batch, *, beta2: float = 1e-3) -> Tensor:
    """L = (1/T) (beta2 log W - A)^2, W = prod_t pi/ref and A = R - V*(prompt).

    V* = beta1 log mean exp(R / beta1) over N = 8 samples of the reference, drawn once before training (beta1
    = 0.5): a table per prompt, so the batch carries the difference as its advantage, "optimal_value". Spread
    evenly over the T tokens of the sequence; aggregate with constant, length 1. The paper draws one on-policy
    sample per prompt; nothing here corrects for another sampler. Prompts that the reference never solved are
    left out. The released code computes the same loss; only its V* differs.
    """
    log_w_B1 = log_token(logp_BT, batch, base="ref").sum(-1, keepdim=True)
    return spread((beta2 * log_w_B1 - sequence_advantage(batch)).square(), batch.mask_BT)
