"""Sequence-masked token weights: the geometric mean keeps or drops the sequence, token ratios weigh it."""

from testbed.objectives.decoupled.correction import MEAN_WINDOW, TOKEN_MISMATCH, decoupled


@decoupled(
    "sequence_mask_tis",
    source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms/loss/loss_functions.py ('seq-mask-tis')",
    weight=TOKEN_MISMATCH,
    keep=MEAN_WINDOW,
    defaults={"low": 0.999, "high": 1.002},
)
def sequence_mask_tis() -> None:
    """L = -sg[d_t 1[low <= (prod_t d_t)^(1/T) <= high]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Despite the name "tis", the token weight is not truncated. The bounds are
    NeMo-RL's reference values; there is no paper.
    """


@decoupled(
    "sequence_mask_tis@openrlhf",
    source="OpenRLHF/OpenRLHF 3c3be623 2026-08-13, openrlhf/models/loss.py (PolicyLoss)",
    weight=TOKEN_MISMATCH,
    keep=MEAN_WINDOW,
    defaults={"low": 0.5, "high": 5.0},
)
def sequence_mask_tis_openrlhf() -> None:
    """L = -sg[d_t 1[low <= (prod_t d_t)^(1/T) <= high]] min(u A, clip(u) A), [low, high] = [0.5, 5].

    OpenRLHF uses one window for all its corrections, 1500 times wider than NeMo-RL's: it drops almost no
    sequence. A comment in its code says the token weight is truncated; the code does not truncate it.
    """
