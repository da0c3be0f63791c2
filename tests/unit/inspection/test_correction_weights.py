"""Weights and masks without the loss: what an objective multiplies with before the policy moves."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.fixtures import batch_of, rows_of
from support.refusals import refuses

from testbed.inspection import promises, relatives
from testbed.inspection.effective_weights import correction_weights, effective_weights
from testbed.inspection.kept_mask import kept_mask
from testbed.objectives import objective

THREE_POLICIES = sorted(
    name
    for name, entry in objective.items()
    if entry.family == "decoupled" and "mu" in entry.promises["reads"]
)


@pytest.mark.parametrize("name", THREE_POLICIES)
def test_a_loss_with_three_policies_is_its_weights_times_the_clip_alone(name):
    hyper = {"c": 3.0} if objective[name].defaults.get("c") == 3.0 else {}
    eps = {key: objective[name].defaults[key] for key in ("eps_low", "eps_high")}
    logp, batch = batch_of()
    # ppo-ewma's cap is on pi/mu, so that its weight is no function of anchor/mu alone; it is far away here.
    clip = effective_weights("dual_clip" if hyper else "ppo_clip", logp, batch, **eps, **hyper)
    whole = effective_weights(name, logp, batch)
    torch.testing.assert_close(correction_weights(name, batch) * clip, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "hyper", "value"),
    [("tis", {"cap": 1.1}, lambda d: np.minimum(d, 1.1)),
     ("mis", {"level": "token", "low": 0.95, "high": 1.1}, lambda d: d * ((d >= 0.95) & (d <= 1.1))),
     ("kl_rejection", {"estimator": "k1", "limit": 0.1}, lambda d: np.abs(np.log(d)) <= 0.1),
     ("cispo", {"eps_high": 0.1}, lambda d: np.minimum(d, 1.1))],
)  # fmt: skip
def test_weights_are_those_of_the_formula_whatever_the_advantage(name, hyper, value):
    _, batch = batch_of()
    for adv in (batch.adv_BT, -7 * batch.adv_BT, torch.zeros_like(batch.adv_BT)):
        found = correction_weights(name, replace(batch, adv_BT=adv), **hyper)
        for b, row in enumerate(rows_of()):
            np.testing.assert_allclose(found[b, : row.n], value(row.d), rtol=1e-12)
        assert (found[~batch.mask_BT] == 0).all()


def test_dropped_tokens_have_weight_zero_and_only_they():
    logp, batch = batch_of()
    for name in ("icepop", "geometric_rejection@skyrl", "kl_rejection@verl", "token_veto", "mis"):
        weights = correction_weights(name, batch)
        assert torch.equal(weights != 0, kept_mask(name, logp, batch)), name


def test_weights_normalized_over_the_batch_have_mean_one_over_tokens_or_over_sequences():
    _, batch = batch_of()
    token = correction_weights("tis@verl-normalized", batch)[batch.mask_BT]
    assert float(token.mean()) == pytest.approx(1, abs=1e-12)
    assert float(token.max()) != pytest.approx(2, abs=1e-3)  # the cap is before the division
    by_row = correction_weights("tis@verl-normalized", batch, level="sequence")
    assert float(by_row[:, 0].mean()) == pytest.approx(1, abs=1e-12)
    assert float(by_row[batch.mask_BT].mean()) != pytest.approx(1, abs=1e-3)


def test_a_batch_without_weight_is_not_normalized():
    _, batch = batch_of()
    vanished = replace(batch, logp_anchor_BT=batch.logp_mu_BT - 30)
    plain = correction_weights("tis@verl", vanished)
    torch.testing.assert_close(correction_weights("tis@verl-normalized", vanished), plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["reinforce", "ppo_clip", "sft", "r2vpo", "tiss"])
def test_an_objective_that_corrects_nothing_is_refused(name):
    _, batch = batch_of()
    refuses(".", correction_weights, name, batch)


def test_the_largest_share_of_a_token_is_that_of_its_ratio_or_cap():
    assert promises.largest_share("reinforce", 1.5) == pytest.approx(1.0)
    assert promises.largest_share("importance_reinforce", 1.5) == pytest.approx(math.exp(1.5))
    assert promises.largest_share("importance_reinforce", 1.5, cap=3.0) == pytest.approx(3.0)
    totals = [math.prod(one.ratios) for one in promises.SEQUENCES]
    most = max(total**power for total in totals for power in (1, 2, -2))
    assert promises.share_at_powers("importance_reinforce", (1, 2, -2)) == pytest.approx(most)
    assert promises.share_at_powers("importance_reinforce", (1, 2), cap=1.25) == pytest.approx(1.25)


def test_relatives_are_ordered_by_likeness_and_what_has_no_weight_is_none(monkeypatch):
    made = {
        "own": [3.0, 0, 4],
        "zero": [0.0, 0, 0],
        "double": [6.0, 0, 8],
        "part": [0.0, 0, 2],
        "far": [0, 1, 0],
    }
    monkeypatch.setattr(relatives, "fingerprint", lambda name: np.array(made[name]))
    found = relatives.nearest("own", made)
    assert [(each.name, each.likeness) for each in found] == [("double", 1.0), ("part", 0.8), ("far", 0.0)]
    assert (found[1].where, found[1].mine, found[1].theirs) == (relatives.places()[0], 3.0, 0.0)
    assert [each.name for each in relatives.nearest("own", made, count=1)] == ["double"]
    assert relatives.nearest("zero", made) == []
