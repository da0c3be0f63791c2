"""Imperfect rewards: closed forms; what cannot be fitted or optimized is refused."""

import numpy as np
import pytest
import torch
from scipy import special

from analysis.kernels import bandit_update, imperfect_rewards, proxy_optimization, step_ratios
from envs import infinite_horizon
from envs.mdps import garnet
from testbed.errors import UserError
from testbed.worlds import verifier_rewards

EVEN = np.full((1, 4), 0.25)
BASE = np.full((4, 2), 0.5)
PAIRS = np.ones((2, 1, 4, 4))
WORLD = garnet(states=4, actions=2, branching=2, seed=0, discount=0.9)
REFUSED = {
    "Reward model 1 never saw a pair": lambda: imperfect_rewards.reward_ensemble(
        PAIRS * np.array([1.0, 0.0])[:, None, None, None], PAIRS, np.zeros((2, 1, 4, 3)), 1.0
    ),
    "Unknown combination of reward models 'best'": lambda: verifier_rewards.combine(PAIRS[0], "best"),
    "Unknown filter 'worst'": lambda: imperfect_rewards.filtered_dist(EVEN, EVEN, 2, "worst"),
    "The share of wrong labels is 0.6": lambda: imperfect_rewards.flipped(PAIRS[0], 0.6),
    "Unknown divergence 'KL'": lambda: proxy_optimization.optimized(WORLD, BASE, BASE, "KL", (1.0,)),
    "gives an action probability 0": lambda: proxy_optimization.optimized(
        WORLD, BASE, np.eye(2)[[0, 0, 0, 0]], "action KL", (1.0,)
    ),
    "expected one shape": lambda: bandit_update.answer_weights("reinforce", EVEN[0], EVEN[0], EVEN),
    "mu gives some answer probability 0": lambda: bandit_update.answer_weights(
        "reinforce", EVEN[0], np.eye(4)[0], EVEN[0]
    ),
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


def test_a_penalized_reward_held_fixed_has_the_gradient_of_the_penalty():
    """Of E_d[proxy] - 0.3 sqrt(chi2), in the logits, by central differences (ORPO, section 6)."""
    rng = np.random.default_rng(0)
    logit_SA, proxy_SA = rng.normal(size=(2, 4, 2))

    def law(logit_SA):
        pi_SA = special.softmax(logit_SA, -1)
        return pi_SA, 0.1 * infinite_horizon.occupancy(WORLD, pi_SA)[:, None] * pi_SA

    now_SA, base_SA = law(logit_SA)[1], law(np.zeros((4, 2)))[1]
    reward_SA = proxy_optimization.penalized_reward(proxy_SA, now_SA, base_SA, 0.3)
    for one_SA in 1e-5 * np.eye(8).reshape(8, 4, 2):
        objective, fixed = [], []
        for pi_SA, d_SA in (law(logit_SA + one_SA), law(logit_SA - one_SA)):
            far = proxy_optimization.distance(WORLD, pi_SA, BASE, "occupancy chi2")
            objective.append((d_SA * proxy_SA).sum() - 0.3 * far)
            fixed.append((d_SA * reward_SA).sum())
        assert np.diff(objective) / 2e-5 == pytest.approx(np.diff(fixed) / 2e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("keep", "sixteenths"), [("best", [1, 3, 5, 7]), ("best and worst", [4, 4, 4, 4]), ("all", [4, 4, 4, 4])]
)
def test_of_two_even_draws_the_larger_is_kept_as_often_as_counting_says(keep, sixteenths):
    law_SA = imperfect_rewards.filtered_dist(EVEN, np.arange(4.0)[None], 2, keep)
    assert 16 * law_SA[0] == pytest.approx(sixteenths)


def test_worst_keeps_the_least_member_and_uncertainty_pays_for_variance():
    reward_KSA = np.array([[[1.0, 0.0]], [[3.0, 0.0]]])
    assert verifier_rewards.combine(reward_KSA, "worst").tolist() == [[1, 0]]
    assert verifier_rewards.combine(reward_KSA, "uncertainty", penalty=0.5).tolist() == [[1.5, 0]]


def test_drawn_log_ratios_have_the_mean_and_spread_of_their_distribution():
    noise_BTD = torch.randn(20_000, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shift_TD, sigma_T = torch.full((2, 3), 0.2, dtype=torch.float64), torch.tensor([1.0, 0.5]).double()
    drawn_BT = step_ratios.log_ratios(noise_BTD, shift_TD, sigma_T).numpy()
    far_T = 0.2 / sigma_T.numpy()
    assert drawn_BT.mean(0) == pytest.approx(-(far_T**2) / 2, abs=0.01)  # five standard errors
    assert drawn_BT.std(0) == pytest.approx(far_T / 3**0.5, rel=0.03)


def test_half_of_the_labels_turned_over_leave_no_preference():
    assert imperfect_rewards.flipped(np.array([[[0.9]]]), 0.5) == pytest.approx(0.5)
