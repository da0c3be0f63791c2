"""A Batch refuses what would silently give wrong numbers, and says what to do."""

import pytest
import torch
from support.fixtures import batch_of

from testbed.data.batch import Batch
from testbed.errors import UserError


def parts(**changes):
    _, batch = batch_of()
    fields = ("logp_mu_BT", "adv_BT", "mask_BT", "reward_B", "group_B")
    return {**{f: getattr(batch, f) for f in fields}, **changes}


def test_the_anchor_defaults_to_the_behavior_policy():
    batch = Batch(**parts())
    assert batch.logp_anchor_BT is batch.logp_mu_BT


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("adv_BT", torch.zeros(8, 4), r"adv_BT has shape \(8, 4\), but mask_BT has shape \(8, 3\)"),
        ("reward_B", torch.zeros(8, 3), r"reward_B has shape \(8, 3\).*expected \(8,\)"),
        ("mask_BT", torch.ones(8, 3), "expected bool"),
        ("group_B", torch.full((8,), 9), "ids from 9 to 9; expected ids in"),
        ("logp_ref_BT", torch.zeros(1, 3), "logp_ref_BT has shape"),
    ],
)
def test_a_field_of_the_wrong_shape_or_range_is_named(field, value, words):
    with pytest.raises(UserError, match=words):
        Batch(**parts(**{field: value}))


@pytest.mark.parametrize("field", ["logp_mu_BT", "adv_BT", "logp_anchor_BT"])
def test_a_non_finite_number_under_the_mask_is_counted_and_located(field):
    bad = torch.zeros(8, 3, dtype=torch.float64)
    bad[4, 2] = float("nan")
    bad[6, 0] = float("inf")
    with pytest.raises(UserError, match=rf"{field} has 2 non-finite values .* first at \(4, 2\)"):
        Batch(**parts(**{field: bad}))


def test_a_non_finite_number_at_padding_is_no_business_of_ours():
    _, batch = batch_of()
    mu = batch.logp_mu_BT.clone()
    mu[~batch.mask_BT] = float("nan")
    Batch(**parts(logp_mu_BT=mu))


def test_sequences_without_a_token_are_listed():
    _, batch = batch_of()
    mask = batch.mask_BT.clone()
    mask[2] = False
    with pytest.raises(UserError, match=r"sequences \[2\] have no token"):
        Batch(**parts(mask_BT=mask))


def test_a_missing_reference_is_named_with_the_method_that_needs_it():
    with pytest.raises(UserError, match="needs logp_ref_BT"):
        Batch(**parts()).require("logp_ref_BT", "dpo")
