"""The exact numbers of a report card: free of scale, zero where theory says so, endings in closed form."""

import numpy as np
import pytest
import torch

from testbed.exact import objective_facts
from testbed.exact.flows import drift_limit
from testbed.exact.gradient_report import Bench
from testbed.exact.objective_facts import ending, gradient_facts
from testbed.exact.tree import random_policies, random_tree
from testbed.objectives import objective

TREE = random_tree(3, 3, 1)


def bench(drift):
    return Bench(TREE, *random_policies(TREE, drift, 1))


@pytest.mark.parametrize("name", ["reinforce", "ppo_clip", "gspo", "cispo", "tis"])
def test_on_policy_the_direction_is_right_whatever_the_scale(name):
    found = gradient_facts(name, bench(0.0))
    assert found["bias"] == pytest.approx(0.0, abs=1e-9)
    assert found["ess"] == pytest.approx(1.0)
    assert found["noise"] > 1


def test_only_the_ratio_of_the_sequence_keeps_the_direction_off_policy():
    there = bench(0.7)
    assert gradient_facts("ratio:sequence", there)["bias"] == pytest.approx(0.0, abs=1e-9)
    assert gradient_facts("ratio:token", there)["bias"] > 0.05


def test_a_factor_of_the_loss_changes_no_number():
    there, plain = bench(0.5), objective["ppo_clip"].function
    scaled = gradient_facts(lambda logp_BT, batch: 7.0 * plain(logp_BT, batch), there)
    for fact, value in gradient_facts(plain, there).items():
        assert scaled[fact] == pytest.approx(value, rel=1e-9), fact


def test_the_parts_of_the_bias_add_up_to_it():
    found = gradient_facts("cispo", bench(1.0))
    parts = sum(found[f"bias_{part}"] for part in ("state", "suffix", "clipping"))
    assert parts == pytest.approx(found["bias"])
    assert found["bias"] > 0.1


def test_a_gradient_that_is_zero_has_bias_one_and_no_noise():
    found = gradient_facts(lambda logp_BT, batch: 0.0 * logp_BT, bench(0.5))
    assert found["bias"] == pytest.approx(1.0)
    assert np.isnan([found["noise"], found["ess"], found["concentration"]]).all()


def test_the_concentration_counts_the_last_batch_in_part():
    law_R, square_R = np.array([0.05, 0.15, 0.8]), np.array([20.0, 4.0, 0.5])
    # The tenth: all of the first, a third of the second.
    expected = (0.05 * 20 + 0.05 * 4) / (1.0 + 0.6 + 0.4)
    assert objective_facts._concentration(law_R, square_R) == pytest.approx(expected)


def test_reinforce_on_frozen_data_ends_where_its_limit_is():
    reward = np.array(objective_facts.BANDIT_REWARD)
    gains = []
    for copies in (objective_facts.BANDIT_COPIES, objective_facts.BANDIT_COPIES[::-1]):
        mu = np.array(copies) / 20
        base = mu @ reward
        gains.append((drift_limit(mu * (reward - base)) @ reward - base) / (1 - base))
    assert gains[0] == pytest.approx((0.8 - 0.37) / 0.63)  # not the best action, but the largest mu A
    assert ending("reinforce", updates=1500).gain == pytest.approx(np.mean(gains), abs=0.01)


def test_a_clip_stops_on_frozen_data_and_the_first_update_gains():
    found = ending("ppo_clip", updates=400)
    assert found.settled
    assert 0.1 < found.gain < 0.3
    assert (found.path_XU[:, 1] > found.path_XU[:, 0]).all()


def test_what_has_no_gradient_stays_at_mu():
    found = ending(lambda logp_BT, batch: torch.zeros_like(logp_BT) * logp_BT, updates=3)
    assert found.gain == pytest.approx(0.0, abs=1e-12)
    assert found.settled


def test_cloning_the_data_stays_at_mu():
    found = ending(lambda logp_BT, batch: -logp_BT, updates=3)
    assert found.gain == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_an_end_that_hangs_on_the_last_digits_of_mu_is_open_and_another_is_not():
    """RED drops negatives by a key of their log mu: other digits, other negatives."""
    found = ending("red_drop", updates=400)
    assert np.isnan(found.gain)
    assert found.high - found.low > 0.01
    sound = ending("cispo", updates=100)
    assert sound.low == pytest.approx(sound.gain, abs=1e-6)
    assert sound.high == pytest.approx(sound.gain, abs=1e-6)
