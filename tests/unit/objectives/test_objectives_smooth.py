"""The smooth family: limits, worked values, the dual step, and what it does with bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import Sequence, batch_of, changed, weights

from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import objective
from testbed.objectives.smooth.gbpo import target_ratio
from testbed.objectives.smooth.r2vpo import dual_step
from testbed.recipes import recipe


def share(name, adv, ratio, **hyper):
    """w / A of one token."""
    return float(weights(name, [(adv, (float(ratio),))], **hyper)[0, 0]) / adv


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_where_sapo_cuts_an_overflowing_ratio_nothing_is_seen(dtype):
    for tau in (1e-4, 1.0, 50.0):
        last = math.log1p(1000 / tau)
        logp, batch = batch_of([(1.0, (math.exp(last - 1e-3),)), (1.0, (math.exp(last + 1),))], dtype=dtype)
        loss = objective["sapo"].bind(tau_pos=tau)(logp, batch)
        torch.testing.assert_close(loss, torch.full_like(loss, -4 / tau), rtol=1e-7, atol=0)
        assert (effective_weights("sapo", logp, batch, tau_pos=tau) == 0).all()


def test_the_recipe_of_mhpo_sets_both_scales_of_the_hazard():
    args = dict(recipe["mhpo"].bind(lam_pos=1e9, lam_neg=1e9)().objective_args)
    assert share("mhpo", 1.0, 1.0, **args) == pytest.approx(1.0)


def test_r2vpo_takes_one_multiplier_per_replica():
    logp, batch = batch_of()
    both = batch.map(lambda x: torch.stack([x, x]))
    stacked = torch.stack([logp, logp])
    lam = torch.tensor([0.04, 0.7], dtype=torch.float64)[:, None, None]
    weight = effective_weights("r2vpo", stacked, both, lam=lam)
    for row, value in enumerate((0.04, 0.7)):
        torch.testing.assert_close(weight[row], effective_weights("r2vpo", logp, batch, lam=value))


@pytest.mark.parametrize(("level", "ratio"), [("sequence", 0.75), ("geometric", 0.75**0.5)])
def test_r2vpo_at_a_sequence_level_spreads_one_loss_over_the_tokens(level, ratio):
    sequence, adv, lam = [(2.0, (1.5, 0.5))], 2.0, 0.3
    logp, batch = batch_of(sequence)
    loss = objective["r2vpo"].bind(level=level, lam=lam)(logp, batch)
    assert float(loss.sum()) == pytest.approx(-ratio * adv + lam * (ratio - 1) ** 2)
    slope = ratio * (adv - 2 * lam * (ratio - 1)) * (0.5 if level == "geometric" else 1.0)
    assert weights("r2vpo", sequence, level=level, lam=lam)[0].tolist() == pytest.approx([slope] * 2)


def test_the_dual_step_follows_the_mean_square_of_the_ratios_distance_from_one():
    # (0.5^2 + 0.5^2 + 0.25^2 + 3^2 + 0.5^2) / 5 = 1.9625
    logp, batch = batch_of([(1.0, (1.5, 0.5)), (-1.0, (0.5, 1.25, 4.0))], padding=-7.0)
    lam = torch.tensor(0.04, dtype=torch.float64)
    up = dual_step(lam, logp, batch, rate=0.1, budget=0.0625)
    assert float(up) == pytest.approx(0.04 + 0.1 * 1.9)
    assert float(dual_step(lam, logp, batch, rate=0.1, budget=9.0)) == 0.0
    # By sequence: W = 0.75 and 2.5, ((0.25)^2 + 1.5^2) / 2 = 1.15625.
    by_sequence = dual_step(lam, logp, batch, rate=0.1, budget=0.0, level="sequence")
    assert float(by_sequence) == pytest.approx(0.04 + 0.115625)


def test_the_dual_step_keeps_replicas_apart_and_survives_an_overflow():
    logp, batch = batch_of()
    both = batch.map(lambda x: torch.stack([x, x]))
    lam = torch.tensor([0.3, 0.3], dtype=torch.float64)
    moved = dual_step(lam, torch.stack([logp, logp + 1e4]), both, rate=0.01, budget=0.1)
    assert float(moved[0]) == pytest.approx(float(dual_step(lam[0], logp, batch, rate=0.01, budget=0.1)))
    assert float(moved[1]) == 0.3
    nan = logp.clone()
    nan[0, 0] = math.nan
    assert float(dual_step(lam[0], nan, batch, rate=0.01, budget=0.1)) == 0.3


@pytest.mark.parametrize(
    ("gap", "lam", "target"),
    [(0.5, 1.0, 1.04898), (-0.5, 1.0, 0.95102), (0.5, 1e-4, 1.2), (-0.5, 1e-4, 0.8), (0.0, 1.0, 1.0)],
)
def test_the_target_of_gbpo_is_the_published_one(gap, lam, target):
    assert float(target_ratio(torch.tensor(gap), 0.2, 0.2, lam)) == pytest.approx(target, abs=5e-6)


def test_the_target_of_gbpo_may_be_lopsided():
    at = lambda gap: float(target_ratio(torch.tensor(gap), 0.2, 0.28, 1e-4))  # noqa: E731
    assert [at(1.0), at(0.0), at(-1.0)] == pytest.approx([1.28, 1.04, 0.8])


def test_the_authors_gbpo_divides_by_the_std_first():
    rewards = (1.0, 1.0, 0.0, 0.0, 0.4, 0.4)
    std = np.std(rewards, ddof=1)
    targets = [0.8 + 0.4 / (1 + math.exp(-(r - 0.4) / std)) for r in rewards]
    ratios = [target * (1 + 1e-4 * (-1) ** i) for i, target in enumerate(targets)]
    logp, batch = batch_of([Sequence(1.0, (u,), reward=r) for u, r in zip(ratios, rewards, strict=True)])
    weight = effective_weights("gbpo@author", logp, batch)[:, 0]
    assert weight.tolist() == pytest.approx([u * (-1) ** (i + 1) for i, u in enumerate(ratios)])


def test_a_group_of_one_is_at_its_own_median():
    alone = [replace(s, group=i) for i, s in enumerate(changed(ratios=(1.0,), anchor=None, reference=None))]
    alone = [replace(s, turn=None) for s in alone]
    for name in ("gbpo", "gbpo@author"):
        assert (weights(name, alone) == 0).all()


def test_one_temperature_for_a_sequence_is_that_of_its_mean_advantage():
    logp, batch = batch_of([(1.0, (1.0, 1.0)), (-1.0, (1.0, 1.0))])
    mixed = replace(batch, adv_BT=torch.tensor([[2.0, -1.0], [-2.0, 1.0]], dtype=logp.dtype))
    loss = objective["sapo@areal-sequence"].bind(tau_pos=1.0, tau_neg=4.0)(logp, mixed)
    # On-policy the gate is 2 / tau, and both tokens have the mean advantage of +-1/2.
    assert loss.tolist() == [[-1.0, -1.0], [0.25, 0.25]]
