"""Group statistics against a loop over groups, and the packing that sorts groups side by side.

A Batch refuses what would silently give wrong numbers, and says what to do.
"""

import numpy as np
import pytest
import torch
from support.fixtures import batch_of
from support.refusals import refuses

from testbed.advantages import advantage
from testbed.data.batch import Batch
from testbed.data.compact import Compact
from testbed.data.groups import (
    Packed,
    group_average,
    group_logmeanexp,
    group_max,
    group_median,
    group_size,
    group_sum,
    group_weighted_average,
    group_weighted_quantile,
)
from testbed.data.signals import Signals

VALUE = torch.tensor([1.5, -2.0, 0.5, 4.0, -1.0, 4.0, 3.0, 0.25], dtype=torch.float64)
GROUP = torch.tensor([3, 0, 3, 3, 0, 7, 3, 0])


def by_loop(function):
    return np.array([function(VALUE[g == GROUP].numpy()) for g in GROUP])


@pytest.mark.parametrize(
    ("ours", "numpy_one"),
    [(group_sum, np.sum), (group_size, len), (group_average, np.mean), (group_max, np.max),
     (group_median, np.median)],
)  # fmt: skip
def test_it_is_the_statistic_of_each_group(ours, numpy_one):
    np.testing.assert_allclose(ours(VALUE, GROUP), by_loop(numpy_one), rtol=1e-14)
    swapped = torch.stack([VALUE, VALUE.flip(0)]), torch.stack([GROUP, GROUP.flip(0)])
    torch.testing.assert_close(ours(*swapped)[1].flip(0), ours(VALUE, GROUP), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_logmeanexp_and_its_limits(temperature):
    expected = by_loop(lambda x: temperature * np.log(np.mean(np.exp(x / temperature))))
    np.testing.assert_allclose(group_logmeanexp(VALUE, GROUP, temperature), expected, rtol=1e-13)
    torch.testing.assert_close(group_logmeanexp(VALUE, GROUP, 0.0), group_max(VALUE, GROUP))
    torch.testing.assert_close(group_logmeanexp(VALUE, GROUP, float("inf")), group_average(VALUE, GROUP))
    assert torch.isfinite(group_logmeanexp(VALUE, GROUP, 1e-5)).all()


def test_a_weighted_average_takes_log_weights_of_any_size():
    log_weight = torch.tensor([0.1, -3.0, 0.7, -0.2, 2.0, 5.0, 0.0, 1.0]).double()
    expected = group_sum(log_weight.exp() * VALUE, GROUP) / group_sum(log_weight.exp(), GROUP)
    for shift in (0.0, 1e4, -1e4):
        torch.testing.assert_close(group_weighted_average(VALUE, log_weight + shift, GROUP), expected)


def test_weights_that_are_all_zero_count_equally_and_a_zero_among_others_not_at_all():
    nothing = torch.full_like(VALUE, -torch.inf)
    torch.testing.assert_close(group_weighted_average(VALUE, nothing, GROUP), group_average(VALUE, GROUP))
    one = nothing.index_fill(0, torch.tensor(3), 0.0)
    assert group_weighted_average(VALUE, one, GROUP)[GROUP == 3].tolist() == [4.0] * 4


def test_packing_sorts_every_group_and_remembers_who_stands_where():
    packed = Packed.sorted_by(VALUE, GROUP)
    assert packed.put(VALUE, -9.0).tolist() == [
        [-2.0, -1.0, 0.25, -9.0], [0.5, 1.5, 3.0, 4.0], [4.0, -9.0, -9.0, -9.0],
    ]  # fmt: skip
    assert packed.size_N.tolist() == [3, 4, 1]
    torch.testing.assert_close(packed.take(packed.put(VALUE, -9.0)), VALUE)


def test_replicas_are_packed_apart():
    values, groups = torch.stack([VALUE, -VALUE]), torch.stack([GROUP, torch.arange(8)])
    packed = Packed.sorted_by(values, groups)
    assert packed.filled_NG.shape == (2, 8, 4)
    assert packed.size_N.tolist() == [[3, 4, 1, 0, 0, 0, 0, 0], [1] * 8]
    torch.testing.assert_close(packed.take(packed.put(values, 0.0)), values)


def test_compact_moves_tokens_together_and_back():
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    value = torch.arange(15.0).reshape(3, 5)
    compact = Compact(mask)
    assert compact.put(value).tolist() == [[1, 2, 4, 0, 0], [5, 0, 0, 0, 0], [0] * 5]
    assert compact.length_B1.tolist() == [[3], [1], [0]]
    assert compact.filled_BT.sum(-1).tolist() == [3, 1, 0]
    torch.testing.assert_close(compact.take(compact.put(value)), value * mask)


def test_a_weighted_quantile_is_the_first_value_whose_weights_reach_the_share():
    value = torch.tensor([3.0, 1.0, 2.0, 9.0, 5.0, 7.0])
    group = torch.tensor([0, 0, 0, 0, 1, 1])
    log_weight = torch.tensor(
        [0.1, 0.4, 0.2, 0.3, 0.0, 0.0], dtype=torch.float64
    ).log()  # in order of value: 0.4, 0.2, 0.1, 0.3

    def quantile(q):
        return group_weighted_quantile(value, log_weight, group, q)[[0, 4]].tolist()

    assert quantile(0.4) == [1.0, 5.0]  # the second group has no weight at all: every value counts alike
    assert quantile(0.41) == [2.0, 5.0]
    assert quantile(0.5) == [2.0, 5.0]
    assert quantile(0.7) == [3.0, 7.0]
    assert quantile(0.71) == [9.0, 7.0]


def parts(**changes):
    _, batch = batch_of()
    fields = ("logp_mu_BT", "adv_BT", "mask_BT", "reward_B", "group_B")
    return {**{f: getattr(batch, f) for f in fields}, **changes}


def test_the_anchor_defaults_to_the_behavior_policy():
    batch = Batch(**parts())
    assert batch.logp_anchor_BT is batch.logp_mu_BT


@pytest.mark.parametrize(
    ("field", "value"),
    [("adv_BT", torch.zeros(8, 4)), ("reward_B", torch.zeros(8, 3)), ("mask_BT", torch.ones(8, 3)),
     ("group_B", torch.full((8,), 9)), ("logp_ref_BT", torch.zeros(1, 3))],
)  # fmt: skip
def test_a_field_of_the_wrong_shape_or_range_is_named(field, value):
    refuses(".", Batch, **parts(**{field: value}))


@pytest.mark.parametrize("kind", [torch.int64, torch.bool])
def test_rewards_that_are_whole_numbers_count_as_floats(kind):
    reward_B = torch.tensor([1, 0, 1, 1], dtype=kind)
    signals = Signals(reward_B, torch.tensor([0, 0, 1, 1]))
    assert advantage["group_mean"].function(signals).tolist() == [0.5, -0.5, 0.0, 0.0]
    assert Batch(**parts(reward_B=torch.ones(8, dtype=kind))).reward_B.is_floating_point()


@pytest.mark.parametrize("field", ["logp_mu_BT", "adv_BT", "logp_anchor_BT"])
def test_a_non_finite_number_under_the_mask_is_counted_and_located(field):
    bad = torch.zeros(8, 3, dtype=torch.float64)
    bad[4, 2] = float("nan")
    bad[6, 0] = float("inf")
    refuses(rf"{field} has 2 non-finite values .* first at \(4, 2\)", Batch, **parts(**{field: bad}))


def test_a_non_finite_number_at_padding_is_no_business_of_ours():
    _, batch = batch_of()
    mu = batch.logp_mu_BT.clone()
    mu[~batch.mask_BT] = float("nan")
    Batch(**parts(logp_mu_BT=mu))


def test_sequences_without_a_token_are_listed():
    _, batch = batch_of()
    mask = batch.mask_BT.clone()
    mask[2] = False
    refuses(r"sequences \[2\] have no token", Batch, **parts(mask_BT=mask))


def test_a_missing_reference_is_named_with_the_method_that_needs_it():
    refuses("needs logp_ref_BT", Batch(**parts()).require, "logp_ref_BT", "dpo")
