"""The aggregations on numbers worked by hand, with rows that have no token, and in micro-batches."""

import math
import re

import pytest
import torch
from support.refusals import refuses

from testbed.losses.aggregate import AGGREGATIONS, aggregate, micro_batch_weights, spread

# Objective terms of PPO on fixture F1: 1.2, 0.5 and -0.8, -1.25, -4.0; as losses their negatives.
LOSS = torch.tensor([[-1.2, -0.5, 99.0, 99.0], [0.8, 1.25, 4.0, 99.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False, False], [True, True, True, False]])
every_mode = pytest.mark.parametrize("mode", sorted(AGGREGATIONS))


@pytest.mark.parametrize(
    ("mode", "length", "expected"),
    [("token_sum", 0, 4.35), ("token_mean", 0, 0.87), ("sequence_mean", 0, (-0.85 + 6.05 / 3) / 2),
     ("sequence_sum", 0, -0.85 + 6.05 / 3), ("length_weighted", 0, (2 * -1.7 + 3 * 6.05) / 5),
     ("constant", 0, 0.54375), ("constant", 1, 2.175), ("sum_over_length", 0, 4.35 / 4),
     ("sum_over_length", 10, 0.435)],
)  # fmt: skip
def test_known_values(mode, length, expected):
    assert float(aggregate(LOSS, MASK, mode, length)) == pytest.approx(expected, abs=1e-12)
    if mode == "sequence_mean":
        assert expected == pytest.approx(0.5833, abs=5e-5)


@every_mode
def test_one_token_alone_is_its_own_aggregate_and_none_is_zero(mode):
    loss, mask = torch.tensor([[2.5]], dtype=torch.float64), torch.tensor([[True]])
    assert float(aggregate(loss, mask, mode)) == 2.5
    assert float(aggregate(loss, ~mask, mode)) == 0


@every_mode
def test_replicas_are_aggregated_apart(mode):
    stacked = aggregate(torch.stack([LOSS, 2 * LOSS]), torch.stack([MASK, MASK]), mode)
    torch.testing.assert_close(stacked, aggregate(LOSS, MASK, mode) * torch.tensor([1.0, 2.0]).double())


@every_mode
def test_values_outside_the_mask_do_not_matter(mode):
    gaps = torch.where(MASK, LOSS, torch.nan).requires_grad_()
    found = aggregate(gaps, MASK, mode)
    found.backward()
    assert float(found.detach()) == float(aggregate(LOSS, MASK, mode))
    assert (gaps.grad[~MASK] == 0).all()
    assert (gaps.grad[MASK] > 0).all()


@pytest.mark.parametrize("mode", sorted(set(AGGREGATIONS) - {"constant"}))
def test_a_row_without_a_token_changes_nothing(mode):
    more_loss = torch.cat([LOSS, torch.full((1, 4), torch.nan).double()])
    more_mask = torch.cat([MASK, torch.zeros(1, 4, dtype=torch.bool)])
    assert float(aggregate(more_loss, more_mask, mode)) == float(aggregate(LOSS, MASK, mode))


def test_constant_counts_a_row_without_a_token():
    more_loss, more_mask = torch.cat([LOSS, LOSS]), torch.cat([MASK, torch.zeros_like(MASK)])
    assert float(aggregate(more_loss, more_mask, "constant")) == pytest.approx(0.54375 / 2, abs=1e-12)


@every_mode
def test_where_nothing_is_left_the_loss_is_zero_with_a_zero_gradient(mode):
    loss = LOSS.clone().requires_grad_()
    found = aggregate(loss, torch.zeros_like(MASK), mode)
    found.backward()
    assert float(found.detach()) == 0
    assert (loss.grad == 0).all()


def test_a_mean_over_sequences_is_bit_for_bit_the_plain_mean_where_every_row_has_tokens():
    generator = torch.Generator().manual_seed(5)
    for rows in (3, 7, 64):
        loss = torch.randn(rows, 5, generator=generator)
        mask = torch.rand(rows, 5, generator=generator) < 0.6
        mask[:, 0] = True
        plain = (torch.where(mask, loss, torch.zeros_like(loss)).sum(-1) / mask.sum(-1)).mean(-1)
        assert torch.equal(aggregate(loss, mask, "sequence_mean"), plain)


def test_length_weighted_is_the_token_mean_of_a_loss_that_was_not_spread():
    sequence_loss = torch.tensor([[0.7], [-1.3]]).double()
    spread = sequence_loss / MASK.sum(-1, keepdim=True)
    expected = aggregate(sequence_loss.expand(2, 4), MASK, "token_mean")
    torch.testing.assert_close(aggregate(spread.expand(2, 4), MASK, "length_weighted"), expected)


def parts():
    """Three micro-batches of one batch, padded to different widths; some rows lack tokens, or the first."""
    generator = torch.Generator().manual_seed(3)
    loss = torch.randn(2, 7, 6, generator=generator, dtype=torch.float64)
    length = torch.tensor([[6, 1, 4, 2, 3, 1, 0], [5, 5, 1, 1, 2, 3, 0]])
    mask = torch.arange(6) < length[..., None]
    mask[0, 0, 0] = mask[1, 3:6, 0] = False  # a tool's answer may come first, or be all
    cuts = [(slice(0, 1), 6), (slice(1, 3), 5), (slice(3, 7), 3)]
    return loss, mask, [(loss[:, rows, :width], mask[:, rows, :width]) for rows, width in cuts]


@pytest.mark.parametrize(
    ("mode", "length"),
    [*((m, 0.0) for m in sorted(AGGREGATIONS)), ("constant", 9.0), ("sum_over_length", 9.0)],
)
def test_weighted_micro_batches_add_up_to_the_batch(mode, length):
    loss, mask, pieces = parts()
    weight = micro_batch_weights([m for _, m in pieces], mode, length)
    assert weight.shape == (3, 2)
    found = sum(w * aggregate(x, m, mode, length) for w, (x, m) in zip(weight, pieces, strict=True))
    torch.testing.assert_close(found, aggregate(loss, mask, mode, length), rtol=1e-12, atol=1e-14)


def test_the_mean_of_local_token_means_is_another_loss():
    loss, mask, pieces = parts()
    local = sum(aggregate(x, m, "token_mean") for x, m in pieces) / 3
    assert not torch.allclose(local, aggregate(loss, mask, "token_mean"), atol=1e-2)


def test_an_unknown_mode_is_answered_with_the_nearest():
    refuses("Did you mean 'token_mean'", aggregate, LOSS, MASK, "token-mean")
    refuses("Did you mean 'token_mean'", micro_batch_weights, [MASK], "token-mean")


def test_a_length_for_a_mode_without_one_and_a_loss_of_another_shape_are_refused():
    for length in (5, 1, 0.5):
        told = f"length={length} was given, but aggregation 'token_mean' has no length; use 'constant'."
        assert refuses("", aggregate, LOSS, MASK, "token_mean", length) == told
    told = "loss_BT has shape (2, 3), but mask_BT has shape (2, 4); an objective returns one loss per token."
    assert refuses("", aggregate, LOSS[:, :3], MASK, "token_mean") == told
    for length in (math.nan, math.inf):  # NaN would stand for the width, infinity for no loss
        refuses("expected a finite number", aggregate, LOSS, MASK, "constant", length)


def test_a_sequence_loss_is_spread_in_equal_shares_of_its_tokens():
    mask_BT = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    shares_BT = spread(torch.tensor([[3.0], [5.0], [7.0]]), mask_BT)
    assert shares_BT.tolist() == [[1.5, 1.5, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (2, 1), (2, 2, 4), (4,)])
def test_a_mask_that_would_only_broadcast_is_refused(shape):
    told = f"loss_BT has shape {shape}, but mask_BT has shape (2, 4)"
    refuses(re.escape(told), aggregate, torch.ones(shape), MASK, "token_mean")
