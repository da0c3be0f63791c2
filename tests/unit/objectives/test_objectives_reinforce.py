"""The score-function family: limits, worked values, and what it does with bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import SEQUENCES, Sequence, batch_of, weights

from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.kept_mask import kept_mask

SINGLE = tuple(replace(s, anchor=None) for s in SEQUENCES)


def share(name, adv, ratio, **hyper):
    """w / A of one token."""
    return float(weights(name, [(adv, (ratio,))], **hyper)[0, 0]) / adv


def test_trls_vespo_clamps_a_far_token_before_the_product():
    far = [(1.0, (math.exp(30), math.exp(-20)))]
    assert float(weights("vespo", far)[0, 0]) == 0.0
    assert float(weights("vespo@trl", far)[0, 0]) == pytest.approx(1.0)


def test_rec_oneside_with_importance_weights_has_ppos_gradient_for_one_engine():
    for eps in ({}, {"eps_low": 0.4, "eps_high": 1.6}):
        ours = weights("rec_oneside", SINGLE, weight="importance", **eps)
        torch.testing.assert_close(ours, weights("ppo_clip", SINGLE, **eps), rtol=1e-12, atol=0)


def test_the_ring_keeps_far_tokens_without_an_advantage_on_either_side():
    logp, batch = batch_of([(0.0, (0.3, 0.5, 1.0, 1.3, 3.5))])
    assert kept_mask("rec_ring", logp, batch).tolist() == [[True, False, True, False, True]]


def test_trinitys_threshold_of_topr_moves_what_counts_as_negative():
    assert share("topr@trinity", 0.5, 0.4, threshold=0.6) == pytest.approx(0.4)
    assert share("topr@trinity", 0.5, 0.4, threshold=0.5) == pytest.approx(0.4)
    assert share("topr@trinity", 0.5, 0.4) == pytest.approx(1.0)


def test_red_weight_without_a_temperature_is_reinforce_and_favors_positives_with_one():
    torch.testing.assert_close(weights("red_weight", temp=1e12), weights("reinforce"))
    assert share("red_weight", 1.0, 1.0) == pytest.approx(math.e)
    assert share("red_weight", -1.0, 1.0, temp=0.5) == pytest.approx(math.exp(-2))


def crowd(rewards, groups=None):
    sequences = [Sequence(1.0, (1.1, 0.9), reward=r) for r in rewards]
    groups = groups or [0] * len(rewards)
    return batch_of([replace(s, group=g) for s, g in zip(sequences, groups, strict=True)])


def test_red_drop_leaves_as_many_negatives_as_positives_and_takes_the_mean_of_the_kept():
    rewards = [1.0, 0.0, 0.1, 0.2, 0.9, 0.05, 0.15]
    logp, batch = crowd(rewards)
    kept = kept_mask("red_drop", logp, batch)[:, 0]
    assert kept[[0, 4]].all()
    assert int(kept.sum()) == 4
    expected = (batch.reward_B - batch.reward_B[kept].mean()) * kept
    torch.testing.assert_close(effective_weights("red_drop", logp, batch)[:, 0], expected)


def test_red_drop_keeps_groups_with_no_surplus_apart_from_the_others():
    logp, batch = crowd([1, 1, 0, 1, 0, 0, 0, 0.5, 0.3, 0.3], [0, 0, 0, 1, 1, 1, 1, 2, 3, 3])
    kept = kept_mask("red_drop", logp, batch)[:, 0].tolist()
    assert kept[:4] == [True] * 4
    assert sum(kept[4:7]) == 1
    assert kept[7:] == [True] * 3


@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1e-3])
@pytest.mark.parametrize("size", [3, 6, 7])
def test_red_drop_keeps_all_of_a_group_with_equal_rewards(reward, size):
    logp, batch = crowd([reward] * size)
    assert kept_mask("red_drop", logp, batch).all()
    assert effective_weights("red_drop", logp, batch).abs().max() < 1e-12


def test_red_drop_drops_every_negative_equally_often():
    logp, batch = crowd([1.0] + [0.0] * 5)
    times = sum(kept_mask("red_drop", logp, batch, seed=seed)[1:, 0].double() for seed in range(1000))
    assert float(times.sum()) == 1000
    assert (times - 200).abs().max() < 4 * math.sqrt(1000 * 0.2 * 0.8)


def test_red_drop_judges_a_sequence_by_what_it_is_and_not_by_where_it_stands():
    logp, batch = crowd([1.0] + [0.0] * 7)
    kept = kept_mask("red_drop", logp, batch, seed=3)
    order = torch.tensor([5, 0, 7, 2, 6, 1, 4, 3])
    moved = kept_mask("red_drop", logp[order], batch.map(lambda x: x[order]), seed=3)
    assert torch.equal(moved, kept[order])


def splitmix(state):
    """The finalizer of SplitMix64 on a Python integer."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def test_the_key_of_red_drop_is_the_hash_it_says():
    from testbed.objectives.reinforce.red import content_key

    golden = 0x9E3779B97F4A7C15
    _, batch = batch_of(hole=True, width=6)
    for b, s in enumerate(SEQUENCES):
        total = 5 * golden
        chosen = batch.logp_mu_BT[b][batch.mask_BT[b]].numpy().view(np.uint64)
        for rank, bits in enumerate(chosen.tolist(), start=1):
            total += splitmix((bits + rank * golden) % 2**64)
        assert len(chosen) == len(s.ratios)
        assert int(content_key(batch, 5)[b]) % 2**64 == splitmix(total % 2**64)
