"""Facts about the squared-error and mirror-descent family: limits, fixed points, identities."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import SEQUENCES, batch_of, changed
from torch.testing import assert_close

from testbed.advantages import advantage
from testbed.data.batch import Batch
from testbed.data.signals import Signals
from testbed.inspection.effective_weights import effective_weights
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective

MU = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
GRADED = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
EXACT = np.repeat(np.arange(5), (20 * MU).round().astype(int))
"""A group of 20 in which every arm occurs as often as MU says: its mean is an exact expectation."""

ALONE = changed(SEQUENCES[7:], group=0)


def weights(name, sequences=SEQUENCES, adv_B=None, **hyper):
    logp, batch = batch_of(sequences)
    if adv_B is not None:
        batch = replace(batch, adv_BT=adv_B[:, None].expand_as(logp))
    return effective_weights(name, logp, batch, **hyper)


def bandit(arms, sampler, reward, baseline=0.0, groups=None):
    """One token per arm drawn; sampler is behavior, anchor and reference at once."""
    arms = torch.as_tensor(arms)
    behavior = torch.tensor(np.log(sampler))[arms][:, None]
    drawn = torch.tensor(reward, dtype=torch.float64)[arms]
    group = torch.zeros(len(arms), dtype=torch.int64) if groups is None else torch.as_tensor(groups)
    adv = (drawn - baseline)[:, None]
    mask = torch.ones_like(adv, dtype=torch.bool)
    return Batch(behavior, adv, mask, drawn, group, behavior, behavior)


def logit_gradient(name, policy, arms, batch, share_B=None, **hyper):
    """Gradient of the mean loss (or of one weighted by share_B) in the policy's logits."""
    logits = torch.tensor(np.log(policy), requires_grad=True)
    loss = objective[name].function(logits.log_softmax(-1)[torch.as_tensor(arms)][:, None], batch, **hyper)
    total = aggregate(loss, batch.mask_BT, "constant", 1.0) if share_B is None else loss[:, 0] @ share_B
    return torch.autograd.grad(total, logits)[0].numpy()


def tilt(sampler, reward, temperature):
    weight = sampler * np.exp(np.asarray(reward) / temperature)
    return weight / weight.sum()


def test_pairwise_consistency_is_group_relative_reinforce_times_two_tau_g():
    rewards = np.array([0.0, 1.0, 0.3, 0.7, 0.2, 0.9, 0.5, 0.1])
    batch = bandit(range(8), np.full(8, 1 / 8), rewards)
    logp = (batch.logp_mu_BT + torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]).requires_grad_()
    residual = batch.reward_B - 0.7 * (logp - logp.detach())[:, 0]
    explicit = sum((residual[i] - residual[j]) ** 2 for i in range(8) for j in range(i))
    (gradient,) = torch.autograd.grad(explicit, logp)
    relative = effective_weights("asymre", logp, batch, shift=0.0)
    ours = effective_weights("pairwise_opmd", logp, batch, tau=0.7)
    assert_close(ours, -gradient, rtol=1e-12, atol=0)
    assert_close(ours, 11.2 * relative, rtol=1e-12, atol=1e-15)
    trinity = effective_weights("pairwise_opmd@trinity", logp, batch, tau=0.7)
    assert_close(trinity, 1.4 * relative, rtol=1e-12, atol=1e-15)


def test_pairwise_opmds_loss_is_the_spread_of_the_rewards():
    logp, batch = batch_of(SEQUENCES[:4])
    total = objective["pairwise_opmd"].function(logp, batch).sum()
    pairs = [(SEQUENCES[i].reward - SEQUENCES[j].reward) ** 2 for i in range(4) for j in range(i)]
    assert float(total) == pytest.approx(sum(pairs), rel=1e-12)


def test_asymre_without_a_shift_is_reinforce_with_the_groups_mean():
    rows = SEQUENCES[:7]
    _, batch = batch_of(rows)
    adv = advantage["group_mean"].function(Signals(batch.reward_B, batch.group_B))
    assert_close(weights("asymre", rows, shift=0), weights("reinforce", rows, adv_B=adv), rtol=0, atol=1e-15)
    alone = weights("asymre", ALONE)[0]
    assert_close(alone, torch.full((3,), 0.4, dtype=torch.float64))


def test_tba_is_rebel_on_the_reference_up_to_the_count_of_pairs():
    logp, batch = batch_of(SEQUENCES[:4])
    on_reference = replace(batch, logp_mu_BT=batch.logp_ref_BT)
    rebel = effective_weights("rebel", logp, on_reference, eta=2.0)
    assert_close(effective_weights("tba", logp, batch, beta=0.5) * 8 / 3, rebel)


@pytest.mark.parametrize("step_size", [0.3, 1.0])
def test_mdpo_ends_at_the_exact_mirror_step(step_size):
    batch = bandit(EXACT, MU, GRADED, baseline=0.37)
    policy = tilt(MU, GRADED, 1 / step_size)
    assert np.abs(logit_gradient("mdpo", policy, EXACT, batch, step_size=step_size)).max() < 1e-15
    assert np.abs(logit_gradient("mdpo", MU, EXACT, batch, step_size=step_size)).max() > 1e-2


def test_mdpos_penalty_is_never_negative_and_zero_at_the_anchor():
    logp, batch = batch_of()
    idle = replace(batch, adv_BT=torch.zeros_like(batch.adv_BT))
    assert (objective["mdpo"].function(logp, idle)[batch.mask_BT] > 0).any()
    assert (objective["mdpo"].function(logp, idle)[batch.mask_BT] >= 0).all()
    assert (objective["mdpo"].function(batch.logp_anchor_BT, idle) == 0).all()


def test_a_star_po_is_twice_dro_and_ends_at_the_tilt_of_the_reference():
    assert_close(weights("a_star_po", beta2=0.3), 2 * weights("dro", tau=0.3))
    policy, value = tilt(MU, GRADED, 0.5), 0.5 * np.log(MU @ np.exp(GRADED / 0.5))
    batch = bandit(EXACT, MU, GRADED, baseline=value)
    assert np.abs(logit_gradient("a_star_po", policy, EXACT, batch, beta2=0.5)).max() < 1e-15
    off = bandit(EXACT, MU, GRADED, baseline=MU @ GRADED)
    assert np.abs(logit_gradient("a_star_po", policy, EXACT, off, beta2=0.5)).max() > 1e-3


def test_token_penalties_agree_where_their_anchors_do():
    single = [replace(s, anchor=None, reference=s.ratios) for s in SEQUENCES]
    token = weights("kimi_opmd@roll", single, tau=0.2)
    for name, hyper in (("rec_k2", {"c": 0.1}), ("dro@verl", {"beta": 0.2}), ("dro@tinker", {"beta": 0.2})):
        assert_close(weights(name, single, **hyper), token)
    short = [replace(s, ratios=s.ratios[:1], anchor=None, reference=None, turn=None) for s in SEQUENCES]
    assert_close(weights("kimi_opmd", short, tau=0.2), weights("kimi_opmd@roll", short, tau=0.2))
