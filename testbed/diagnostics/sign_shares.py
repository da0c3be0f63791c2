"""Gradient mass and clip share of an objective, separately for tokens with A > 0 and with A < 0."""

import torch
from torch import Tensor

from testbed.data.batch import Batch


def sign_shares(weight_BT: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Return the positive share and the clip share by sign of A, each [...].

    positive_share = sum_{A > 0} |w| / sum |w|, with w the effective weights, the coefficients of grad log pi
    before the aggregation over tokens; NaN if no token has a gradient. clip_share_positive and _negative: the
    share of tokens with w = 0 among those with A > 0 (A < 0); 0 without such tokens, like the clip share.
    Source: the quantity that BAPO (2025), arXiv:2510.18927, balances.

    Args:
        weight_BT: effective weights [..., B, T].
        batch: advantages and mask.
    """
    mass_BT = torch.where(batch.mask_BT, weight_BT.abs(), torch.zeros_like(weight_BT))
    signs = {"positive": batch.mask_BT & (batch.adv_BT > 0), "negative": batch.mask_BT & (batch.adv_BT < 0)}
    positive_BT = torch.where(signs["positive"], mass_BT, torch.zeros_like(mass_BT))
    shares = {"actor/positive_share": positive_BT.sum((-2, -1)) / mass_BT.sum((-2, -1))}
    for sign, tokens_BT in signs.items():
        cut = (tokens_BT & (weight_BT == 0)).sum((-2, -1))
        shares[f"actor/clip_share_{sign}"] = cut / tokens_BT.sum((-2, -1)).clamp(min=1)
    return shares
