"""Groups of equal rewards teach nothing, also where sums have rounded them apart."""

import itertools

import numpy as np
import pytest
import torch

from testbed.advantages import advantage
from testbed.data.signals import Signals
from testbed.exact.two_rewards import expected_step, group_advantages

STANDARDIZED = ("group_mean", "group_std", "batch_std", "max_at_k@verl")


@pytest.mark.parametrize("name", STANDARDIZED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [10.1, 0.1, -1e6 / 3, 1e-8 / 3])
@pytest.mark.parametrize("size", [2, 3, 7, 64])
def test_equal_rewards_have_no_advantage(name, dtype, reward, size):
    signals = Signals(torch.full((size,), reward, dtype=dtype), torch.zeros(size, dtype=torch.int64))
    assert advantage[name].function(signals).abs().max() == 0.0


def test_a_tie_that_sums_have_rounded_apart_is_a_tie():
    reward_B = torch.tensor([0.2 + 0.4, 0.6 + 0.0, 0.1 + 0.5], dtype=torch.float64)
    assert len(set(reward_B.tolist())) > 1
    groups = torch.zeros(3, dtype=torch.int64)
    assert advantage["group_std"].function(Signals(reward_B, groups), eps=0.0).nan_to_num().abs().max() == 0


def test_small_differences_are_no_rounding():
    reward_B = torch.tensor([1.0, 1.0 + 1e-5], dtype=torch.float32)
    found = advantage["group_std"].function(Signals(reward_B, torch.zeros(2, dtype=torch.int64)), eps=0.0)
    assert found.tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-3)


def test_several_rewards_of_equal_groups_have_no_advantage():
    assert np.abs(group_advantages(np.full((1, 1, 3), 0.1), "joint")).max() == 0.0
    assert np.abs(group_advantages(np.full((2, 1, 7), 10.1), "decoupled")).max() == 0.0


def test_the_expected_step_of_one_reward_is_the_enumeration_by_hand():
    pi_A, reward_A = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.7, 0.0])
    by_hand_A = np.zeros(3)
    for drawn in itertools.product(range(3), repeat=3):
        reward_G = reward_A[list(drawn)]
        if len(set(drawn)) > 1:
            adv_G = (reward_G - reward_G.mean()) / reward_G.std(ddof=1)
            by_hand_A += pi_A[list(drawn)].prod() * (adv_G @ (np.eye(3)[list(drawn)] - pi_A)) / 3
    found_A = expected_step(pi_A, reward_A[None], 3, "joint")
    np.testing.assert_allclose(found_A, by_hand_A, atol=1e-12)
    assert found_A.round(3).tolist() == [-0.084, 0.242, -0.158]
