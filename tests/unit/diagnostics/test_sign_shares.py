"""Gradient mass and clip share by the sign of the advantage, on a batch worked by hand."""

import math

import pytest
import torch

from testbed.data.batch import Batch
from testbed.diagnostics.sign_shares import sign_shares
from testbed.inspection.effective_weights import effective_weights


def batch_of(adv, mask):
    adv_BT = torch.tensor(adv, dtype=torch.float64)
    return Batch(-torch.ones_like(adv_BT), adv_BT, torch.tensor(mask), adv_BT[:, 0], torch.arange(len(adv)))


def test_shares_by_hand():
    batch = batch_of([[2.0, 2.0, 2.0], [-1.0, -1.0, 9.0]], [[True, True, True], [True, True, False]])
    weight = torch.tensor([[2.0, 0.0, 1.0], [-5.0, 0.0, 7.0]], dtype=torch.float64)
    found = {name: float(value) for name, value in sign_shares(weight, batch).items()}
    assert found == pytest.approx(
        {"actor/positive_share": 3 / 8, "actor/clip_share_positive": 1 / 3,
         "actor/clip_share_negative": 1 / 2}
    )  # fmt: skip


def test_ppo_clips_high_ratios_of_good_tokens_and_low_ones_of_bad_tokens():
    batch = batch_of([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], [[True] * 3] * 2)
    log_rho = torch.tensor([[1.0, 0.0, -1.0], [1.0, 0.0, -1.0]], dtype=torch.float64)
    logp = batch.logp_mu_BT + log_rho
    found = sign_shares(effective_weights("ppo_clip", logp, batch), batch)
    assert float(found["actor/clip_share_positive"]) == pytest.approx(1 / 3)
    assert float(found["actor/clip_share_negative"]) == pytest.approx(1 / 3)
    positive, negative = 1 + math.exp(-1), 1 + math.exp(1)
    assert float(found["actor/positive_share"]) == pytest.approx(positive / (positive + negative))


def test_without_any_gradient_there_is_no_positive_share():
    batch = batch_of([[0.0, 0.0]], [[True, True]])
    found = sign_shares(torch.zeros(1, 2, dtype=torch.float64), batch)
    assert math.isnan(found["actor/positive_share"])
    assert float(found["actor/clip_share_positive"]) == float(found["actor/clip_share_negative"]) == 0.0
