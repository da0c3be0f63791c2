"""A loss's weights on the stack: what they depend on, and how they compare with an entry's."""

import functools
import json
import math
import os
import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.conformance import conformance_check, nearest_entries, sandbox
from testbed.conformance.batches import Row, Token, tensors
from testbed.conformance.calling import LossError
from testbed.conformance.catalogue_entry import Reference, comparable, with_hyper
from testbed.conformance.child import load, plain
from testbed.conformance.conformance_check import Conformance, Line, _start, settled, tried
from testbed.conformance.conformance_report import in_words, page
from testbed.conformance.counterexample import Counterexample, failing, told, where_they_part
from testbed.conformance.hyperparameter_search import (
    Fit,
    _polished,
    _values,
    best_aggregation,
    counting,
    fitted,
    lengths,
)
from testbed.conformance.installed import Outcome, _literal
from testbed.conformance.loss_evidence import (
    close,
    differs,
    gather,
    likeness,
    more_batches,
    parts,
    trace,
    unlike,
    widened,
)
from testbed.conformance.nearest_entries import (
    Identity,
    Near,
    _effort,
    _possible,
    observed,
    refuse_changes,
    with_term,
    without_penalty,
)
from testbed.conformance.nearest_entries import (
    _values as values_in_words,
)
from testbed.conformance.probes import bends, candidates, constants
from testbed.conformance.properties import Judged, Property
from testbed.conformance.signature import Binding, bind
from testbed.recipes.composition import Term, pairs

TOP = 7.25


def ppo(logp, old_logp, adv, mask, low=0.2, high=0.2):
    ratio = (logp - old_logp).exp()
    return -(torch.minimum(ratio * adv, ratio.clamp(1 - low, 1 + high) * adv) * mask).sum()


def token_mean(logp, old_logp, adv, mask):
    return ppo(logp, old_logp, adv, mask) / mask.sum()


def by_sequence(logp, old_logp, adv, mask):
    return -(((logp - old_logp) * mask).sum(-1).exp() * adv[:, 0]).sum()


def by_group(logp, adv, group, mask):
    total = (logp * mask).sum(-1)
    mean = torch.stack([total[group == each].mean() for each in group])
    return -(mean.exp() * adv[:, 0]).sum()


def by_batch(logp, adv, reward, mask):
    return -(adv * mask * logp).sum() * (logp * mask).sum().detach() * reward[0]


def penalized(logp, ref_logp, adv, mask):
    return -(adv * mask * logp).sum() + 0.25 * (mask * (logp - ref_logp) ** 2).sum() / 2


@functools.cache
def evidence(function):
    return gather(bind(function, function.__name__))


@pytest.mark.parametrize(
    ("function", "reads", "scope"),
    [
        (ppo, {"anchor", "adv"}, "token"),
        (by_sequence, {"anchor", "adv"}, "sequence"),
        (by_group, {"adv"}, "group"),
        (by_batch, {"adv", "reward"}, "batch"),
        (penalized, {"adv", "ref"}, "token"),
    ],
)
def test_weights_tell_what_they_depend_on(function, reads, scope):
    found = evidence(function)
    assert (found.reads, found.scope) == (reads, scope)
    assert (found.leaks, found.form, found.tolerance) == (False, "scalar", 1e-5)
    assert found.weight.shape == found.batch.mask_BT.shape == (26, 6, 5)
    assert found.calm.calm is None
    assert found.kept.shape == (int(found.batch.mask_BT.sum()),)


def test_a_stack_in_single_precision_or_with_weights_outside_the_mask_is_told():
    single = gather(bind(lambda logp, mask: -(logp * mask).sum().float(), "mine"))
    assert (single.tolerance, single.leaks) == (2e-3, False)
    assert gather(bind(lambda logp: -logp.sum(-1), "mine")).leaks
    assert gather(bind(lambda logp: -logp.sum(-1), "mine")).form == "rows"
    refuses(
        "gradient of 0 in every batch", gather, bind(lambda logp: 0 * logp.sum(), "mine"), error=LossError
    )
    infinite = bind(lambda logp, mask: (logp * mask / 0).sum(), "mine")
    refuses("a loss of nan, but every number", gather, infinite, error=LossError)
    steep = bind(lambda logp: (logp - logp.detach()).sqrt().sum(), "mine")
    refuses("a gradient that is not finite", gather, steep, error=LossError)


def test_two_weights_are_close_within_a_share_of_the_larger_or_near_nothing():
    """An infinite one is close to itself alone."""
    first = torch.tensor([1.0, 1.0, 1e-10, 0.0, math.inf, math.nan, -1.0, math.inf, -math.inf]).double()
    other = torch.tensor([1.0099, 1.02, 9e-10, 0.0, math.inf, math.nan, 1.0, 1.0, math.inf]).double()
    rest = [True, True, True, False, False, False, False]
    assert close(first, other, 0.01).tolist() == [True, False, *rest]
    assert close(first, other, 1e-5).tolist() == [False, False, *rest]
    sizes = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1e6])
    assert trace(sizes, 1e-5) == pytest.approx(1e-3)
    assert trace(sizes, 2e-5) == pytest.approx(9e-5)
    assert trace(sizes[:0], 1e-5) == 0.0


def test_likeness_is_the_share_that_agrees_after_the_median_factor():
    mine, theirs = np.array([2.0, -4.0, 6.0, 0.0, 5.0]), np.array([1.0, -2.0, 3.0, 0.0, 1.0])
    agree, cosine, factor = likeness(mine, theirs, 1e-5)
    assert (agree, factor) == (0.8, 2.0)
    assert cosine == pytest.approx(33 / math.sqrt(81 * 15))
    assert likeness(np.array([0.0, 0.0, 1.0]), np.array([0.0, 2.0, 0.0]), 1e-5) == (1 / 3, 0.0, 1.0)
    overflown = likeness(np.array([1.0, 3.0]), np.array([1.0, np.inf]), 1e-5)
    assert overflown == (0.5, pytest.approx(1 / math.sqrt(10)), 1.0)


def test_further_batches_have_other_sizes_and_scales():
    found = more_batches()
    assert (len(found), len(more_batches(3))) == (24, 3)
    assert {len(rows) for rows in found} == set(range(2, 8))
    assert {max(len(row.tokens) for row in rows) for rows in found} <= set(range(2, 10))
    small = [t.log_ratio for rows in found[::5] for row in rows for t in row.tokens]
    large = [t.log_ratio for rows in found[4::5] for row in rows for t in row.tokens]
    assert np.std(small) == pytest.approx(0.001, rel=0.3)
    assert np.std(large) == pytest.approx(1.2, rel=0.3)
    assert more_batches() == found != more_batches(seed=2)


@pytest.mark.parametrize("one_old", [True, False])
def test_batches_are_added_around_the_ratios_at_which_a_weight_bends(one_old):
    both = Binding(ppo, "mine", {"logp": "logp", "old_logp": "anchor", "adv": "adv", "mask": "mask"})
    two = bind(lambda logp, logp_anchor, logp_mu, adv, mask: ppo(logp, logp_anchor, adv, mask), "mine")
    held = gather(both if one_old else two)
    assert widened(held, [1.0, 30.0]) is held
    found = widened(held, [1.5, 1.0, 30.0])
    added = [row for rows in found.rows[len(held.rows) :] for row in rows if row.tokens != (Token(),) * 5]
    assert found.calm is held.calm
    assert all(len(rows) == 6 and rows[-1].tokens == (Token(),) * 5 for rows in found.rows[len(held.rows) :])
    assert len(added) == (8 if one_old else 16)
    drawn = [(row.adv, len(row.tokens)) for row in added[:: 1 if one_old else 2]]
    assert drawn == [(1.0, 1), (-1.0, 2), (0.7, 4), (-0.6, 5)] * 2
    first, last = (math.log(1.5) * factor for factor in (0.97, 1.03))
    assert added[0].tokens == (Token(first, 0.0, 0.1),)
    assert added[-1].tokens == (Token(last, 0.0, 0.1) if one_old else Token(0.0, last, 0.1),) * 5
    assert (added[0].reward, added[0].group, added[1].group, added[-1].reward) == (0.75, 0, 1, 0.35)


CLIPPED = Reference("ppo_clip", aggregation="token_sum")
AT_BOUND = (Row((Token(math.log(1.2)),)),)
BEYOND = (Row((Token(),)), Row((Token(math.log(1.25)), Token(kept=False), Token(math.log(0.5))), 2.0))


def test_the_first_batch_on_which_loss_and_entry_part_is_told_with_both_weights():
    right, wider = bind(ppo, "ppo"), Binding(ppo, "mine", bind(ppo, "ppo").arguments, {"high": 0.28})
    assert not differs(right, CLIPPED, 1e-5)(AT_BOUND)
    assert parts(right, CLIPPED, [AT_BOUND, BEYOND], 1e-5) is None
    assert parts(wider, CLIPPED, [AT_BOUND[:0] + BEYOND[:1], BEYOND, AT_BOUND], 1e-5) == BEYOND
    found = told(wider, CLIPPED, BEYOND)
    assert found.mine == ((1.0,), (pytest.approx(2.5), 0.0, pytest.approx(1.0)))
    assert found.theirs == ((1.0,), (0.0, 0.0, pytest.approx(1.0)))
    assert found.lines() == [
        "A = +1, pi/anchor = (1): weights (1), expected (1)",
        "A = +2, pi/anchor = (1.25, -, 0.5): weights (2.5, 0, 1), expected (0, 0, 1)",
    ]
    held = found.as_dict()
    numbers = {"adv": 2.0, "reward": 0.0, "group": 0, "mask": [True, False, True]}
    ratios = {"log_anchor_over_mu": [0.0] * 3, "log_pi_over_ref": [0.0] * 3}
    ratios["log_pi_over_anchor"] = [math.log(1.25), 0.0, math.log(0.5)]
    assert held["rows"][1] == numbers | ratios
    assert (held["weights"], held["expected"], held["lines"]) == (found.mine, found.theirs, found.lines())
    assert Counterexample(BEYOND[:1], problem="called twice").lines()[1:] == ["called twice"]

    def odd(logp, mask):
        raise KeyError("x")

    broken = told(bind(odd, "odd"), CLIPPED, BEYOND)
    assert (broken.mine, broken.problem[:24]) == ((), "odd raised KeyError: 'x'")
    assert failing(differs(bind(odd, "odd"), CLIPPED, 1e-5))(BEYOND)
    assert not failing(differs(right, CLIPPED, 1e-5))(BEYOND)
    logp, batch = tensors(BEYOND)
    outside = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert unlike(CLIPPED, logp, batch, outside, 1e-5)
    assert not unlike(CLIPPED, logp, batch, outside * batch.mask_BT, 1e-5)
    assert where_they_part(right, CLIPPED, 1e-5, examples=5) is None
    assert where_they_part(right, CLIPPED, 1e-5, AT_BOUND, 5).rows == AT_BOUND


def test_an_entry_with_a_term_a_factor_and_an_advantage_is_a_number_and_its_words():
    logp, batch = tensors((Row((Token(0.5, 0.0, 0.25), Token()), 1.0, 1.0), Row((Token(),), -3.0, 0.0)))
    term = Term("kl_penalty", 0.5, pairs(estimator="k1"))
    one = Reference("reinforce", (), "token_mean", factor=2.0, terms=(term,))
    # -A log pi + (log pi - log ref) / 2 per token; weights are A - 1/2, over 3 tokens, doubled.
    assert one.weights(logp, batch)[batch.mask_BT].tolist() == pytest.approx([1 / 3, 1 / 3, -7 / 3])
    by_hand = -logp[0].sum() + 3 * logp[1, 0] + 0.5 * 0.25
    assert one.value(logp, batch) == pytest.approx(2 * by_hand.item() / 3)
    assert one.words() == ("reinforce + 0.5 kl_penalty (estimator k1), aggregation token_mean, times 2")
    centered = Reference(
        "reinforce", (), "constant", 4.0, advantage="group_std", advantage_args=pairs(eps=1.0)
    )
    assert centered.words() == "reinforce, aggregation constant, length 4, advantage group_std (eps 1)"
    # Rewards 1 and 0 in one group: +-1/2 over a deviation of sqrt(1/2), plus 1; 2 rows times 4.
    a = 0.5 / (math.sqrt(0.5) + 1) / 8
    assert centered.weights(logp, batch)[batch.mask_BT].tolist() == pytest.approx([a, a, -a])
    assert CLIPPED.seen(batch) is batch
    assert Reference("gspo", aggregation="constant").words().endswith("constant, length = width of the batch")
    loss = {
        "objective": "reinforce",
        "hyperparameters": {},
        "terms": [["kl_penalty", 0.5, {"estimator": "k1"}]],
    }
    mean = {"aggregation": "token_mean", "length": 0.0, "factor": 2.0}
    none = {"advantage": "", "advantage_hyperparameters": {}}
    assert one.as_dict() == {"words": one.words()} | loss | mean | none
    wider = with_hyper(CLIPPED, {"eps_low": 0.2, "eps_high": 0.3, "delta": 9})
    assert wider == Reference("ppo_clip", (("eps_high", 0.3),), "token_sum")
    assert wider.as_dict()["hyperparameters"] == {"eps_low": 0.2, "eps_high": 0.3}
    known = comparable()
    assert {"ppo_clip", "reinforce", "rebel"} <= set(known)
    assert not {"turn_ppo", "st_ppo", "chord"} & set(known)


def test_the_aggregation_and_the_numbers_of_an_entry_are_found():
    held = evidence(token_mean)
    assert counting(held, CLIPPED) == ("token_mean",)
    assert counting(evidence(ppo), CLIPPED) == ("token_sum", "constant", "sum_over_length")
    assert len(counting(evidence(by_batch), CLIPPED)) > 3, "no way of counting fits"
    fit = best_aggregation(held, CLIPPED)
    assert (fit.reference.aggregation, fit.agree, fit.exact) == ("token_mean", 1.0, True)
    assert (fit.reference.factor, fit.cosine) == (pytest.approx(1.0), pytest.approx(1.0))
    assert best_aggregation(held, CLIPPED, ("sequence_sum",)).agree < 0.9
    assert _polished(held, fit, {"eps_low": 0.0, "eps_high": math.inf}, ["eps_low", "eps_high"], ()) is fit
    wide = gather(Binding(ppo, "mine", bind(ppo, "ppo").arguments, {"low": 0.31, "high": 0.45}))
    found = fitted(wide, CLIPPED, [0.45, 0.1, 0.31], {})
    assert dict(found.reference.hyper) == {"eps_low": 0.31, "eps_high": 0.45}
    assert (found.exact, found.reference.aggregation) == (True, "token_sum")
    half = fitted(wide, CLIPPED, [0.45, 0.1, 0.31], {"eps_low": 0.2}, ("token_sum",))
    assert (half.exact, dict(half.reference.hyper)) == (False, {"eps_high": 0.45})


def test_smooth_numbers_are_found_though_none_is_a_candidate():
    def soft(logp, old_logp, adv, mask):
        tau = torch.where(adv > 0, 1.37, 0.83)
        gate = 4 / tau * torch.sigmoid(tau * ((logp - old_logp).exp() - 1))
        return -(gate * adv * mask).sum()

    found = fitted(gather(bind(soft, "soft")), Reference("sapo"), [], {}, ("token_sum",))
    assert found.exact
    assert dict(found.reference.hyper) == pytest.approx({"tau_pos": 1.37, "tau_neg": 0.83})


def test_values_are_tried_by_the_kind_of_the_default():
    assert _values("estimator", "k3", [0.5]) == ["k1", "k2", "abs"]
    assert _values("nothing", "word", [0.5]) == []
    assert _values("flag", False, [0.5]) == [True]
    assert _values("n", 2, [0.5]) == [1, 3, 4, 8]
    assert _values("limit", None, [0.5, -1.0]) == [0.5, -1.0]
    assert _values("no such name", 0.5, [0.5, 2.0, -1.0, 0.0, 2.0]) == [2.0, 0.0]
    assert _values("no such name", -0.5, [0.5, -1.0]) == [0.5, -1.0]


@pytest.mark.parametrize(
    ("aggregation", "factor", "expected"),
    [
        ("token_sum", 1 / 6, "constant 1 1, sum_over_length 1 6, token_sum 1/6 0"),
        ("token_sum", 1 / 30, "constant 1 0, constant 1 5, sum_over_length 1 30, token_sum 1/30 0"),
        ("constant", 30.0, "token_sum 1 0, constant 1 1/6, sum_over_length 1 1"),
        ("sum_over_length", -5.0, "token_sum -1 0"),
        ("token_mean", 1.00005, "token_mean 1 0"),
        ("token_mean", 1.001, "token_mean 1.001 0"),
    ],
)
def test_a_factor_of_a_token_sum_may_be_a_divisor(aggregation, factor, expected):
    """Expected are the aggregation, its factor and its length, of each reading."""
    found = lengths(Fit(Reference("ppo_clip", (), aggregation, factor=factor), 1.0, 1.0), 6, 5)
    wanted = [(mode, *map(Fraction, rest)) for mode, *rest in map(str.split, expected.split(", "))]
    assert [each.aggregation for each in found] == [mode for mode, *_ in wanted]
    numbers = [(each.factor, each.length) for each in found]
    assert np.array(numbers) == pytest.approx(np.array([rest for _, *rest in wanted], dtype=float))


def test_numbers_that_a_loss_may_use_come_from_its_text_and_from_its_bends():
    assert bends(bind(ppo, "ppo")) == pytest.approx([0.8, 1.2], rel=1e-5)
    assert bends(bind(by_sequence, "smooth")) == []
    limit = 3.5

    def loss(logp, low=0.25, *, high=0.75):
        return logp * limit + TOP - (1 if high else 2**0.5)

    found = constants(functools.partial(loss, low=0.125))
    assert {0.125, 0.25, 0.75, 1.0, 3.5, 7.25} <= set(found)
    assert constants(print) == []
    assert candidates([0.25], []) == [0.0, 4.0, math.inf, -0.75, 0.25, 0.75, math.log(0.25)]
    assert set(candidates([], [0.8])) == {0.0, math.inf, 0.8, 0.2, -0.2, 1.25, -0.22314, 0.22314}


def test_a_penalty_is_what_weights_without_advantages_are():
    held = evidence(penalized)
    rest, alone = without_penalty(held)
    assert np.allclose(rest.kept, evidence_of_reinforce().kept)
    fit = best_aggregation(rest, Reference("reinforce"))
    found = with_term(alone, fit)
    of_k2 = pairs(estimator="k1", direction="reverse", gradient="score")
    assert found.reference.terms == (Term("kl_penalty", 0.25, of_k2),)
    assert without_penalty(evidence(ppo)) is None
    assert with_term(evidence(ppo), fit) is None


@functools.cache
def evidence_of_reinforce():
    return gather(bind(lambda logp, adv, mask: -(logp * adv * mask).sum(), "plain"))


def test_entries_that_read_what_the_weights_depend_on_are_compared_the_simplest_first():
    starts = [Reference(name) for name in ("reinforce", "ppo_clip", "kl_penalty", "decoupled_ppo")]
    assert [each.objective for each in _possible(evidence(ppo), starts)] == ["ppo_clip", "decoupled_ppo"]
    assert _possible(evidence(by_batch), starts) == starts
    rewarded = Reference("reinforce", advantage="group_mean")
    assert _possible(evidence(by_batch), [*starts, rewarded]) == [rewarded]
    held = evidence(ppo)
    assert held.binding.told == {"eps_low": 0.2, "eps_high": 0.2} or held.binding.told == {}
    assert _effort(Reference("ppo_clip"), held) == 0
    assert _effort(Reference("ppo_clip", pairs(eps_low=0.9, eps_high=0.8), factor=2.0), held) == 7
    assert _effort(Reference("decoupled_ppo"), held) == 10
    assert _effort(Reference("dual_clip@verl"), held) == 0.5
    assert values_in_words(held, CLIPPED) == "Its values are those of the entry."
    other = values_in_words(evidence_of_reinforce(), CLIPPED)
    assert re.fullmatch(r"Its weights are .*, its values are not: \S+ for the entry's \S+\.", other)


def test_the_way_of_calling_is_the_one_that_matches_an_entry():
    def per_response(logp, old_logp, adv, mask):
        assert adv.dim() == 1
        return -(logp * adv[:, None] * mask).sum()

    assert not observed(bind(per_response, "mine")).binding.adv_per_token

    def truths(logp, mask):
        assert mask.dtype == torch.bool
        return -logp[mask].sum()

    assert observed(bind(truths, "mine")).binding.mask_as == "bool"

    def careless(logp, adv, mask):
        loss = -(logp * adv.clone() * mask).sum()
        adv.zero_()
        return loss

    told = "changes its inputs in place: adv. It"
    refuses(told, refuse_changes, gather(bind(careless, "m")), error=LossError)
    odd = bind(lambda logp, adv: {}[adv.dim()], "odd")
    refuses("raised KeyError: 2", observed, odd, error=LossError)  # of the usual way


def test_a_start_takes_words_then_the_signature_then_the_recipe():
    binding = bind(lambda logp, old_logp, adv, mask, clip_eps=0.1: 0, "mine")
    start, known = _start("ppo_clip", "constant", 7.0, {"eps_high": 0.3}, binding)
    assert start == Reference("ppo_clip", (), "constant", 7.0)
    assert known == {"eps_low": 0.1, "eps_high": 0.3}
    start, known = _start("grpo@pipelinerl", "", 0.0, {}, binding)
    assert start == Reference("ppo_clip", (), "constant", 1.0, terms=start.terms)
    assert [(term.objective, term.coefficient) for term in start.terms] == [("kl_penalty", 0.1)]
    assert known == {"eps_low": 0.1, "eps_high": 0.1}
    rewarded = bind(lambda logp, old_logp, reward, group, mask: 0, "mine")
    start, known = _start("grpo@trl", "token_sum", 0.0, {}, rewarded)
    assert (start.advantage, start.aggregation) == ("group_std", "token_sum")
    assert dict(start.advantage_args)["eps"] == 1e-4
    assert known == {"eps_low": 0.2, "eps_high": 0.2}
    both = bind(lambda logp, old_logp, adv, reward, mask: 0, "mine")
    assert _start("grpo@trl", "", 0.0, {}, both)[0].advantage == "", "it is given"
    refuses("", _start, "ppo_clip", "", 0.0, {"no": 1}, binding)


def test_what_is_told_is_settled_and_the_rest_is_searched():
    held = evidence(ppo)
    known = {"eps_low": 0.2, "eps_high": 0.25}
    wider = Reference("ppo_clip", (("eps_high", 0.25),), "token_sum")
    assert settled(held, CLIPPED, known, True) == (wider, ())
    best, free = settled(held, CLIPPED, {"eps_low": 0.1}, True)
    assert (dict(best.hyper), best.aggregation, free) == ({"eps_low": 0.1}, "token_sum", ("eps_high",))


def test_a_property_holds_fails_warns_or_does_not_apply():
    judged = Judged(bind(ppo, "mine"), CLIPPED, 1e-5)
    make = BATTERY_STRATEGY
    assert tried(judged, Property("a", "says", make, lambda j, rows: False)) == Line("a", "says", "holds")
    absent = Property("a", "says", make, lambda j, rows: True, absent=lambda j: "why")
    assert tried(judged, absent) == Line("a", "says", "does not apply", note="why")
    robust = Property("b", "s", make, lambda j, rows: len(rows) > 1, robust=True, when="twice")
    warned = tried(judged, robust)
    assert (warned.verdict, warned.counterexample.problem) == ("warning", "twice")
    assert len(warned.counterexample.rows) == 2
    failed = tried(judged, robust, strict=True)
    assert (failed.verdict, failed.counterexample.mine) == ("fails", ())
    raises = Judged(bind(lambda logp, mask: 1 / 0, "odd"), CLIPPED, 1e-5)
    assert tried(raises, robust).counterexample.problem.startswith("odd raised ZeroDivisionError")
    lines = Line("a", "says", "holds"), warned, failed, Line("c", "s", "does not apply", note="why")
    found = Conformance(judged.binding, CLIPPED, ("eps_high",), lines, 1.239)
    assert (found.holds, found.first) == (False, failed)
    held = found.as_dict()
    facts = [held[name] for name in ("loss", "searched", "layout", "seconds")]
    assert facts == ["mine", ["eps_high"], "padded", 1.24]
    row = "A = +1, pi/anchor = (1)"
    assert in_words(held) == [
        "mine as ppo_clip with eps_low 0.2, eps_high 0.2, aggregation token_sum",
        "Found by search, so not checked: eps_high.",
        "ok    a  says",
        "warn  b  s",
        f"      {row}",
        "FAIL  b  s",
        f"      {row}",
        f"      {row}",
        "      twice",
        "-     c  why",
        "Fails: b.",
    ]
    assert "<td class='does'>does not apply</td><td>c</td><td>why</td>" in page(held)
    assert f"<td>s<br><code>{row}</code><br><code>{row}</code><br><code>twice</code></td>" in page(held)
    sound = Conformance(judged.binding, CLIPPED, (), lines[:2], 1.0)
    assert (sound.holds, in_words(sound.as_dict())[-1]) == (True, "Every property holds.")


def BATTERY_STRATEGY(judged):
    from testbed.conformance.strategies import batches

    return batches(mismatch=False, rows=(1, 2), longest=1)


def test_an_identity_tells_equal_entries_or_the_nearest_and_where_the_first_parts():
    held = evidence(ppo)
    same = Identity(held.binding, held, (CLIPPED, Reference("dual_clip")), (), 1.239, ("A note.",))
    words = in_words(same.as_dict())
    assert words == [
        f"ppo equals {CLIPPED.words()}.",
        f"  also {Reference('dual_clip').words()}",
        "Layout: padded. Its weights depend on adv, anchor; scope: token.",
        "A note.",
    ]
    shown = Counterexample(AT_BOUND, ((1.0,),), ((0.5,),))
    near = (Near(Fit(CLIPPED, 0.5, 0.25)), Near(Fit(Reference("gspo"), 0.125, 0.0), shown))
    new = Identity(held.binding, held, (), near, 1.0).as_dict()
    assert (new["nearest"][0]["agree"], new["nearest"][1]["cosine"], new["seconds"]) == (0.5, 0.0, 1.0)
    assert in_words(new)[:5] == [
        "ppo is new: no entry of the catalogue has its weights. Nearest:",
        f"   50.0% of tokens agree, cosine 0.2500: {CLIPPED.words()}",
        f"   12.5% of tokens agree, cosine 0.0000: {Reference('gspo').words()}",
        "The smallest batch on which it parts from the first of them:",
        "  A = +1, pi/anchor = (1.2): weights (1), expected (0.5)",
    ]
    assert f"<h1>ppo</h1><p>{words[0]}</p><p>{words[1]}</p>" in page(same.as_dict())


def test_an_answer_from_the_other_process_may_come_in_pieces():
    def answered(*chunks, limit=5.0):
        read, write = os.pipe()
        for chunk in chunks:
            os.write(write, chunk)
        with os.fdopen(read, "rb", buffering=0) as stream:
            try:
                return sandbox._answer(stream, None, "mine", 5.0, limit)
            finally:
                os.close(write)

    assert answered(b'{"call": "logp"}\n{"call": ""}\n{"res', b'ult": {"a": 1}}\n') == {"a": 1}
    refuses("it failed", answered, b'{"call": "logp"}\n{"error": "it failed"}\n')
    refuses("Traceback", answered, b'{"crash": "Traceback"}\n', error=RuntimeError)
    all_ = "mine took over 0.05 s in all. It was passed logp. In Python, conform and identify"
    refuses(all_, answered, b'{"call": "logp"}\n', limit=0.05)


def test_numbers_that_json_lacks_become_words():
    wanted = {"1": ["nan", ["inf", 0.5]], "a": "-inf", "b": "x"}
    assert plain({1: [math.nan, (math.inf, 0.5)], "a": -math.inf, "b": "x"}) == wanted
    assert json.dumps(plain([None, True, 3])) == "[null, true, 3]"
    assert load("testbed.conformance.batches:Row._repr_pretty_") is Row._repr_pretty_
    refuses("'testbed.words' names no function; expected", load, "testbed.words")
    refuses("no.such:f cannot be imported: ModuleNotFoundError: No module", load, "no.such:f")
    constant = "testbed.conformance.batches:ROWS"
    refuses(f"{constant} is a int; expected a function", load, constant)
    assert _literal([torch.tensor([[0.5, 1 / 3]]), torch.tensor(2), "a"]) == "[[[0.5, 0.3333333]], 2, 'a']"
    shown = Outcome("trl", "1.0", "x", "differs", "near", ("row",), ("logp = [1]", "mask = [1]"))
    assert shown.lines() == ["trl 1.0  x: differs near", "    row", "    logp = [1]", "    mask = [1]"]


def test_the_nearest_have_a_plain_divisor_and_the_first_two_a_batch(monkeypatch):
    monkeypatch.setattr(nearest_entries, "parts", lambda binding, reference, *more: reference.factor)
    monkeypatch.setattr(nearest_entries, "where_they_part", lambda binding, reference, t, first: first)
    fits = [Fit(Reference("ppo_clip", (), "token_sum", factor=1 / 6), 0.5, share / 10) for share in range(7)]
    found = nearest_entries._nearest(evidence(ppo), fits)
    assert [near.fit.cosine for near in found] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert {near.fit.reference for near in found} == {Reference("ppo_clip", (), "constant", 1.0)}
    assert [near.counterexample for near in found] == [1.0, 1.0, None, None, None]


def test_starts_take_the_advantages_of_the_three_best_fits(monkeypatch):
    """Objectives that read rewards alone stand once, the others with each of these advantages."""
    std = pairs(std="population", eps=1e-8)
    agree = {
        ("cispo", "group_std", std): 0.9,
        ("gspo", "group_std", std): 0.8,
        ("gspo", "group_mean", ()): 0.7,
        ("cispo", "group_median", ()): 0.6,
    }
    asked = []

    def fit(evidence, start):
        asked.append(start)
        if start.objective == "ppo_clip":
            raise ValueError("the batch lacks what it reads")
        return Fit(start, agree.get((start.objective, start.advantage, start.advantage_args), 0.5), 0.0)

    monkeypatch.setattr(nearest_entries, "best_aggregation", fit)
    found = nearest_entries.with_advantages(evidence(ppo), ["gspo", "kl_penalty", "cispo"])
    uses = {"advantage": "group_std", "advantage_args": std}, {"advantage": "group_mean"}
    rest = [Reference(name, **use) for use in uses for name in ("gspo", "cispo")]
    assert found == [Reference("kl_penalty"), *rest]
    of_std = [each for each in asked if (each.objective, each.advantage) == ("gspo", "group_std")]
    of_population = [pairs(std="population", eps=eps) for eps in (1e-4, 1e-8, 1e-6)]
    assert [each.advantage_args for each in of_std] == [(), *of_population]
    assert {"gae", "v_trace"}.isdisjoint(each.advantage for each in asked), "they need critics"
    assert {each.objective for each in asked} == {"reinforce", "ppo_clip", "gspo", "cispo"}


def test_a_search_keeps_the_best_of_what_is_told_what_is_free_and_what_was_there(monkeypatch):
    shares = {}

    def fit(evidence, reference, numbers, known):
        assert (reference, numbers) == (Reference("cispo"), [0.5])
        if known.get("cap") not in shares:
            raise ValueError("the batch lacks what it reads")
        return Fit(replace(reference, factor=2.0), shares[known.get("cap")], 0.0)

    monkeypatch.setattr(nearest_entries, "fitted", fit)
    there = Fit(Reference("cispo", pairs(cap=9.0)), 0.5, 0.0)
    for words, given, agree in (
        ({"cap": 3.0}, {3.0: 0.6, None: 0.7}, 0.7),
        ({"cap": 3.0}, {3.0: 0.8, None: 0.7}, 0.8),
        ({"cap": 3.0}, {None: 0.6}, 0.6),
        ({"cap": 3.0}, {3.0: 1.0, None: 2.0}, 1.0),
        ({}, {None: 0.6}, 0.6),
        ({"cap": 3.0}, {3.0: 0.4, None: 0.3}, 0.5),
        ({}, {}, 0.5),
    ):
        shares.clear()
        shares.update(given)
        held = SimpleNamespace(binding=SimpleNamespace(told=words))
        found = nearest_entries._searched(held, there, [0.5])
        assert found.agree == agree, (words, given)
        assert (found == there) == (agree == 0.5)


def test_equal_entries_hold_on_every_further_batch_in_one_reading_of_their_divisor(monkeypatch):
    names = ["reinforce", "ppo_clip", "cispo", "gspo", "tis"]
    parted = {("ppo_clip", 0.0, "b"), ("gspo", 0.0, "a"), ("gspo", 7.0, "b")}
    monkeypatch.setattr(nearest_entries, "_effort", lambda reference, held: len(reference.objective))

    def readings(fit, rows, width):
        return [replace(fit.reference, factor=rows / width, length=length) for length in (0.0, 7.0)]

    def differs(reference, logp, name, tolerance):
        assert (logp, tolerance) == (0, 1e-9)
        return (reference.objective, reference.length, name) in parted

    monkeypatch.setattr(nearest_entries, "lengths", readings)
    monkeypatch.setattr(nearest_entries, "unlike", differs)
    held = SimpleNamespace(logp=torch.zeros(3, 6, 2), further=[(0, "a"), (0, "b")], tolerance=1e-9)
    fits = [Fit(Reference(name), 1.0 if name != "reinforce" else 0.99, 0.0) for name in names]
    assert nearest_entries._equals(held, fits) == (
        Reference("tis", factor=3.0),
        Reference("cispo", factor=3.0),
        Reference("ppo_clip", factor=3.0, length=7.0),
    )
    monkeypatch.setattr(nearest_entries, "MOST", 1)
    assert nearest_entries._equals(held, fits) == (Reference("tis", factor=3.0),)


def test_a_search_takes_the_nearest_entries_until_one_fits_and_variants_of_that(monkeypatch):
    starts = [Reference(name) for name in ("reinforce", "ppo_clip", "cispo", "gspo", "cispo@verl", "tis")]
    fits, asked = [Fit(replace(each, factor=2.0), 0.0, 0.0) for each in starts], []

    def put(**values):
        for name, value in values.items():
            monkeypatch.setattr(nearest_entries, name, value)

    def searched(held, fit, numbers):
        asked.append(fit.reference.objective)
        return replace(fit, agree=float(asked[-1] == "cispo"))

    put(_possible=lambda held, starts: starts, _scored=lambda *_: fits, widened=lambda held, _: held)
    put(bends=lambda _: [], constants=lambda _: [], _searched=searched)
    put(_equals=lambda held, fits: tuple(each.reference for each in fits if each.exact))
    put(_effort=lambda each, _: len(each.objective))
    held = SimpleNamespace(binding=SimpleNamespace(told={}, function=None))
    for most, further, more in ((4, 1, ["gspo"]), (4, 0, []), (3, 2, []), (9, 2, ["gspo"])):
        asked.clear()
        put(SEARCHED=most, FURTHER=further)
        (first, *_, last), equals = nearest_entries.ranked(held, starts)
        assert asked == ["reinforce", "ppo_clip", "cispo", *more, "cispo@verl"]
        assert (equals, last) == ((first.reference,), fits[4]), "of equal fits the simplest stands first"
    asked.clear()
    assert nearest_entries.ranked(held, starts, search=False) == (fits, ())
    put(_equals=lambda *_: (starts[5],))
    assert nearest_entries.ranked(held, starts) == (fits, (starts[5],))
    assert asked == []


def test_only_the_first_failure_is_shrunk_and_a_quick_check_ends_with_it(monkeypatch):
    seen, found = [], {"a": "holds", "b": "warning", "c": "fails", "d": "fails"}

    def outcome(judged, name, strict, quick):
        seen.append((name, strict, quick))
        return Line(name, "says", found[name])

    settle = lambda held, start, known, told: seen.append(told) or (CLIPPED, ())  # noqa: E731
    for name, value in {"BATTERY": [*found], "observed": lambda _: evidence(ppo), "settled": settle}.items():
        monkeypatch.setattr(conformance_check, name, value)
    monkeypatch.setattr(conformance_check, "tried", outcome)
    for as_, mode, quick, told_ in (("ppo_clip", "", False, False), ("grpo@trl", "", True, True)):
        seen.clear()
        made = conformance_check.conform(bind(ppo, "ppo"), as_, mode, strict=True, quick=quick)
        assert seen == [told_, *((name, True, quick or name == "d") for name in "abcd"[: 4 - quick])]
        assert (made.holds, made.first.name, len(made.lines)) == (False, "c", 4 - quick)
