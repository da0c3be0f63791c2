"""What baselines are for, by enumeration: variance, bias, and the limits in which they coincide.

Groups of equal rewards teach nothing, also where sums have rounded them apart.
"""

from itertools import product

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.advantages import advantage
from testbed.data.signals import Signals


def tensor(values):
    return torch.tensor(np.asarray(values, dtype=float))


def single(reward, weight, norm, group=None):
    """Signals of one-token responses with importance weights and squared gradient norms."""
    group = torch.zeros(len(reward), dtype=torch.int64) if group is None else torch.tensor(group)
    mask, log_rho, norm = torch.ones(len(reward), 1).bool(), tensor(weight).log()[:, None], tensor(norm)
    return Signals(tensor(reward), group, mask, log_rho, score_norm_BT=norm[:, None], score_norm_B=norm)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_history_of_half_precision_has_a_median(dtype):
    group, history = torch.zeros(2, dtype=torch.int64), tensor([0.0, 0.5, 1.0])
    signals = Signals(tensor([1, 0]).to(dtype), group, history_K=history)
    found = advantage["median_of_history"].function(signals)
    assert found.dtype == dtype
    assert found.tolist() == [0.5, -0.5]


def baseline(name, signals, **hyper):
    found = signals.reward_B - advantage[name].bind(**hyper)(signals).reshape(-1)
    assert float(found.max() - found.min()) < 1e-12
    return float(found[0])


# Two actions, one logit: pi = (.7, .3), mu = (.4, .6), R = (1, 0), grad log pi = (.3, -.7).
MU, RATIO, REWARD, SCORE = map(np.array, ([0.4, 0.6], [1.75, 0.5], [1.0, 0.0], [0.3, -0.7]))
DRAWN = [0, 0, 1, 1, 1]  # a group in exactly the proportions of mu
POPULATION = single(REWARD[DRAWN], RATIO[DRAWN], SCORE[DRAWN] ** 2)


def moments(b, mu=MU, ratio=RATIO, reward=REWARD, score=SCORE):
    """Mean and summed variance of w (R - b) grad log pi under mu."""
    value = (ratio * (reward - b))[:, None] * score.reshape(len(mu), -1)
    mean = mu @ value
    return mean, float((mu @ (value - mean) ** 2).sum())


@pytest.mark.parametrize(
    ("name", "hyper", "b", "variance"),
    [
        ("raw", {}, 0.0, 0.06615),
        ("group_mean", {}, 0.4, 0.00735),
        ("opo", {}, 0.4, 0.00735),  # equal lengths: OPO is the group mean
        ("importance_mean", {"eta": np.inf}, 0.7, 0.00184),
        ("importance_mean", {"eta": np.inf, "normalize": False}, 0.7, 0.00184),
        ("optimal_baseline", {}, 0.6, 0.0),
        ("optimal_token_baseline", {"level": "token"}, 0.6, 0.0),
        ("optimal_token_baseline", {"level": "sequence"}, 0.6, 0.0),
        ("optimal_baseline@author", {}, 0.9484, 0.02230),
    ],
)
def test_variance_of_the_two_action_bandit(name, hyper, b, variance):
    found = baseline(name, POPULATION, **hyper)
    mean, spread = moments(found)
    assert found == pytest.approx(b, abs=5e-5)
    assert float(mean[0]) == pytest.approx(0.21, abs=1e-12)
    assert spread == pytest.approx(variance, abs=5e-6)


VCPO = single([1, 0, 1, 0], [1, 1, 4, 0.25], [1, 4, 1, 1])


def test_the_published_example_of_four_responses():
    assert baseline("optimal_baseline", VCPO) == pytest.approx(17 / 21.0625, rel=1e-12)  # .8071
    assert baseline("optimal_baseline@author", VCPO) == pytest.approx(257 / 261 - 1.47e-5, abs=1e-6)  # .9847
    assert baseline("group_mean", VCPO) == 0.5
    assert baseline("optimal_baseline", VCPO, cap=1.0) == pytest.approx(2 / 6.0625, rel=1e-12)


def test_unknown_choices_are_answered_with_the_known_ones():
    for wrong in ({"norm": "true"}, {"scope": "prompt"}, {"average": "mid"}):
        refuses("Known", baseline, "optimal_baseline", VCPO, **wrong)
    refuses("sequence", baseline, "optimal_token_baseline", VCPO, level="prefix")
    refuses("standard", baseline, "max_at_k", VCPO, center="median")
    for wrong in ({"above": 0.0}, {"below": 0.0}):
        refuses("expected positive numbers", baseline, "shaped_std", VCPO, **wrong)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("shift", [-60.0, 0.0, 60.0])
def test_a_factor_of_all_weights_cancels_in_the_token_baseline_also_in_float32(level, shift):
    ones = torch.ones(3, 1)
    log_rho = torch.tensor([[0.0], [1.0], [-1.0]]) + shift
    signals = Signals(
        torch.tensor([1.0, 0.0, 1.0]), torch.zeros(3, dtype=torch.int64), ones.bool(), log_rho,
        score_norm_BT=ones,
    )  # fmt: skip
    e = np.exp(2.0)
    found = signals.reward_B - advantage["optimal_token_baseline"].bind(level=level)(signals)[:, 0]
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, (1 + 1 / e) / (1 + e + 1 / e), rtol=1e-5)


def test_the_best_of_no_response_is_refused():
    refuses("k of max_at_k is 0, expected at least 1", baseline, "max_at_k", VCPO, k=0)


def test_weights_far_beyond_floating_point_still_choose_a_baseline():
    huge = single([1, 0, 1], [1, 1, 1], [1, 1, 1])
    log_rho = torch.tensor([[1e4], [0.0], [-1e4]]).double()
    shifted = Signals(huge.reward_B, huge.group_B, huge.mask_BT, log_rho, score_norm_B=huge.score_norm_B)
    assert baseline("optimal_baseline", shifted) == 1.0
    assert baseline("importance_mean", shifted) == pytest.approx(2 / 3)
    nothing = single([1, 0, 1], [1, 1, 1], [0, 0, 0])
    assert baseline("optimal_baseline", nothing) == pytest.approx(2 / 3)


def test_nemo_rl_leaves_the_only_success_unscaled():
    signals = Signals(tensor([1, 0, 0, 0]), torch.zeros(4, dtype=torch.int64))
    found = advantage["group_std@nemo-rl"].function(signals)
    np.testing.assert_allclose(found, [1, -0.57735, -0.57735, -0.57735], atol=2e-6)
    # Seven equal rewards next to another: rounding must not turn their std into a divisor.
    seven = Signals(torch.tensor([0.35] * 7 + [0.0]), torch.zeros(8, dtype=torch.int64))
    assert float(advantage["group_std@nemo-rl"].function(seven)[-1]) == pytest.approx(-0.35, rel=1e-5)


def test_limits_of_temperatures():
    signals = Signals(
        tensor([1]), torch.zeros(1, dtype=torch.int64), reference_reward_BN=tensor([[0, 1, 0.5]])
    )
    for beta, value in [(1e-4, 1.0), (1e6, 0.5)]:
        assert baseline("optimal_value", signals, beta1=beta) == pytest.approx(value, abs=2e-4)


@pytest.mark.parametrize(("size", "center"), [(12, 1 / 12), (24, 0.0)])
def test_winsorized_rewards_are_clipped_beyond_a_twentieth(size, center):
    one = np.eye(size)[0]
    for reward, expected in ((one, center), (-one, -center)):
        signals = single(reward, np.ones(size), np.ones(size))
        found = baseline("optimal_baseline", signals, average="winsorized")
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    "name",
    [
        "group_mean",
        "group_std",
        "batch_std",
        "max_at_k@verl",
        "leave_one_out",
        "opo",
        "optimal_baseline",
        "importance_mean",
        "optimal_token_baseline",
    ],
)
def test_equal_rewards_have_no_advantage_whatever_their_size_and_precision(name):
    rewards, types = (10.1, 0.1, -1e6 / 3, 1e-8 / 3), (torch.float32, torch.float64)
    for dtype, reward, size in product(types, rewards, (2, 3, 7, 64)):
        noise_NB = torch.tensor(np.random.default_rng(size).random((3, size)), dtype=dtype)
        mask_BT = torch.arange(size)[:, None] % 3 >= torch.arange(3)  # one to three tokens
        signals = Signals(
            torch.full((size,), reward, dtype=dtype),
            torch.zeros(size, dtype=torch.int64),
            mask_BT,
            noise_NB.T,
            score_norm_BT=noise_NB.T,
            score_norm_B=noise_NB[0],
        )
        assert advantage[name].function(signals).abs().max() == 0.0, (dtype, reward, size)


def test_a_tie_that_sums_have_rounded_apart_is_a_tie():
    reward_B = torch.tensor([0.2 + 0.4, 0.6 + 0.0, 0.1 + 0.5], dtype=torch.float64)
    assert len(set(reward_B.tolist())) > 1
    groups = torch.zeros(3, dtype=torch.int64)
    assert advantage["group_std"].function(Signals(reward_B, groups), eps=0.0).nan_to_num().abs().max() == 0


def test_small_differences_are_no_rounding():
    reward_B = torch.tensor([1.0, 1.0 + 1e-5], dtype=torch.float32)
    found = advantage["group_std"].function(Signals(reward_B, torch.zeros(2, dtype=torch.int64)), eps=0.0)
    assert found.tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-3)


def test_equal_advantages_of_a_whole_batch_are_standardized_to_nothing():
    mask = torch.tensor([[True, True], [True, False]])
    group, value = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2).double()
    signals = Signals(tensor([0, 0]), group, mask, value_BT=value)
    assert advantage["standardized"].function(signals).tolist() == [[0.0, 0.0], [0.0, 0.0]]
