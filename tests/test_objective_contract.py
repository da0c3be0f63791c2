"""What every registered objective must satisfy; a new one is tested by having a row in reference_weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fixtures import F1, SEQUENCES, batch_of
from reference_weights import F1_ROWS, WEIGHTS

from testbed.batch import Batch
from testbed.effective import effective_weights
from testbed.objectives import objective

NAMES = sorted(objective)
every_objective = pytest.mark.parametrize("name", NAMES)


def weights_per_advantage(name, sequences=SEQUENCES, **hyper):
    logp, batch = batch_of(sequences)
    weight = effective_weights(name, logp, batch, **hyper)
    return [(weight[b, : len(r)] / a).numpy() for b, (a, r) in enumerate(sequences)]


def test_every_objective_has_a_hand_derived_row_and_every_row_an_objective():
    assert set(WEIGHTS) == set(NAMES)


@every_objective
def test_it_cites_a_source_and_states_its_loss(name):
    entry = objective[name]
    assert entry.formula.startswith("L = ")
    assert any(character.isdigit() for character in entry.source)
    assert entry.promises["ratio"] in {"none", "token", "prefix", "min_prefix", "sequence", "geometric"}


@every_objective
def test_its_weight_is_the_one_derived_by_hand(name):
    actual = weights_per_advantage(name)
    for (adv, ratios), weight in zip(SEQUENCES, actual, strict=True):
        np.testing.assert_allclose(weight, WEIGHTS[name](ratios, adv, SEQUENCES), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "hyper", "first", "second"), F1_ROWS)
def test_published_and_hand_worked_values_on_fixture_f1(name, hyper, first, second):
    actual = weights_per_advantage(name, F1, **hyper)
    np.testing.assert_allclose(actual[0], first, rtol=0, atol=5e-5)
    np.testing.assert_allclose(actual[1], second, rtol=0, atol=5e-5)


@every_objective
def test_there_is_one_finite_loss_per_token(name):
    logp, batch = batch_of()
    loss = objective[name].function(logp, batch)
    assert loss.shape == logp.shape
    assert torch.isfinite(loss[batch.mask_BT]).all()


@every_objective
def test_on_policy_the_weight_is_the_promised_one(name):
    sequences = [(a, (1.0,) * len(r)) for a, r in SEQUENCES]
    for (_, ratios), weight in zip(sequences, weights_per_advantage(name, sequences), strict=True):
        promised = objective[name].promises["on_policy"]
        expected = 1 / len(ratios) if promised == "1/T" else promised
        np.testing.assert_allclose(weight, expected, rtol=0, atol=1e-12)


@every_objective
def test_padding_cannot_leak(name):
    logp, batch = batch_of()
    wide_logp, wide = batch_of(width=6, padding=-50.0)
    wide_logp[~wide.mask_BT] = float("nan")
    plain = effective_weights(name, logp, batch)
    padded = effective_weights(name, wide_logp, wide)
    torch.testing.assert_close(padded[:, :3], plain, rtol=0, atol=0)
    assert (padded[:, 3:] == 0).all()


@every_objective
def test_the_order_of_sequences_does_not_matter(name):
    logp, batch = batch_of()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    moved = effective_weights(name, logp[order], batch.map(lambda x: x[order]))
    torch.testing.assert_close(moved, effective_weights(name, logp, batch)[order], rtol=0, atol=1e-12)


@every_objective
def test_stacked_replicas_equal_separate_calls(name):
    logp, batch = batch_of()
    other_logp, other = batch_of([(-a, tuple(1 / x for x in r)) for a, r in SEQUENCES])
    fields = ("logp_mu_BT", "adv_BT", "mask_BT", "reward_B", "group_B")
    both = Batch(*[torch.stack([getattr(batch, f), getattr(other, f)]) for f in fields])
    stacked = effective_weights(name, torch.stack([logp, other_logp]), both)
    torch.testing.assert_close(stacked[0], effective_weights(name, logp, batch), rtol=0, atol=0)
    torch.testing.assert_close(stacked[1], effective_weights(name, other_logp, other), rtol=0, atol=0)


@every_objective
def test_the_weight_is_the_finite_difference_of_the_loss_unless_detached(name):
    if objective[name].promises.get("detached"):
        # Then the loss is linear in logp at a fixed weight, and the hand-derived row is the second opinion.
        logp, batch = batch_of()
        loss = objective[name].function(logp, batch)
        weight = effective_weights(name, logp, batch)
        torch.testing.assert_close(loss[batch.mask_BT], (-weight * logp)[batch.mask_BT])
        return
    logp, batch = batch_of()

    def total(values):
        return objective[name].function(values, batch)[batch.mask_BT]

    assert torch.autograd.gradcheck(total, logp.clone().requires_grad_(), atol=1e-7)


@every_objective
def test_the_promised_bound_holds_for_extreme_ratios(name):
    bound = objective[name].promises.get("max_weight")
    if bound is None:
        return
    hyper = {"cap": 3.0} if bound == "cap" else {}
    limits = {"cap": 3.0, "1+eps_high": 1 + objective[name].defaults.get("eps_high", 0)}
    limit = limits.get(bound, bound)
    extreme = [(a, tuple(x**40 for x in r)) for a, r in SEQUENCES]
    assert max(abs(w).max() for w in weights_per_advantage(name, extreme, **hyper)) <= limit


@every_objective
def test_zero_advantage_means_zero_loss_and_zero_weight(name):
    logp, batch = batch_of([(0.0, r) for _, r in SEQUENCES])
    assert (objective[name].function(logp, batch)[batch.mask_BT] == 0).all()
    assert (effective_weights(name, logp, batch) == 0).all()


@every_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_low_precision_inputs_are_computed_in_float32_at_least(name, dtype):
    logp, batch = batch_of(dtype=torch.float32)
    low, low_batch = logp.to(dtype), batch.map(lambda x: x.to(dtype) if x.is_floating_point() else x)
    weight = effective_weights(name, low, low_batch)
    exact = effective_weights(
        name, low.double(), low_batch.map(lambda x: x.double() if x.is_floating_point() else x)
    )
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5  # the weight itself is returned in bfloat16
    torch.testing.assert_close(weight.double(), exact, rtol=tolerance, atol=tolerance)


def test_m2po_keeps_three_of_four_tokens_on_the_worked_example():
    moves = [0.1, -(0.02**0.5), 0.3, -0.6]
    sequences = [(np.sign(m), (float(np.exp(m)),)) for m in moves]
    kept = [float(w[0]) > 0 for w in weights_per_advantage("m2po", sequences, tau=0.0400001)]
    assert kept == [True, True, True, False]


def test_m2po_with_an_infinite_budget_is_token_importance_weighting():
    logp, batch = batch_of()
    free = effective_weights("m2po", logp, batch, tau=float("inf"))
    torch.testing.assert_close(free, effective_weights("importance_reinforce", logp, batch, level="token"))


def test_clips_that_never_bind_leave_token_importance_weighting():
    logp, batch = batch_of()
    token = effective_weights("importance_reinforce", logp, batch, level="token")
    for name in ("ppo_clip", "dual_clip", "cispo"):
        wide = {"eps_low": 1.0, "eps_high": 1e9} | ({"c": 1e9} if name == "dual_clip" else {})
        torch.testing.assert_close(effective_weights(name, logp, batch, **wide), token)


def test_ppo_reads_the_anchor_and_importance_weights_read_the_behavior_policy():
    logp, batch = batch_of()
    anchored = Batch(
        batch.logp_mu_BT, batch.adv_BT, batch.mask_BT, batch.reward_B, batch.group_B, logp_anchor_BT=logp
    )
    on_policy = effective_weights("ppo_clip", logp, anchored)
    torch.testing.assert_close(on_policy[batch.mask_BT], batch.adv_BT[batch.mask_BT])
    for name in ("cispo", "topr", "m2po", "minpro", "importance_reinforce"):
        torch.testing.assert_close(
            effective_weights(name, logp, anchored), effective_weights(name, logp, batch)
        )


@every_objective
def test_a_token_that_is_cut_or_bounded_stays_finite_at_extreme_log_ratios(name):
    mu = torch.zeros(4, 1, dtype=torch.float64)
    logp = torch.tensor([[1e4], [-1e4], [1e4], [-1e4]], dtype=torch.float64)
    adv = torch.tensor([[1.0], [-1.0], [0.0], [1.0]], dtype=torch.float64)
    mask = torch.ones(4, 1, dtype=torch.bool)
    batch = Batch(mu, adv, mask, adv[:, 0], torch.zeros(4, dtype=torch.int64))
    weight = effective_weights(name, logp, batch)
    if name in {"ppo_clip", "dual_clip", "gspo", "m2po"}:
        assert (weight == 0).all()
    elif name != "importance_reinforce":  # without a cap its weight is infinite, and says so
        assert torch.isfinite(weight).all()
