"""Facts about pairs, preferences and the classical baselines."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import SEQUENCES, Sequence, batch_of, weights
from torch.testing import assert_close

from testbed.advantages import advantage
from testbed.data.batch import Batch
from testbed.data.signals import Signals
from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import objective
from testbed.objectives.preference.pairs import share_pairs

REF = np.array([0.1, 0.4, 0.2, 0.2, 0.1])
SCORE = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
SAMPLERS = (np.array([0.3, 0.25, 0.2, 0.15, 0.1]), np.array([0.02, 0.08, 0.1, 0.2, 0.6]))
PAIRS = [(w, x) for w in range(5) for x in range(5) if w != x]


def preference_gradient(name, policy, sampler, prefers, beta):
    """Logit gradient of the expected loss of pairs from `sampler`; prefers[w, x] is the chance of w > x."""
    arms = torch.tensor(PAIRS).flatten()
    share = torch.tensor([sampler[w] * sampler[x] * prefers[w, x] for w, x in PAIRS]).repeat_interleave(2)
    ref = torch.tensor(np.log(REF))[arms][:, None]
    ones = torch.ones_like(ref)
    winner = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(PAIRS))
    groups = torch.arange(len(PAIRS)).repeat_interleave(2)
    # Behavior is not read: any number will do.
    batch = Batch(-ones, ones, ones.bool(), winner, groups, -ones, ref)
    logits = torch.tensor(np.log(policy), requires_grad=True)
    loss = objective[name].function(logits.log_softmax(-1)[arms][:, None], batch, beta=beta)
    return torch.autograd.grad((loss[:, 0] * share).sum(), logits)[0].abs().max()


def bradley_terry(score):
    return 1 / (1 + np.exp(score[None, :] - score[:, None]))


def linear(score):
    return 0.5 + (score[:, None] - score[None, :]) / 2


def tilt(score, beta):
    weight = REF * np.exp(score / beta)
    return weight / weight.sum()


@pytest.mark.parametrize("name", ["dpo", "online_dpo", "ipo"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=["one sampler", "another"])
def test_an_optimum_is_the_tilt_of_the_reference_whoever_sampled(name, sampler):
    """IPO where preferences are differences: the best margin is (2 P(w > x) - 1) / (2 beta)."""
    law, beta = (linear(SCORE), 1.0) if name == "ipo" else (bradley_terry(SCORE), 0.5)
    assert preference_gradient(name, tilt(SCORE, beta), sampler, law, 0.5) < 1e-14
    assert preference_gradient(name, REF, sampler, law, 0.5) > 1e-3


def sequence_log_ratios(logp, batch):
    return ((logp - batch.logp_ref_BT) * batch.mask_BT).sum(-1)


@pytest.mark.parametrize("name", ["dpo", "ipo", "online_dpo"])
def test_the_mean_over_a_groups_sequences_is_the_mean_over_its_pairs(name):
    tied = [replace(s, reward=reward) for s, reward in zip(SEQUENCES[:4], (1.0, 0.2, 0.2, 0.7), strict=True)]
    logp, batch = batch_of(tied)
    margin = sequence_log_ratios(logp, batch)
    chosen = [(0, 1), (0, 2)] if name == "online_dpo" else [(0, 1), (0, 2), (0, 3), (3, 1), (3, 2)]
    single = {"ipo": lambda z: (z - 5) ** 2}.get(name, lambda z: np.log(1 + np.exp(-0.1 * z)))
    expected = np.mean([single(float(margin[w] - margin[x])) for w, x in chosen])
    loss = objective[name].function(logp, batch)
    assert float(loss.sum() / 4) == pytest.approx(expected, rel=1e-12)


def test_losses_of_pairs_are_shared_within_their_group_whatever_stands_outside_the_pairs():
    _, batch = batch_of([replace(s, group=g) for s, g in zip(SEQUENCES[:5], (0, 0, 0, 1, 1), strict=True)])
    loss_BB, pair_BB = torch.full((5, 5), torch.nan), torch.zeros(5, 5, dtype=torch.bool)
    for (w, x), loss in {(0, 1): 2.0, (0, 2): 4.0, (4, 3): 5.0}.items():
        loss_BB[w, x], pair_BB[w, x] = loss, True
    shared = share_pairs(loss_BB.double(), pair_BB, batch).sum(-1)  # G / 2P is 3/4 and 2/2
    assert shared.tolist() == pytest.approx([4.5, 1.5, 3.0, 5.0, 5.0])


@pytest.mark.parametrize("name", ["dpo", "ipo", "online_dpo"])
def test_in_a_group_of_two_winner_and_loser_carry_the_same_loss(name):
    logp, batch = batch_of(SEQUENCES[:2])
    each = objective[name].function(logp, batch).sum(-1)
    assert float(each[0]) == pytest.approx(float(each[1]), rel=1e-12)
    assert float(each[0]) > 0


@pytest.mark.parametrize("name", ["dpo", "ipo", "ipo@trl", "online_dpo", "p3o"])
def test_without_a_gap_in_reward_there_is_no_loss(name):
    logp, batch = batch_of()
    equal = replace(batch, reward_B=torch.full_like(batch.reward_B, 0.3))
    for group in (batch.group_B, torch.arange(8)):
        assert (objective[name].function(logp, replace(equal, group_B=group)) == 0).all()
        assert (effective_weights(name, logp, replace(equal, group_B=group)) == 0).all()


def leave_one_out(batch):
    return advantage["leave_one_out"].function(Signals(batch.reward_B, batch.group_B))


def test_off_policy_p3o_with_separate_clips_is_rloo_on_the_leave_one_out_advantage():
    logp, batch = batch_of(SEQUENCES[:7])
    rloo = replace(batch, adv_BT=leave_one_out(batch)[:, None].expand_as(logp))
    assert_close(effective_weights("p3o", logp, batch), effective_weights("rloo", logp, rloo))


def test_joint_clipping_looks_at_the_ratio_of_winner_to_loser():
    def both(first, second):
        pair = [Sequence(0.0, first, reward=1.0), Sequence(0.0, second, reward=0.0)]
        return weights("p3o", pair, clip="joint")[:, 0].tolist()

    assert both((1.5,), (1.4,)) == pytest.approx([1.5 / 1.4, -1.5 / 1.4])
    assert both((1.1,), (0.9,)) == [0, 0]
    assert both((0.5,), (2.0,)) == pytest.approx([0.25, -0.25])


def test_joint_clipping_averages_over_all_pairs_of_the_group():
    rewards, ratios = (1.0, 1.0, 0.2, 0.0), (0.9, 0.8, 1.1, 0.95)
    group = [Sequence(0.0, (w,), reward=reward) for w, reward in zip(ratios, rewards, strict=True)]
    expected = np.zeros(4)
    for i in range(4):
        for j in range(4):
            z, gap = ratios[i] / ratios[j], rewards[i] - rewards[j]
            if gap > 0 and z <= 1.2:
                expected += (np.arange(4) == i) * z * gap / 3 - (np.arange(4) == j) * z * gap / 3
    np.testing.assert_allclose(weights("p3o", group, clip="joint")[:, 0].numpy(), expected, rtol=1e-12)


def test_a_pair_that_does_not_count_cannot_overflow_joint_clipping():
    pair = [
        Sequence(0.0, (1.1,), reward=1.0),
        Sequence(0.0, (0.9,), reward=0.0),
        Sequence(0.0, (1.0,), reward=0.0),
    ]
    logp, batch = batch_of(pair)
    logp[2] += 1e4
    weight = effective_weights("p3o", logp, batch, clip="joint")
    assert torch.isfinite(weight).all()
