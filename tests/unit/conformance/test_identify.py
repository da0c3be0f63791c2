"""Public losses under names that say nothing are recognized; inventions are told apart."""

import inspect

import pytest
import torch
from support import scrambled_losses
from support.scrambled_losses import EXPECTED

from testbed.conformance.nearest_entries import identify
from testbed.conformance.signature import bind
from testbed.objectives import objective

pytestmark = pytest.mark.slow


def named(name: str):
    return bind(getattr(scrambled_losses, name), name)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_public_loss_is_recognized(name):
    entry, hyper, aggregation = EXPECTED[name]
    found = identify(named(name))
    same = [each for each in found.equals if each.objective == entry]
    assert same, [x.words() for x in found.equals] or [x.fit.reference.words() for x in found.nearest]
    got = dict(objective[entry].defaults) | dict(same[0].hyper)
    assert {key: got[key] for key in hyper} == pytest.approx(hyper) if hyper else True
    assert same[0].aggregation == aggregation
    assert same[0].factor == pytest.approx(1.0)
    assert [term.objective for term in same[0].terms] == (["kl_penalty"] if name == "f10" else [])
    if name == "f10":
        assert same[0].terms[0].coefficient == pytest.approx(0.04)
    assert found.seconds < 60


@pytest.mark.parametrize(
    ("value", "estimator", "said"),
    [(lambda logp, ref: logp - ref, "k1", "are those of"),
     (lambda logp, ref: logp + 0 * ref, "k1", "are not: "),
     (lambda logp, ref: (logp - ref).square() / 2, "k2", "are not: ")],
)  # fmt: skip
def test_a_penalty_alone_is_one_at_factor_1_and_its_values_are_compared(value, estimator, said):
    found = identify(bind(lambda logp, ref, mask: (value(logp, ref) * mask).sum(), "mine"))
    assert found.equals[0].factor == 1.0
    same = [each for each in found.equals if each.objective == "kl_penalty"]
    assert same[0].hyper == (("estimator", estimator),)
    assert said in found.notes[-1]


def test_a_loss_that_treats_negative_rewards_apart_is_no_plain_reinforce():
    """TOPR of raw rewards: with rewards of one sign alone it would equal REINFORCE."""

    def mine(logp, old_logp, rewards, mask):
        weight = torch.where(rewards > 0, 1.0, ((logp - old_logp) * mask).sum(-1).clamp(max=0).exp())
        return -((weight.detach() * rewards)[:, None] * logp * mask).sum()

    found = identify(bind(mine, "mine"), among=["reinforce", "topr", "importance_reinforce", "min_opmd"])
    assert [(each.objective, each.hyper, each.advantage) for each in found.equals] == [("topr", (), "raw")]


def test_at_least_twenty_are_tried_and_none_says_its_name():
    assert len(EXPECTED) >= 20
    for name in EXPECTED:
        assert "eps" not in str(inspect.signature(getattr(scrambled_losses, name)))


@pytest.mark.parametrize(("name", "near"), [("new1", None), ("new2", "ppo_clip"), ("new3", None)])
def test_an_invention_is_told_new_with_what_is_nearest(name, near):
    found = identify(named(name))
    assert found.equals == ()
    ranks = [each.fit.rank for each in found.nearest]
    assert ranks == sorted(ranks, reverse=True)
    example = found.nearest[0].counterexample
    assert example is not None
    assert example.mine != example.theirs
    assert len(example.rows) <= 2
    if near:
        assert near in {objective[each.fit.reference.objective].base for each in found.nearest}
