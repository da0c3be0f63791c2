"""GAE, EGAE and V-trace on a tree of three binary tokens, where every expectation is a sum."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from testbed.advantages import advantage
from testbed.data.signals import Signals

PATHS = np.array(list(product((0, 1), repeat=3)))
DRAWS = np.random.default_rng(17)
REWARD = DRAWS.normal(size=8)
PI_ONE = {tuple(path[:t]): DRAWS.uniform(0.2, 0.8) for path in PATHS for t in range(3)}
MU_ONE = {state: DRAWS.uniform(0.3, 0.7) for state in PI_ONE}


def chance(policy):
    """Probability of every token of every path; [8, 3]."""
    one = np.array([[policy[tuple(path[:t])] for t in range(3)] for path in PATHS])
    return np.where(PATHS == 1, one, 1 - one)


PI, MU = chance(PI_ONE), chance(MU_ONE)


def given(values, prob, t):
    """E[values | the first t tokens], for every path."""
    same = (PATHS[:, None, :t] == PATHS[None, :, :t]).all(-1)
    weight = same * prob[:, t:].prod(1)
    return weight @ values / weight.sum(1)


VALUE = np.stack([given(REWARD, PI, t) for t in range(3)], axis=1)
ACTION_VALUE = np.stack([given(REWARD, PI, t + 1) for t in range(3)], axis=1)


def signals(value=VALUE, **more):
    one_group = torch.zeros(8, dtype=torch.int64)
    mask = torch.ones(8, 3, dtype=torch.bool)
    return Signals(torch.tensor(REWARD), one_group, mask, value_BT=torch.tensor(value), **more)


def call(name, given_signals, **hyper):
    return advantage[name].bind(**hyper)(given_signals).numpy()


WRONG = np.stack([given(DRAWS.normal(size=8), PI, t) for t in range(3)], axis=1)  # of states


def test_gae_with_lambda_one_is_return_minus_value_and_with_lambda_zero_the_td_error():
    np.testing.assert_allclose(call("gae", signals(WRONG), lam=1.0), REWARD[:, None] - WRONG, atol=1e-12)
    after = np.concatenate([WRONG[:, 1:], REWARD[:, None]], axis=1)
    np.testing.assert_allclose(call("gae", signals(WRONG), lam=0.0), after - WRONG, atol=1e-12)


def test_a_discount_counts_tokens_under_the_mask():
    mask = torch.tensor([[1, 0, 0, 1, 1]]).bool()
    zero = torch.zeros(1, 5).double()
    one = Signals(torch.ones(1).double(), torch.zeros(1, dtype=torch.int64), mask, value_BT=zero)
    expected = [[0.25, 0, 0, 0.5, 1]]
    np.testing.assert_allclose(call("gae", one, gamma=0.5, lam=1.0), expected)
    found = call("v_trace", replace(one, log_rho_BT=zero), gamma=0.5)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("clip", [1.0, 3.0, np.inf])
def test_v_trace_on_policy_is_return_minus_value_whatever_the_clip(clip):
    one = signals(WRONG, log_rho_BT=torch.zeros(8, 3).double())
    found = call("v_trace", one, rho_bar=clip, c_bar=clip)
    np.testing.assert_allclose(found, REWARD[:, None] - WRONG, atol=1e-12)


def test_v_trace_without_clips_corrects_the_policy_and_with_clips_only_in_part():
    # E_mu[A_t | first t + 1 tokens] = Q^pi - V for any critic V.
    one = signals(WRONG, log_rho_BT=torch.tensor(np.log(PI / MU)))
    free, clipped = call("v_trace", one, rho_bar=np.inf, c_bar=np.inf), call("v_trace", one)
    for t in range(3):
        expected = ACTION_VALUE[:, t] - WRONG[:, t]
        np.testing.assert_allclose(given(free[:, t], MU, t + 1), expected, atol=1e-12)
    assert np.abs(given(clipped[:, 0], MU, 1) - (ACTION_VALUE - WRONG)[:, 0]).max() > 0.01


@pytest.mark.parametrize(("rho_bar", "c_bar", "lam"), [(1.2, 0.9, 1.0), (0.9, 1.2, 0.7), (np.inf, 1.0, 0.0)])
def test_v_trace_clips_errors_and_traces_with_their_own_bounds(rho_bar, c_bar, lam):
    # v_t = V_t + sum over j >= t of c_t ... c_{j-1} delta_j, Espeholt et al., Eq. 1.
    ratio, after = PI / MU, np.concatenate([WRONG[:, 1:], REWARD[:, None]], axis=1)
    error = after - WRONG
    delta, trace = np.minimum(ratio, rho_bar) * error, lam * np.minimum(ratio, c_bar)
    target = [WRONG[:, t] + sum(trace[:, t:j].prod(1) * delta[:, j] for j in range(t, 3)) for t in range(3)]
    expected = np.stack([*target[1:], REWARD], axis=1) - WRONG
    one = signals(WRONG, log_rho_BT=torch.tensor(np.log(ratio)))
    found = call("v_trace", one, rho_bar=rho_bar, c_bar=c_bar, lam=lam)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_egae_is_gae_where_nothing_is_truncated():
    whole = signals(WRONG, truncated_B=torch.zeros(8, dtype=torch.bool))
    np.testing.assert_allclose(call("egae", whole), call("gae", whole), atol=1e-14)


@pytest.mark.parametrize("lam", [0.3, 1.0])
def test_bias_of_egae_and_of_gae_in_a_window_of_two_tokens(lam):
    # With an exact critic EGAE is unbiased before the last token, where it is 0. GAE, which takes the
    # truncation for an end without reward, spreads the last value over all of them.
    window = torch.tensor([[True, True, False]]).expand(8, 3)
    cut = replace(signals(truncated_B=torch.ones(8, dtype=torch.bool)), mask_BT=window)
    true = ACTION_VALUE - VALUE
    extended, ended = (
        call("egae", cut, lam=lam),
        call("gae", replace(cut, reward_B=cut.reward_B * 0), lam=lam),
    )
    np.testing.assert_allclose(given(extended[:, 0], PI, 1), true[:, 0], atol=1e-12)
    assert (extended[:, 1:] == 0).all()
    np.testing.assert_allclose(ended[:, 1], -VALUE[:, 1], atol=1e-12)
    np.testing.assert_allclose(ended[:, 0] - extended[:, 0], -lam * VALUE[:, 1], atol=1e-12)


def test_egae_reads_token_rewards_of_truncated_responses():
    cut = signals(WRONG, truncated_B=torch.ones(8, dtype=torch.bool))
    paid = replace(cut, token_reward_BT=torch.tensor(DRAWS.normal(size=(8, 3))))
    np.testing.assert_allclose(call("egae", cut)[:, 2], 0, atol=1e-15)
    np.testing.assert_allclose(call("egae", paid)[:, 2], paid.token_reward_BT[:, 2], atol=1e-12)
