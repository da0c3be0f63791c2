"""The four aggregations on numbers worked by hand."""

from __future__ import annotations

import pytest
import torch

from testbed.aggregate import aggregate
from testbed.errors import UserError

# Objective terms of PPO on fixture F1: 1.2, 0.5 and -0.8, -1.25, -4.0; as losses their negatives.
LOSS = torch.tensor([[-1.2, -0.5, 99.0, 99.0], [0.8, 1.25, 4.0, 99.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False, False], [True, True, True, False]])


@pytest.mark.parametrize(
    ("mode", "length", "expected"),
    [
        ("token_sum", 0, 4.35),
        ("token_mean", 0, 0.87),
        ("sequence_mean", 0, (-0.85 + 6.05 / 3) / 2),
        ("constant", 0, 0.54375),
        ("constant", 1, 2.175),
    ],
)
def test_known_values(mode, length, expected):
    assert float(aggregate(LOSS, MASK, mode, length)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mode", ["token_sum", "token_mean", "sequence_mean", "constant"])
def test_replicas_are_aggregated_apart(mode):
    stacked = aggregate(torch.stack([LOSS, 2 * LOSS]), torch.stack([MASK, MASK]), mode)
    torch.testing.assert_close(stacked, aggregate(LOSS, MASK, mode) * torch.tensor([1.0, 2.0]).double())


def test_an_unknown_mode_is_answered_with_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'token_mean'"):
        aggregate(LOSS, MASK, "token-mean")


def test_a_length_for_a_mode_without_one_is_refused():
    with pytest.raises(UserError, match="has no length"):
        aggregate(LOSS, MASK, "token_mean", 5)


def test_a_loss_of_another_shape_is_refused():
    with pytest.raises(UserError, match="one loss per token"):
        aggregate(LOSS[:, :3], MASK, "token_mean")
