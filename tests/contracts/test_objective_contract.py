"""What every registered objective must satisfy; a new one is tested by having a row in reference_weights."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from references.weights import CASES, F1_ROWS, WEIGHTS
from support.fixtures import F1, SEQUENCES, Sequence, batch_of, changed, rows_of

from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.kept_mask import kept_mask
from testbed.inspection.shared_statistic import shared_statistic
from testbed.objectives import objective

NAMES = sorted(objective)
# Variants are lines on their base's formula: the quick part tries the bases, and the worked values of all.
every_objective = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * ("@" in name)) for name in NAMES]
)

LEVELS = {"none", "token", "prefix", "min_prefix", "sequence", "geometric", "turn", "power_mean"}
READS = ("mu", "anchor", "ref", "adv", "reward", "group", "turn", "origin")
PROMISES = {
    "ratio", "reads", "scope", "on_policy", "max_weight", "sign", "detached", "penalty", "statistic", "keep",
}  # fmt: skip


def promised(name, promise, default=None):
    return objective[name].promises.get(promise, default)


def reads(name):
    return promised(name, "reads", ())


def lopsided(sequence):
    """A reward with one good answer per group, for what drops or weighs the bad ones."""
    return 1.0 if sequence.adv in (1.0, 2.0) else sequence.adv / 10


def extreme(sequence, power=40):
    return tuple(x**power for x in sequence.ratios)


def capped(name):
    """Hyperparameters under which a cap that is infinite by default can be seen."""
    return {"cap": 3.0} if objective[name].defaults.get("cap") == math.inf else {}


def bound(name, hyper):
    expression = promised(name, "max_weight")
    names = {"exp": math.exp, "max": max, "min": min, **objective[name].defaults, **hyper}
    return expression if isinstance(expression, int | float) else eval(expression, {}, names)


def test_every_objective_has_a_hand_derived_row_and_every_row_an_objective():
    assert set(WEIGHTS) == set(NAMES)


@every_objective
def test_it_cites_a_source_states_its_loss_and_makes_known_promises(name):
    entry = objective[name]
    assert entry.formula.startswith("L = ")
    assert any(character.isdigit() for character in entry.source)
    assert entry.family
    assert set(entry.promises) <= PROMISES
    assert entry.promises["ratio"] in LEVELS
    assert entry.promises["scope"] in {"token", "sequence", "group", "batch"}
    assert set(entry.promises["reads"]) <= set(READS)
    assert (entry.promises["scope"] == "batch") == ("statistic" in entry.promises)


@every_objective
def test_its_weight_is_the_one_derived_by_hand(name):
    logp, batch = batch_of()
    weight = effective_weights(name, logp, batch)
    rows = rows_of()
    for b, row in enumerate(rows):
        expected = WEIGHTS[name](row, rows)
        np.testing.assert_allclose(weight[b, : row.n].numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "hyper", "row"), CASES, ids=lambda x: x if isinstance(x, str) else None)
def test_options_change_its_weight_as_derived_by_hand(name, hyper, row):
    logp, batch = batch_of()
    weight = effective_weights(name, logp, batch, **hyper)
    rows = rows_of()
    for b, s in enumerate(rows):
        np.testing.assert_allclose(weight[b, : s.n].numpy(), row(s, rows), rtol=1e-10, atol=1e-12)
    assert not torch.equal(weight, effective_weights(name, logp, batch))


@pytest.mark.parametrize(("name", "hyper", "first", "second"), F1_ROWS)
def test_published_and_hand_worked_values_on_fixture_f1(name, hyper, first, second):
    logp, batch = batch_of(F1)
    weight = effective_weights(name, logp, batch, **hyper) / batch.adv_BT
    np.testing.assert_allclose(weight[0, :2], first, rtol=0, atol=5e-5)
    np.testing.assert_allclose(weight[1, :3], second, rtol=0, atol=5e-5)


@every_objective
def test_there_is_one_finite_loss_per_token(name):
    logp, batch = batch_of()
    loss = objective[name].function(logp, batch)
    assert loss.shape == logp.shape
    assert torch.isfinite(loss[batch.mask_BT]).all()


@every_objective
def test_on_policy_the_weight_is_the_promised_one(name):
    on_policy = promised(name, "on_policy")
    if on_policy is None:
        return
    sequences = changed(ratios=lambda s: (1.0,) * len(s.ratios), anchor=None, reference=None)
    logp, batch = batch_of(sequences)
    weight = effective_weights(name, logp, batch)
    for b, s in enumerate(sequences):
        n = len(s.ratios)
        expected = 1 / n if on_policy == "1/T" else on_policy
        np.testing.assert_allclose(weight[b, :n] / s.adv, expected, rtol=0, atol=1e-9)


@every_objective
@pytest.mark.parametrize("hole", [False, True], ids=["padding", "tool tokens"])
def test_tokens_outside_the_mask_cannot_leak(name, hole):
    logp, batch = batch_of()
    other_logp, other = batch_of(width=6, padding=-50.0, hole=hole)
    other_logp[~other.mask_BT] = float("nan")
    plain = effective_weights(name, logp, batch)
    padded = effective_weights(name, other_logp, other)
    assert (padded[~other.mask_BT] == 0).all()
    torch.testing.assert_close(padded[other.mask_BT], plain[batch.mask_BT], rtol=1e-12, atol=1e-14)


@every_objective
def test_the_order_of_sequences_does_not_matter(name):
    logp, batch = batch_of()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 7, 4])
    moved = effective_weights(name, logp[order], batch.map(lambda x: x[order]))
    torch.testing.assert_close(moved, effective_weights(name, logp, batch)[order], rtol=0, atol=1e-12)


def stack(*batches):
    both = {}
    for item in fields(Batch):
        values = [getattr(batch, item.name) for batch in batches]
        both[item.name] = None if values[0] is None else torch.stack(values)
    return Batch(**both)


@every_objective
def test_stacked_replicas_equal_separate_calls(name):
    logp, batch = batch_of()
    inverse = changed(adv=lambda s: -s.adv, ratios=lambda s: tuple(1 / x for x in s.ratios), group=0)
    other_logp, other = batch_of(inverse)
    stacked = effective_weights(name, torch.stack([logp, other_logp]), stack(batch, other))
    for row, (one_logp, one) in enumerate([(logp, batch), (other_logp, other)]):
        alone = effective_weights(name, one_logp, one)
        torch.testing.assert_close(stacked[row], alone, rtol=1e-12, atol=1e-14)


def with_other(batch, field, size=1.0):
    """The batch with different numbers in one field."""
    shift = torch.linspace(-0.31, 0.29, batch.mask_BT.numel(), dtype=torch.float64) * size
    shift = shift.reshape(batch.mask_BT.shape)
    new = {
        "mu": lambda: {"logp_mu_BT": batch.logp_mu_BT + shift},
        "anchor": lambda: {"logp_anchor_BT": batch.logp_anchor_BT + shift},
        "ref": lambda: {"logp_ref_BT": batch.logp_ref_BT + shift},
        "adv": lambda: {"adv_BT": -batch.adv_BT * (1 + shift)},
        "reward": lambda: {"reward_B": 1.3 - batch.reward_B * (1 + shift[:, 0])},
        "group": lambda: {"group_B": torch.tensor([0, 1, 0, 1, 2, 2, 2, 2])},
        "turn": lambda: {"turn_BT": torch.zeros_like(batch.turn_BT)},
        "origin": lambda: {"origin_B": batch.origin_B.flip(0)},
    }[field]()
    return replace(batch, **new)


@every_objective
@pytest.mark.parametrize("field", READS)
def test_it_reads_what_it_promises_to_read_and_nothing_else(name, field):
    logp, batch = batch_of()
    before = effective_weights(name, logp, batch)
    same = torch.equal(before, effective_weights(name, logp, with_other(batch, field)))
    if same and field in reads(name):
        # A gate that only a far mismatch trips reads its field too.
        same = torch.equal(before, effective_weights(name, logp, with_other(batch, field, size=60.0)))
    if same and field in reads(name):
        logp, batch = batch_of(changed(reward=lopsided))
        before = effective_weights(name, logp, batch)
        same = torch.equal(before, effective_weights(name, logp, with_other(batch, field)))
    assert same == (field not in reads(name))


@every_objective
def test_a_field_it_needs_is_named_when_it_is_missing(name):
    logp, batch = batch_of()
    optional = {"ref": "logp_ref_BT", "turn": "turn_BT"}
    for field, attribute in optional.items():
        without = replace(batch, **{attribute: None})
        if field in reads(name):
            with pytest.raises(ValueError, match=f"needs {attribute}"):
                objective[name].function(logp, without)
        else:
            objective[name].function(logp, without)


@every_objective
def test_a_weight_depends_on_log_probabilities_of_its_scope_alone(name):
    scope = promised(name, "scope")
    logp, batch = batch_of()
    before = effective_weights(name, logp, batch)
    moved = logp.clone()
    moved[1, 0] += 0.4
    after = effective_weights(name, moved, batch)
    free = {
        "token": torch.ones_like(batch.mask_BT).index_put(
            (torch.tensor(1), torch.tensor(0)), torch.tensor(False)
        ),
        "sequence": (torch.arange(len(SEQUENCES)) != 1)[:, None].expand_as(batch.mask_BT),
        "group": (batch.group_B != batch.group_B[1])[:, None].expand_as(batch.mask_BT),
        "batch": torch.zeros_like(batch.mask_BT),
    }[scope]
    assert torch.equal(before[free], after[free])


@every_objective
def test_micro_batches_give_the_weights_of_the_whole_batch(name):
    # Whole groups go into one part; a batch statistic is pooled over the parts.
    logp, batch = batch_of()
    rows = [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5, 6, 7])]
    parts = [(logp[r], batch.map(lambda x, r=r: x[r])) for r in rows]
    parts[1] = (parts[1][0], replace(parts[1][1], group_B=parts[1][1].group_B - 1))
    if promised(name, "scope") == "batch":
        shared = shared_statistic(name, parts)
        parts = [(one, replace(part, statistic=shared)) for one, part in parts]
    split = torch.cat([effective_weights(name, one, part) for one, part in parts])
    torch.testing.assert_close(split, effective_weights(name, logp, batch), rtol=1e-12, atol=1e-14)


@every_objective
def test_the_weight_is_the_finite_difference_of_the_loss_unless_detached(name):
    if promised(name, "detached"):
        return  # the hand-derived row is then the second opinion
    logp, batch = batch_of()

    def total(values):
        return objective[name].function(values, batch)[batch.mask_BT].sum()

    # A round ratio may lie on a round bound, where both sides have a slope of their own.
    beside = (logp + 3.7e-5).requires_grad_()
    assert torch.autograd.gradcheck(total, beside, atol=1e-7)


@every_objective
def test_the_promised_bound_holds_for_extreme_ratios(name):
    if promised(name, "max_weight") is None:
        return
    hyper = capped(name)
    for power in (1, 8, 40, -8):
        logp, batch = batch_of(changed(ratios=lambda s, power=power: extreme(s, power)))
        weight = effective_weights(name, logp, batch, **hyper)
        share = (weight / batch.adv_BT)[batch.mask_BT].abs().max()
        assert float(share) <= bound(name, hyper) * (1 + 1e-12)


@every_objective
def test_a_promised_bound_is_reached_and_not_merely_true(name):
    if promised(name, "max_weight") is None:
        return
    hyper = capped(name)
    best = 0.0
    for ratio in [*np.exp(np.linspace(-3, 3, 241)), bound(name, hyper) * (1 - 1e-9)]:
        for adv in (1.0, -1.0):
            logp, batch = batch_of([Sequence(adv, (float(ratio),))])
            best = max(best, float((effective_weights(name, logp, batch, **hyper) / adv).abs()))
    assert best > 0.9 * bound(name, hyper)


@every_objective
def test_the_weight_has_the_sign_of_the_advantage_where_promised(name):
    if "adv" not in reads(name) or not promised(name, "sign", True):
        return
    for power in (1, 3, -3):
        logp, batch = batch_of(changed(ratios=lambda s, power=power: extreme(s, power)))
        assert (effective_weights(name, logp, batch) * batch.adv_BT >= 0).all()


@every_objective
def test_zero_advantage_means_zero_loss_and_zero_weight(name):
    if "adv" not in reads(name):
        return
    logp, batch = batch_of(changed(adv=0.0, reward=lambda s: s.reward))
    weight = effective_weights(name, logp, batch)
    if promised(name, "penalty"):
        assert (weight != 0).any()
    else:
        assert (weight == 0).all()
        assert (objective[name].function(logp, batch)[batch.mask_BT] == 0).all()


@every_objective
def test_dropped_tokens_have_no_weight(name):
    if promised(name, "keep") is None:
        return
    dropped = 0
    for power in (3, 20, -20):
        powered = changed(
            ratios=lambda s, power=power: extreme(s, power),
            anchor=lambda s, power=power: s.anchor and tuple(x**power for x in s.anchor),
            reward=lopsided,
        )
        logp, batch = batch_of(powered)
        kept = kept_mask(name, logp, batch)
        assert kept.shape == batch.mask_BT.shape
        assert (effective_weights(name, logp, batch)[~kept] == 0).all()
        dropped += int((batch.mask_BT & ~kept).sum())
    assert dropped


@every_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_low_precision_inputs_are_computed_in_float32_at_least(name, dtype):
    # Nothing here lies near a bound after rounding, so that both precisions take the same branch.
    logp, batch = batch_of(SEQUENCES[:4], dtype=torch.float32)
    low, low_batch = logp.to(dtype), batch.map(lambda x: x.to(dtype) if x.is_floating_point() else x)
    weight = effective_weights(name, low, low_batch)
    double = low_batch.map(lambda x: x.double() if x.is_floating_point() else x)
    exact = effective_weights(name, low.double(), double)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5  # the weight itself is returned in bfloat16
    scale = float(exact.abs().max()) + 1
    torch.testing.assert_close(weight.double(), exact, rtol=tolerance, atol=tolerance * scale / 100)


@every_objective
def test_extreme_log_ratios_never_give_nan_and_bounded_weights_stay_finite(name):
    logp, batch = batch_of([*SEQUENCES, *SEQUENCES])
    adv = torch.where(torch.arange(16)[:, None] < 12, batch.adv_BT, torch.zeros_like(batch.adv_BT))
    for jump in (1e4, -1e4):
        far = logp + jump
        weight = effective_weights(name, far, replace(batch, adv_BT=adv), **capped(name))
        assert not torch.isnan(weight).any()
        if promised(name, "max_weight") is not None:
            assert torch.isfinite(weight).all()


@every_objective
def test_groups_of_one_and_equal_rewards_have_a_defined_outcome(name):
    logp, batch = batch_of()
    for group in (torch.arange(8), batch.group_B):
        same = replace(batch, group_B=group, reward_B=torch.full_like(batch.reward_B, 0.5))
        assert torch.isfinite(effective_weights(name, logp, same)).all()
