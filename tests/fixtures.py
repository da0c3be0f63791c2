"""Batches small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from testbed.batch import Batch

# Sequences as (advantage, token ratios). The first two are fixture F1; the others reach the branches
# it leaves out: negative advantage with W < 1, positive with W > 1, small moves inside every clip.
SEQUENCES: tuple[tuple[float, tuple[float, ...]], ...] = (
    (1.0, (1.5, 0.5)),
    (-1.0, (0.5, 1.25, 4.0)),
    (-2.0, (0.7, 0.9, 1.1)),
    (0.5, (1.1, 1.05)),
    (2.0, (1.0001, 1.0002, 0.9999)),
    (-0.5, (0.9999,)),
    (0.25, (0.6, 3.5, 1.3)),
)
F1 = SEQUENCES[:2]


def batch_of(
    sequences: Sequence[tuple[float, Sequence[float]]] = SEQUENCES,
    dtype: torch.dtype = torch.float64,
    padding: float = 0.0,
    width: int | None = None,
) -> tuple[torch.Tensor, Batch]:
    """Return logp_BT and the Batch with the given token ratios; log mu varies from token to token.

    padding fills both log-probabilities outside the mask.
    """
    longest = width or max(len(ratios) for _, ratios in sequences)
    shape = (len(sequences), longest)
    logp = torch.full(shape, padding, dtype=dtype)
    mu = torch.full(shape, padding, dtype=dtype)
    adv = torch.zeros(shape, dtype=dtype)
    mask = torch.zeros(shape, dtype=torch.bool)
    for b, (advantage, ratios) in enumerate(sequences):
        length = len(ratios)
        mu[b, :length] = -0.3 - 0.1 * torch.arange(length, dtype=dtype) - 0.05 * b
        logp[b, :length] = mu[b, :length] + torch.tensor(ratios, dtype=dtype).log()
        adv[b] = advantage
        mask[b, :length] = True
    group = torch.arange(len(sequences)) // 2
    return logp, Batch(mu, adv, mask, adv[:, 0], group)
