"""Advantages on groups worked by hand: sizes four, two and one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.advantages import advantage
from testbed.signals import Signals

REWARD = torch.tensor([1.0, 3.0, 0.0, 2.0, 0.0, 5.0, 4.0], dtype=torch.float64)
GROUP = torch.tensor([0, 1, 0, 0, 0, 1, 2])  # {1, 0, 2, 0}, {3, 5}, {4}


def values(name, **hyper):
    return advantage[name].bind(**hyper)(Signals(REWARD, GROUP)).numpy()


def test_group_mean_subtracts_the_mean_of_the_group():
    np.testing.assert_allclose(values("group_mean"), [0.25, -1, -0.75, 1.25, -0.75, 1, 0], atol=1e-12)


def test_leave_one_out_is_group_mean_times_g_over_g_minus_one():
    expected = [1 / 3, -2, -1, 5 / 3, -1, 2, 4]  # a group of one has baseline 0
    np.testing.assert_allclose(values("leave_one_out"), expected, atol=1e-12)


@pytest.mark.parametrize(("std", "freedom"), [("unbiased", 1), ("population", 0)])
def test_both_conventions_of_the_group_standard_deviation(std, freedom):
    first, second = np.array([1.0, 0, 2, 0]), np.array([3.0, 5])
    expected = [(x - g.mean()) / g.std(ddof=freedom) for x, g in [(1, first), (3, second)]]
    np.testing.assert_allclose(values("group_std", std=std, eps=0.0)[:2], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["group_mean", "group_std"])
def test_equal_rewards_and_groups_of_one_carry_no_advantage(name):
    equal = advantage[name].function(Signals(torch.full((4,), 0.3), torch.tensor([0, 0, 1, 2])))
    assert (equal == 0).all()


def test_raw_reads_zero_and_one_as_minus_one_and_one():
    plus_minus = advantage["raw"].bind(baseline=0.5, scale=2.0)
    assert plus_minus(Signals(torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("name", sorted(advantage))
def test_replicas_and_the_order_of_sequences_do_not_matter(name):
    function = advantage[name].function
    order = torch.tensor([6, 2, 5, 0, 3, 1, 4])
    both = Signals(torch.stack([REWARD, REWARD[order]]), torch.stack([GROUP, GROUP[order]]))
    stacked = function(both)
    torch.testing.assert_close(stacked[0], function(Signals(REWARD, GROUP)))
    torch.testing.assert_close(stacked[1], stacked[0][order])


@pytest.mark.parametrize("name", sorted(advantage))
def test_it_cites_a_source_and_states_its_formula(name):
    assert advantage[name].formula.startswith("A = ")
    assert any(c.isdigit() for c in advantage[name].source)
