"""Imperfect rewards: what cannot be fitted or optimized is refused; strong penalties stay at the base."""

import numpy as np
import pytest

from envs.mdps import garnet
from testbed.errors import UserError
from testbed.exact import bandit_update, policy_steps, proxy_optimization, step_ratios, two_rewards
from testbed.offline import imperfect_rewards
from testbed.worlds import verifiers

EVEN = np.full((1, 4), 0.25)
BASE = np.full((4, 2), 0.5)
PAIRS = np.ones((2, 1, 4, 4))
WORLD = garnet(states=4, actions=2, branching=2, seed=0, discount=0.9)
TIED = np.log([0.5, 0.5])
REFUSED = {
    "Reward model 1 never saw a pair": lambda: imperfect_rewards.reward_ensemble(
        PAIRS * np.array([1.0, 0.0])[:, None, None, None], PAIRS, np.zeros((2, 1, 4, 3)), 1.0
    ),
    "Unknown combination of reward models 'best'": lambda: verifiers.combine(PAIRS[0], "best"),
    "Unknown filter 'worst'": lambda: imperfect_rewards.filtered_dist(EVEN, EVEN, 2, "worst"),
    "The share of wrong labels is 0.6": lambda: imperfect_rewards.flipped(PAIRS[0], 0.6),
    "A false-positive rate is a chance": lambda: imperfect_rewards.lenient_verifier(EVEN, 5 * EVEN),
    "beta is 0": lambda: imperfect_rewards.confident_policy(
        EVEN[..., None], EVEN, np.ones((2, 1)), np.ones(1), 0.0, 1.0
    ),
    "Unknown divergence 'KL'": lambda: proxy_optimization.optimized(WORLD, BASE, BASE, "KL", (1.0,)),
    "gives an action probability 0": lambda: proxy_optimization.optimized(
        WORLD, BASE, np.eye(2)[[0, 0, 0, 0]], "action KL", (1.0,)
    ),
    "sigma is the noise of a step": lambda: step_ratios.log_ratio_moments(np.ones(2), np.zeros(2), 3),
    "Unknown normalization": lambda: two_rewards.group_advantages(np.ones((2, 1, 4)), "both"),
    "expected one shape": lambda: bandit_update.answer_weights("reinforce", EVEN[0], EVEN[0], EVEN),
    "mu gives some answer probability 0": lambda: bandit_update.answer_weights(
        "reinforce", EVEN[0], np.eye(4)[0], EVEN[0]
    ),
    "expected 0 < eps < 1": lambda: policy_steps.bounded_step(EVEN, EVEN, 1.0),
    "expected 0 < set-point < log A": lambda: policy_steps.tempered(np.log(EVEN[0]), 2.0),
    "its most likely answers tie": lambda: policy_steps.tempered(TIED, 0.1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(message):
    with pytest.raises(UserError, match=message):
        REFUSED[message]()


def test_a_strong_penalty_stays_at_the_base_and_a_weak_one_takes_the_proxy():
    proxy_SA = np.array([[0.0, 1.0]] * 4)
    for kind in proxy_optimization.DIVERGENCES:
        near_SA, far_SA = proxy_optimization.optimized(WORLD, proxy_SA, BASE, kind, (100.0, 0.001))
        assert near_SA == pytest.approx(BASE, abs=0.02)
        assert far_SA[:, 1].min() > 0.95


def test_half_of_the_labels_turned_over_leave_no_preference():
    assert imperfect_rewards.flipped(np.array([[[0.9]]]), 0.5) == pytest.approx(0.5)
