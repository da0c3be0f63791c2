"""Sequence-masked token weights: the geometric mean keeps or drops the sequence, token ratios weigh it."""

from torch import Tensor

from testbed.data.batch import Batch
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import log_mismatch_at, weighted_clip
from testbed.objectives.decoupled.geometric_rejection import MEAN_WINDOW


@objective(
    "sequence_mask_tis",
    source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms/loss/loss_functions.py ('seq-mask-tis')",
    reads=("mu", "anchor", "adv"),
    keep=MEAN_WINDOW,
)
def sequence_mask_tis(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.999,
    high: float = 1.002,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = -sg[d_t 1[low <= (prod_t d_t)^(1/T) <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Despite the name "tis", the token weight is not truncated. The bounds are
    NeMo-RL's reference values; there is no paper.
    """
    return weighted_clip(
        logp_BT,
        batch,
        eps_low=eps_low,
        eps_high=eps_high,
        log_h_BT=log_mismatch_at("token", batch),
        keep_BT=MEAN_WINDOW(logp_BT, batch, low=low, high=high),
    )


@objective.variant(
    "sequence_mask_tis@openrlhf",
    source="OpenRLHF/OpenRLHF 3c3be623 2026-08-13, openrlhf/models/loss.py (PolicyLoss)",
    keep=MEAN_WINDOW,
)
def sequence_mask_tis_openrlhf(
    logp_BT: Tensor,
    batch: Batch,
    *,
    low: float = 0.5,
    high: float = 5.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = -sg[d_t 1[low <= (prod_t d_t)^(1/T) <= high]] min(u A, clip(u) A), [low, high] = [0.5, 5].

    OpenRLHF uses one window for all its corrections, 1500 times wider than NeMo-RL's: it drops almost no
    sequence. A comment in its code says the token weight is truncated; the code does not truncate it.
    """
    return sequence_mask_tis(logp_BT, batch, low=low, high=high, eps_low=eps_low, eps_high=eps_high)
