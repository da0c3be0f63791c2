"""What every registered objective must satisfy; a new one is tested by having a row in reference_weights."""

import itertools
from dataclasses import replace
from functools import partial
from inspect import signature

import numpy as np
import pytest
import torch
from references.weights import CASES, F1_ROWS, WEIGHTS
from support.fixtures import F1, SEQUENCES, Sequence, batch_of, changed, hostile, rows_of
from support.refusals import refuses

from testbed.errors import UserError
from testbed.inspection import promises
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.kept_mask import kept_mask
from testbed.inspection.promises import READS, SCOPES, capped, extreme, lopsided, promised_bound
from testbed.objectives import objective
from testbed.objectives.terms.kl_estimators import VALUES

NAMES = sorted(objective)
# Variants are lines on their base's formula: the quick part tries the bases, and the worked values of all.
every_objective = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * ("@" in name)) for name in NAMES]
)

# Ratios of exactly 1, and advantages of 0: what a comparison does with equality.
TIES = [replace(s, ratios=(1.0, *s.ratios[1:]), adv=s.adv * (i % 3 > 0)) for i, s in enumerate(SEQUENCES)]
LEVELS = {"none", "token", "prefix", "min_prefix", "sequence", "geometric", "turn", "power_mean"}
PROMISES = {
    "ratio", "reads", "scope", "on_policy", "max_weight", "sign", "detached", "penalty", "statistic", "keep",
    "dual",
}  # fmt: skip


def promised(name, promise, default=None):
    return objective[name].promises.get(promise, default)


def reads(name):
    return promised(name, "reads", ())


def test_every_objective_has_a_hand_derived_row_and_every_row_an_objective():
    assert set(WEIGHTS) == set(NAMES)
    numbers = {(name, each.name): each.default for name, row in WEIGHTS.items()
               for each in signature(row).parameters.values()
               if each.name in objective[name].defaults}  # fmt: skip
    assert numbers == {(name, key): objective[name].defaults[key] for name, key in numbers}


@every_objective
def test_it_cites_a_source_states_its_loss_and_makes_known_promises(name):
    entry = objective[name]
    assert entry.formula.startswith("L = ")
    assert any(character.isdigit() for character in entry.source)
    assert entry.family
    assert set(entry.promises) <= PROMISES
    assert entry.promises["ratio"] in LEVELS
    assert entry.promises["scope"] in SCOPES
    assert set(entry.promises["reads"]) <= set(READS)
    assert (entry.promises["scope"] == "batch") == ("statistic" in entry.promises)


def agrees_with_its_row(name, row, sequences, **hyper):
    logp, batch = batch_of(sequences)
    weight = effective_weights(name, logp, batch, **hyper)
    rows = rows_of(sequences)
    for b, s in enumerate(rows):
        np.testing.assert_allclose(weight[b, : s.n].numpy(), row(s, rows), rtol=1e-9, atol=1e-11)
    return weight


@pytest.mark.parametrize("name", NAMES)
def test_its_weight_is_the_one_derived_by_hand(name):
    alone = [replace(s, group=i) for i, s in enumerate(hostile(5))]
    alike = [replace(s, reward=1.0) for s in hostile(6)]
    # Which surplus negatives red_drop keeps is told by a hash, in test_objectives_reinforce.
    drawn = () if name == "red_drop" else (*map(hostile, range(3)), hostile(9, 1))
    for sequences in (SEQUENCES, TIES, alone, alike, *drawn):
        agrees_with_its_row(name, WEIGHTS[name], sequences)


# Settings under which a number of an objective counts.
TURNED_ON = {
    "f_distillation": {"divergence": "js"},
    "s_ppo": {"correction": "subtract"}, "st_ppo": {"correction": "subtract"},
}  # fmt: skip


def silent_numbers(name):
    """Return the numbers of an objective that change no weight at small, usual and extreme ratios."""
    powers = ((0.3, 0.3), (1, 0), (1, 1), (3, 3), (20, 20), (-20, -20))
    batches = [
        batch_of(changed(ratios=lambda s, p=p: extreme(s, p), reward=lopsided,
                         anchor=lambda s, q=q: s.anchor and tuple(x**q for x in s.anchor)))
        for p, q in powers
    ]  # fmt: skip

    def weights(**hyper):
        return torch.stack([effective_weights(name, *b, **TURNED_ON.get(name, {}), **hyper) for b in batches])

    def silent(key, value):
        try:
            return torch.equal(usual, weights(**{key: value}))
        except UserError:
            return True

    usual, numbers = weights(), objective[name].defaults.items()
    tried = {
        key: [not x] if isinstance(x, bool) else [2 * x, x + 1, *[x / 2, 0.01] * isinstance(x, float)]
        for key, x in numbers if isinstance(x, bool | int | float)
    }  # fmt: skip
    return {key for key, values in tried.items() if all(silent(key, value) for value in values)}


def test_every_number_of_an_objective_has_an_effect():
    # On eight sequences these searches end at a bound whatever the step; test_objectives_clipped has others.
    searched = {"bapo": {"mu_weights"}, "bapo@author": {"low_step", "high_step"}}
    assert {name: found for name in NAMES if (found := silent_numbers(name))} == searched


@pytest.mark.parametrize(("name", "hyper", "row"), CASES, ids=lambda x: x if isinstance(x, str) else None)
def test_options_change_its_weight_as_derived_by_hand(name, hyper, row):
    for sequences in (*map(hostile, range(3)), SEQUENCES):
        weight = agrees_with_its_row(name, row, sequences, **hyper)
    assert not torch.equal(weight, effective_weights(name, *batch_of()))


@pytest.mark.parametrize(("name", "hyper", "first", "second"), F1_ROWS)
def test_published_and_hand_worked_values_on_fixture_f1(name, hyper, first, second):
    logp, batch = batch_of(F1)
    weight = effective_weights(name, logp, batch, **hyper) / batch.adv_BT
    np.testing.assert_allclose(weight[0, :2], first, rtol=0, atol=5e-5)
    np.testing.assert_allclose(weight[1, :3], second, rtol=0, atol=5e-5)


# Nothing comes from outside the mask or from neighbors, micro-batches of whole groups do not matter, nor does
# low precision; no ratio is too extreme, no group too poor for a number.
KEPT_BY_ALL = {
    "loss per token": promises.loss_per_token, "padding": partial(promises.nothing_leaks, hole=False),
    "tool tokens": partial(promises.nothing_leaks, hole=True), "order": promises.order_is_free,
    "replicas": promises.replicas_are_separate, "micro-batches": promises.micro_batches_agree,
    "low precision": promises.low_precision_is_raised, "extremes": promises.extremes_are_numbers,
    "degenerate groups": promises.degenerate_groups_are_defined,
}  # fmt: skip


@every_objective
def test_it_keeps_what_every_objective_keeps(name):
    assert {what: said for what, check in KEPT_BY_ALL.items() if (said := check(name))} == {}


@every_objective
def test_on_policy_the_weight_is_the_promised_one(name):
    expected = promised(name, "on_policy")
    if expected is not None:
        found = promises.on_policy(name)
        assert found == (expected if expected == "1/T" else pytest.approx(expected, rel=0, abs=1e-9))


@every_objective
def test_it_reads_what_it_promises_to_read_and_nothing_else(name):
    assert {field for field in READS if promises.reads_field(name, field)} == set(READS) & set(reads(name))


@every_objective
def test_a_field_it_needs_is_named_when_it_is_missing(name):
    logp, batch = batch_of()
    optional = {"ref": "logp_ref_BT", "turn": "turn_BT"}
    optional |= {"origin": "origin_B"} if name in ("chord", "self_imitation") else {}
    for field, attribute in optional.items():
        without = replace(batch, **{attribute: None})
        if field in reads(name):
            refuses(f"needs {attribute}", objective[name].function, logp, without, error=ValueError)
        else:
            objective[name].function(logp, without)


@every_objective
def test_a_weight_depends_on_log_probabilities_of_its_scope_alone(name):
    found, scope = promises.scope(name), promised(name, "scope")
    # A weight that jumps need not move at the one place where it is asked.
    jumps = {"statistic", "keep", "detached"} & set(objective[name].promises) or "group" in reads(name)
    assert SCOPES.index(found) <= SCOPES.index(scope) if jumps else found == scope


# Settings that have a product or a power of their own, beside every default.
FAR = [
    *((name, {}) for name in NAMES),
    ("entropy_bonus", {"gradient": "importance"}), ("r2vpo", {"lam": 0.0}),
    *(("holder", {"p": p, "clip": clip}) for p in (2.0, -2.0) for clip in ("sequence", "token")),
    *((f"rec_{part}", {"weight": "importance"}) for part in ("oneside", "twoside", "ring")),
    ("r2vpo", {"level": "sequence"}),
    *(("kl_penalty", {"direction": direction, "estimator": estimator, "gradient": gradient})
      for direction, estimator in sorted(VALUES) for gradient in ("pathwise", "score", "both")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "hyper"), FAR, ids=lambda x: x if isinstance(x, str) else None)
def test_neither_loss_nor_weight_is_nan_however_far_policies_are_apart(name, hyper):
    logp, batch = batch_of(changed(adv=lambda s: s.adv * (s.group != 1)))
    # pi = ref in one token, mu = ref in another: there a term is 0, whatever overflows.
    ref = batch.logp_ref_BT.clone()
    ref[1, 0], ref[1, 1] = logp[1, 0], batch.logp_mu_BT[1, 1]
    one = torch.zeros_like(logp).index_fill(1, torch.tensor(0), 1.0)
    fields = {"logp_mu_BT": batch.logp_mu_BT, "logp_anchor_BT": batch.logp_anchor_BT, "logp_ref_BT": ref}
    for jump, share in itertools.product((1e4, 800.0, -1e4), (1.0, one)):
        for moved in (*fields, "logp_mu_BT logp_anchor_BT", "pi"):
            far = replace(batch, **{key: x + jump * share * (key in moved) for key, x in fields.items()})
            at = logp + jump * share if moved == "pi" else logp
            assert not torch.isnan(effective_weights(name, at, far, **hyper)).any(), (moved, jump)
            assert not torch.isnan(objective[name].bind(**hyper)(at, far)).any(), (moved, jump)


BOUNDED = [name for name in NAMES if {"eps_low", "eps_high"} <= set(objective[name].defaults)]
TWO_SIDED = {"cispo", "gbpo", "minpro", "rec_ring", "rec_twoside"}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_lower_bound_cuts_negative_advantages_alone_and_an_upper_one_positive_ones(name):
    logp, batch = batch_of()
    for bound, sign in (("eps_low", 1), ("eps_high", -1)):
        tight, wide = (effective_weights(name, logp, batch, **{bound: eps}) for eps in (0.01, 0.9))
        other_side = (tight != wide) & (sign * batch.adv_BT > 0)
        assert bool(other_side.any()) == (name.partition("@")[0] in TWO_SIDED)


@every_objective
def test_the_weight_is_the_finite_difference_of_the_loss_unless_detached(name):
    if not promised(name, "detached"):  # the hand-derived row is else the second opinion
        assert promises.is_derivative(name)


@every_objective
def test_the_promised_bound_holds_for_extreme_ratios(name):
    if promised(name, "max_weight") is None:
        return
    hyper = capped(name)
    assert promises.share_at_powers(name, **hyper) <= promised_bound(name, hyper) * (1 + 1e-12)


@pytest.mark.slow
@every_objective
def test_a_promised_bound_is_reached_and_not_merely_true(name):
    if promised(name, "max_weight") is None:
        return
    hyper = capped(name)
    ratios = torch.tensor([*np.exp(np.linspace(-3, 3, 241)), promised_bound(name, hyper) * (1 - 1e-9)])
    # A replica per ratio and sign, so that one token alone makes every statistic.
    adv_R11 = torch.tensor([1.0, -1.0], dtype=ratios.dtype).repeat_interleave(len(ratios))[:, None, None]
    batch = batch_of([Sequence(1.0, (1.0,))])[1].map(lambda x: x.expand(len(adv_R11), *x.shape).clone())
    logp = batch.logp_mu_BT + ratios.repeat(2)[:, None, None].log()
    batch = replace(batch, adv_BT=adv_R11, reward_B=adv_R11[..., 0], logp_ref_BT=logp)
    weight = effective_weights(name, logp, batch, **hyper) / adv_R11
    assert float(weight.abs().max()) > 0.9 * promised_bound(name, hyper)


@every_objective
def test_the_weight_has_the_sign_of_the_advantage_where_promised(name):
    if "adv" in reads(name) and promised(name, "sign", True):
        assert promises.keeps_sign(name)


@every_objective
def test_zero_advantage_means_zero_loss_and_zero_weight(name):
    if "adv" not in reads(name):
        return
    weight = promises.weights_without_advantage(name)
    if promised(name, "penalty"):
        assert (weight != 0).any()
    else:
        assert (weight == 0).all()
        logp, batch = batch_of(changed(adv=0.0, reward=lambda s: s.reward))
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


WRONG = (
    ("alp", {"level": "cum-token"}, "ratio level 'cum-token'"),
    ("bapo", {"share": "values"}, "share of positive tokens 'values'"), ("chord", {"phi": "no"}, "on"),
    ("cispo@skyrl", {"anchor": "mu"}, "Unknown anchor 'mu'.*Known: old, rollout"),
    ("entropy_bonus", {"gradient": "both"}, "Unknown gradient 'both'"),
    *(("f_distillation", {"beta": float(beta)}, f"beta is {beta}") for beta in (0, 1)),
    ("f_distillation", {"divergence": "kl"}, "Known: forward, js"),
    ("holder", {"clip": "tokens"}, "clip of holder 'tokens'"),
    ("kl_penalty", {"direction": "reversed"}, "Unknown direction 'reversed'.*Did you mean 'reverse'"),
    ("kl_penalty", {"estimator": "k4"}, "Unknown estimator 'k4'.*Known: abs, k1, k2, k3"),
    ("kl_penalty", {"gradient": "path"}, "Unknown gradient 'path'.*Did you mean 'pathwise'"),
    ("kl_rejection", {"estimator": "k4"}, "Unknown estimator 'k4'"),
    ("kl_rejection", {"level": "sequence"}, "Unknown level 'sequence'.*sequence_max"),
    ("max_at_k", {"order": "second"}, "exact"), ("online_dpo", {"loss": "dop"}, "dpo"),
    ("p3o", {"clip": "jiont"}, "joint"),
    ("r2vpo", {"level": "prefix"}, "Unknown ratio level 'prefix'.*geometric, sequence, token"),
    ("rec_oneside", {"level": "sequence"}, "Unknown ratio level 'sequence'"),
    ("rec_oneside", {"weight": "importanse"}, "Unknown weight 'importanse'. Did you mean 'importance'"),
    ("rec_ring", {"weight": "is"}, "Known: importance, none"),
    ("red_drop", {"sede": 1}, "no hyperparameter 'sede'"),
    ("st_ppo", {"correction": "norms"}, "correction 'norms'"),
    ("tis", {"level": "sentence"}, "Unknown ratio level 'sentence'"),
    ("two_sided", {"delta": 0.9}, "delta=0.9"), ("max_at_k", {"k": 0}, "expected at least 1 response"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "hyper", "message"), WRONG)
def test_a_wrong_hyperparameter_is_answered_with_what_can_be(name, hyper, message):
    logp, batch = batch_of()
    refuses(message, effective_weights, name, logp, batch, **hyper)
