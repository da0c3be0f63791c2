"""Logged data: what it holds, that it can be trusted, that it can be repeated."""

import numpy as np
import pytest
from support.refusals import refuses

from envs.logged_bandit import LoggedBandit, logged_bandit

KEYS = np.arange(4, dtype=np.uint64)


def test_propensities_are_those_of_the_logging_policy():
    world = logged_bandit()
    data = world.log(KEYS, 100)
    assert data.reward_RN.shape == (4, 100)
    assert np.array_equal(data.propensity_RN, world.logging_SA[data.context_RN, data.action_RN])
    assert set(np.unique(data.context_RN)) == set(range(5))
    assert set(np.unique(data.reward_RN)) == {0.0, 1.0}


def test_rows_repeat_for_the_same_key_and_step_and_more_rows_go_on_where_fewer_stopped():
    world = logged_bandit()
    data, longer, other = world.log(KEYS, 50), world.log(KEYS, 80), world.log(KEYS, 50, step=1)
    for name, array in vars(data).items():
        assert np.array_equal(array, getattr(longer, name)[:, :50]), name
    assert not np.array_equal(data.context_RN, other.context_RN)
    assert not np.array_equal(data.context_RN[0], data.context_RN[1])
    refuses("step is 2147483648, expected 0 to 2147483647", world.log, KEYS, 1, step=2**31, error=ValueError)


def test_inverse_propensity_weighting_recovers_the_exact_value():
    # n = 4e5 rows and the exact second moment of the weights; |z| < 5 fails for a right log with p = 6e-7.
    world = logged_bandit(contexts=3, arms=3)
    target_SA = np.full((3, 3), 1 / 3)
    data = world.log(KEYS, 100_000)
    weight_RN = target_SA[data.context_RN, data.action_RN] / data.propensity_RN
    second_moment = (target_SA**2 / world.logging_SA * world.reward_SA).sum() / 3  # Bernoulli: r^2 = r
    exact = float(world.value(target_SA))
    standard_error = np.sqrt((second_moment - exact**2) / weight_RN.size)
    assert abs((weight_RN * data.reward_RN).mean() - exact) < 5 * standard_error
    # The weights' own mean square has the exact limit 1 + chi2; 2 % is far outside its sampling error.
    limit = world.divergence(target_SA, world.logging_SA).second_moment
    assert (weight_RN**2).mean() == pytest.approx(float(limit), rel=0.02)


def test_a_skilled_log_earns_more_than_a_blind_one():
    skilled, blind = logged_bandit(skill=1.0, temperature=0.05), logged_bandit(skill=0.0, temperature=0.05)
    assert np.array_equal(skilled.reward_SA, blind.reward_SA)
    assert skilled.value(skilled.logging_SA) > blind.value(blind.logging_SA) + 0.1


@pytest.mark.parametrize("changes", [{"temperature": 0.0}, {"skill": 2.0}])
def test_impossible_logging_policies_are_refused(changes):
    refuses(".", logged_bandit, error=ValueError, **changes)


def test_a_log_needs_one_step_and_a_law_of_actions():
    parts = {"transition_SAS": np.ones((1, 2, 1)), "reward_SA": np.zeros((1, 2)), "start_S": [1.0]}
    with pytest.raises(ValueError, match=r"logging_SA\[0\].* sums to 0.5"):
        LoggedBandit(**parts, horizon=1, logging_SA=[[0.5, 0.0]])
    with pytest.raises(ValueError, match=r"logging_SA has shape \(1, 3\)"):
        LoggedBandit(**parts, horizon=1, logging_SA=[[0.5, 0.5, 0.0]])
    with pytest.raises(ValueError, match="horizon is 2, expected 1"):
        LoggedBandit(**parts, horizon=2, logging_SA=[[0.5, 0.5]])
