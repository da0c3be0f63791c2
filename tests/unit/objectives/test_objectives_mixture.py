"""Facts about the mixtures: separate means, schedules, centers of clips."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import Sequence, batch_of, changed, weights

from testbed.errors import UserError
from testbed.inspection.effective_weights import effective_weights
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective
from testbed.objectives.mixture.chord import expert_weight, mu_schedule
from testbed.objectives.mixture.remix import kl_convex_weight
from testbed.objectives.mixture.self_imitation import replay_weight


def token_mean(name, logp, batch, **hyper):
    return float(aggregate(objective[name].function(logp, batch, **hyper), batch.mask_BT, "token_mean"))


def part(logp, batch, rows):
    rows = torch.tensor(rows)
    one_group = replace(batch, group_B=torch.zeros_like(batch.group_B))
    return logp[rows], one_group.map(lambda x: x[rows])


def test_chord_mixes_the_mean_over_rollouts_with_the_mean_over_expert_tokens():
    logp, batch = batch_of()
    rollouts = token_mean("ppo_clip", *part(logp, batch, range(7)))
    p = logp[7].exp().numpy()
    imitation = np.mean(-p * (1 - p) * logp[7].numpy())
    for mu in (0.0, 0.3, 1.0):
        expected = (1 - mu) * rollouts + mu * imitation
        assert token_mean("chord", logp, batch, mu=mu) == pytest.approx(expected, rel=1e-12)


def test_chord_without_experts_or_without_rollouts_keeps_the_part_that_is_there():
    none = changed(origin=0)
    torch.testing.assert_close(weights("chord", none, mu=0.25), 0.75 * weights("ppo_clip", none))
    all_expert = changed(origin=1)
    logp, batch = batch_of(all_expert)
    expected = 0.25 * batch.mask_BT * logp.exp() * (1 - logp.exp())
    torch.testing.assert_close(effective_weights("chord", logp, batch, mu=0.25), expected)


def test_phi_vanishes_at_certain_and_impossible_tokens_and_peaks_at_a_quarter():
    p = torch.tensor([1e-300, 1e-9, 0.5, 1 - 1e-9, 1.0], dtype=torch.float64)
    phi = expert_weight(p.log(), "on")
    torch.testing.assert_close(phi, torch.tensor([0, 1e-9, 0.25, 1e-9, 0]).double(), rtol=1e-6, atol=1e-17)
    grid = expert_weight(torch.linspace(-8, 0, 4001, dtype=torch.float64), "on")
    assert float(grid.max()) <= 0.25
    assert float(grid.max()) == pytest.approx(0.25, abs=1e-6)
    assert (expert_weight(p.log(), "off") == 1).all()
    torch.testing.assert_close(expert_weight(p.log(), "is"), p)
    # A probability above 1 does not exist; rounding must not turn imitation around.
    assert (expert_weight(torch.tensor([0.1, 1e4]), "on") == 0).all()


def test_phi_is_a_constant_for_the_gradient():
    expert = [Sequence(0.0, (1.3, 0.4), origin=1)]
    logp, batch = batch_of(expert)
    p = logp.exp()
    torch.testing.assert_close(effective_weights("chord", logp, batch, mu=1.0), p * (1 - p))
    torch.testing.assert_close(effective_weights("chord", logp, batch, mu=1.0, phi="is"), p)
    torch.testing.assert_close(effective_weights("chord", logp, batch, mu=1.0, phi="off"), torch.ones_like(p))


@pytest.mark.parametrize("name", ["chord", "self_imitation"])
def test_expert_tokens_need_no_log_probability_of_a_sampler(name):
    logp, batch = batch_of()
    wild = batch.logp_anchor_BT.clone()
    wild[7] = -1e4
    without = effective_weights(name, logp, replace(batch, logp_anchor_BT=wild))
    torch.testing.assert_close(without, effective_weights(name, logp, batch))


def test_mu_rises_linearly_to_its_peak_and_falls_like_a_cosine():
    steps = (0, 100, 200, 400, 600, 10_000)
    assert [mu_schedule(s) for s in steps] == pytest.approx([0, 0.25, 0.5, 0.26, 0.02, 0.02])
    quarter = mu_schedule(300)
    assert quarter == pytest.approx(0.02 + 0.48 * (1 + np.sqrt(0.5)) / 2)
    alone = {"warmup": 0, "decay": 200, "peak": 0.9, "valley": 0.05}
    assert [mu_schedule(s, **alone) for s in (0, 100, 200)] == pytest.approx([0.9, 0.475, 0.05])
    assert mu_schedule(0, warmup=0, decay=0, peak=0.5, valley=0.1) == 0.1


def test_self_imitation_adds_the_mean_over_replay_to_the_mean_over_rollouts():
    logp, batch = batch_of()
    rollouts = token_mean("ppo_clip", *part(logp, batch, range(6)), eps_high=0.28)
    replayed_logp, replayed = part(logp, batch, [6])
    stored = replace(replayed, logp_anchor_BT=replayed.logp_mu_BT)
    replay = token_mean("ppo_clip", replayed_logp, stored, eps_high=0.28)
    total = token_mean("self_imitation", logp, batch, kappa=0.4)
    assert total == pytest.approx(rollouts + 0.4 * replay, rel=1e-12)


def test_replay_counts_only_where_it_was_better_than_usual():
    assert (weights("self_imitation", [Sequence(-1.0, (1.1, 0.9), origin=2)]) == 0).all()
    good = weights("self_imitation", [Sequence(1.0, (1.1, 0.9), (2.0, 2.0), origin=2)])
    assert good.tolist() == [pytest.approx([1.1, 0.9])]
    assert (weights("self_imitation", [Sequence(1.0, (1.1, 0.9), origin=1)]) == 0).all()


def test_kappa_rises_like_half_a_cosine():
    assert [replay_weight(s) for s in (0, 50, 100, 200, 500)] == pytest.approx(
        [0, 0.146447, 0.5, 1, 1], abs=1e-6
    )
    assert replay_weight(150, full=300) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["chord", "self_imitation"])
def test_a_mixture_names_the_origin_it_needs(name):
    logp, batch = batch_of()
    with pytest.raises(UserError, match="needs origin_B"):
        objective[name].function(logp, replace(batch, origin_B=None))


def test_remix_is_ppo_where_the_sampler_is_the_anchor():
    same = changed(anchor=None)
    torch.testing.assert_close(weights("remix", same), weights("ppo_clip", same))


def test_remix_clips_around_the_anchor_and_weighs_from_the_sampler():
    logp, batch = batch_of()
    rho, center = (logp - batch.logp_mu_BT).exp(), (batch.logp_anchor_BT - batch.logp_mu_BT).exp()
    adv = batch.adv_BT
    expected = -torch.minimum(rho * adv, torch.clamp(rho, center - 0.3, center + 0.3) * adv)
    loss = objective["remix"].function(logp, batch, eps=0.3)
    torch.testing.assert_close(loss[batch.mask_BT], expected[batch.mask_BT], rtol=1e-12, atol=0)
    # An engine that is off by a factor of 2 leaves a fresh policy alone: no clip, full weight.
    mismatch = [Sequence(1.0, (2.0, 0.5), (2.0, 0.5)), Sequence(-1.0, (2.0, 0.5), (2.0, 0.5))]
    assert weights("remix", mismatch).tolist() == [pytest.approx([2.0, 0.5]), pytest.approx([-2.0, -0.5])]


def test_remixs_anchor_to_the_base_model_fades_in_steps_of_a_tenth():
    steps = (0, 50, 51, 60, 61, 90, 91, 1000)
    assert [kl_convex_weight(s) for s in steps] == pytest.approx([1, 1, 0.9, 0.9, 0.8, 0.6, 0.5, 0.5])


def test_amplification_raises_the_positive_share():
    # With rewards of +-1 as advantages and a share p of positives, alpha p / (alpha p + 1 - p) is positive.
    data = [Sequence(1.0, (1.0,))] + [Sequence(-1.0, (1.0,))] * 4
    weight = weights("positive_amplification", data)[:, 0]
    assert float(weight.clamp(min=0).sum() / weight.abs().sum()) == pytest.approx(3 * 0.2 / (3 * 0.2 + 0.8))


def test_amplification_by_case():
    cases = [(0.0, 1.0), (0.4, 0.7), (1.5, 0.9), (-0.3, 0.2), (-0.2, 1.0), (1.0, 0.9)]
    data = [Sequence(adv, (1.0,), reward=reward) for adv, reward in cases]
    document = weights("positive_amplification", data)[:, 0].tolist()
    assert document == pytest.approx([3.0, 1.2, 4.5, -0.3, 3.0, 3.0])
    code = weights("positive_amplification@author", data)[:, 0].tolist()
    assert code == pytest.approx([1.0, 1.2, 1.5, -0.3, 1.0, 1.0])


def test_an_unknown_phi_names_the_known_ones():
    with pytest.raises(UserError, match="on"):
        weights("chord", phi="no")
