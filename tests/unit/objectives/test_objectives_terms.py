"""Which gradient a sampled divergence really has: exact expectations over a softmax of five tokens."""

import pytest
import torch
from support.fixtures import Sequence, batch_of

from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import objective
from testbed.objectives.terms.kl_estimators import TOTALS, VALUES

LOGITS = torch.tensor([0.3, -0.8, 1.1, 0.0, -0.4], dtype=torch.float64)
OTHER = torch.tensor([-0.5, 0.9, 0.2, -1.0, 0.6], dtype=torch.float64)
SAMPLER = torch.tensor([0.1, 0.4, -0.7, 0.5, 0.0], dtype=torch.float64)
NOTHING = torch.zeros(5, dtype=torch.float64)


def log_softmax(logits):
    return logits.log_softmax(-1)


def one_of_each(logp_mu, logp_anchor=None):
    """Five sequences of one token each, every token of the vocabulary once."""
    five, group = torch.ones(5, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
    return Batch(
        logp_mu_BT=logp_mu[:, None], adv_BT=five[:, None], mask_BT=five[:, None].bool(), reward_B=five,
        group_B=group, logp_anchor_BT=(logp_mu if logp_anchor is None else logp_anchor)[:, None],
        logp_ref_BT=log_softmax(OTHER)[:, None],
    )  # fmt: skip


def expected(name, sampler=LOGITS, anchor=None, **hyper):
    """The exact expectation over tokens of the sampler of a term, and of its gradient in pi's logits."""
    logits = LOGITS.clone().requires_grad_()
    log_mu = log_softmax(sampler)
    batch = one_of_each(log_mu, None if anchor is None else log_softmax(anchor))
    term = objective[name].bind(**hyper)(log_softmax(logits)[:, None], batch)[:, 0]
    mean = (log_mu.exp() * term).sum()
    return mean.detach(), torch.autograd.grad(mean, logits)[0]


def gradient_of(quantity):
    logits = LOGITS.clone().requires_grad_()
    value = quantity(log_softmax(logits))
    return value.detach(), torch.autograd.grad(value, logits)[0]


def kl_reverse(logp, other=OTHER):
    return (logp.exp() * (logp - log_softmax(other))).sum()


def kl_forward(logp, other=OTHER):
    return (log_softmax(other).exp() * (log_softmax(other) - logp)).sum()


def negative_entropy(logp):
    return (logp.exp() * logp).sum()


REVERSE, FORWARD = gradient_of(kl_reverse), gradient_of(kl_forward)

# direction, estimator, gradient -> the exact expected gradient on samples of pi.
KNOWN = [
    ("reverse", "k1", "pathwise", NOTHING), ("reverse", "k2", "pathwise", REVERSE[1]),
    ("reverse", "k3", "pathwise", FORWARD[1]), ("reverse", "k1", "score", REVERSE[1]),
    ("reverse", "k3", "score", REVERSE[1] - FORWARD[1]), ("reverse", "k1", "both", REVERSE[1]),
    ("reverse", "k3", "both", REVERSE[1]), ("forward", "k1", "both", FORWARD[1]),
    ("forward", "k3", "both", FORWARD[1]),
]  # fmt: skip


def same(left, right):
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-14)


def differ(left, right):
    assert float((left - right).abs().max()) > 1e-2


@pytest.mark.parametrize(("direction", "estimator", "gradient", "gives"), KNOWN)
def test_the_expected_gradient_of_each_kl_estimator(direction, estimator, gradient, gives):
    same(expected("kl_penalty", direction=direction, estimator=estimator, gradient=gradient)[1], gives)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("gradient", ["pathwise", "score", "both"])
def test_every_other_choice_is_the_gradient_of_neither_divergence(direction, estimator, gradient):
    if (direction, estimator, gradient) in {known[:3] for known in KNOWN}:
        return
    found = expected("kl_penalty", direction=direction, estimator=estimator, gradient=gradient)[1]
    differ(found, REVERSE[1])
    differ(found, FORWARD[1])


def test_the_two_divergences_pull_in_directions_that_differ():
    # Otherwise the tests above could not tell one from the other.
    differ(REVERSE[1], FORWARD[1])


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize(("direction", "exact"), [("reverse", REVERSE), ("forward", FORWARD)])
def test_k1_and_k3_are_unbiased_in_value(direction, exact, estimator):
    same(expected("kl_penalty", direction=direction, estimator=estimator)[0], exact[0])


def test_k2_is_a_half_of_the_mean_square_and_near_the_divergence_only_where_that_is_small():
    value = expected("kl_penalty", estimator="k2")[0]
    x = log_softmax(LOGITS) - log_softmax(OTHER)
    same(value, (log_softmax(LOGITS).exp() * x**2).sum() / 2)
    differ(value, REVERSE[0])


@pytest.mark.parametrize(("direction", "estimator"), sorted(VALUES))
def test_the_total_is_the_value_plus_its_slope(direction, estimator):
    x = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64).requires_grad_()
    value = VALUES[direction, estimator](x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    same(TOTALS[direction, estimator](x).detach(), (value + slope).detach())


@pytest.mark.parametrize(("base", "other"), [("mu", SAMPLER), ("anchor", OTHER)])
def test_the_penalty_may_pull_toward_the_sampler_or_the_anchor(base, other):
    logp = log_softmax(LOGITS).requires_grad_()
    batch = one_of_each(log_softmax(SAMPLER), log_softmax(OTHER))
    loss = objective["kl_penalty"].function(logp[:, None], batch, base=base, estimator="k1")
    same(loss[:, 0].detach(), (log_softmax(LOGITS) - log_softmax(other)).detach())


def test_importance_weighted_k3_is_unbiased_off_policy_where_the_plain_one_is_not():
    value, gradient = expected("unbiased_kl", sampler=SAMPLER)
    same(value, REVERSE[0])
    same(gradient, REVERSE[1])
    for plain in ({}, {"estimator": "k1", "gradient": "score"}, {"gradient": "both"}):
        differ(expected("kl_penalty", sampler=SAMPLER, **plain)[1], REVERSE[1])


def test_trls_corrects_for_the_anchor_and_not_for_the_sampler():
    same(expected("kl_penalty@trl", sampler=SAMPLER)[1], REVERSE[1])  # the anchor is the sampler
    differ(expected("kl_penalty@trl", sampler=SAMPLER, anchor=LOGITS)[1], REVERSE[1])


def test_nemo_rls_has_the_reverse_and_verls_the_forward_gradient():
    same(expected("kl_penalty@nemo-rl")[1], REVERSE[1])
    same(expected("kl_penalty@verl")[1], FORWARD[1])


@pytest.mark.parametrize(
    ("name", "ratio", "free"),
    [("kl_penalty@verl", 1 / 13.5, True), ("kl_penalty@verl", 1 / 13.8, False),
     ("kl_penalty@verl", 59000.0, True), ("kl_penalty@verl", 61000.0, False),
     ("kl_penalty@nemo-rl", 1 / 13.5, True), ("kl_penalty@nemo-rl", 1 / 13.8, False),
     ("kl_penalty@nemo-rl", 59000.0, True), ("kl_penalty@nemo-rl", 61000.0, False)],
)  # fmt: skip
def test_clamps_stop_pulling_back_what_moved_furthest(name, ratio, free):
    logp, batch = batch_of([Sequence(1.0, (1.0,), None, (ratio,))])
    assert bool(effective_weights(name, logp, batch) != 0) == free
    assert effective_weights("kl_penalty", logp, batch) != 0


@pytest.mark.parametrize("name", ["kl_penalty@verl", "kl_penalty@nemo-rl"])
def test_the_clamp_of_the_log_ratio_binds_where_that_of_k3_is_open(name):
    logp, batch = batch_of([Sequence(1.0, (1.0,), None, (4.0,))])  # log 4 = 1.39
    wide = {"output_clamp": 1e9}
    assert effective_weights(name, logp, batch, input_clamp=1.4, **wide) != 0
    assert effective_weights(name, logp, batch, input_clamp=1.3, **wide) == 0


def test_entropy_from_samples():
    exact = gradient_of(negative_entropy)
    same(expected("entropy_bonus")[1], exact[1])
    same(expected("entropy_bonus", gradient="pathwise")[1], NOTHING)
    same(expected("entropy_bonus", gradient="pathwise")[0], exact[0])
    same(expected("entropy_bonus", gradient="importance")[1], exact[1])


def test_the_importance_weighted_entropy_has_the_slope_of_its_estimator_token_by_token():
    logp, batch = batch_of()
    estimate = effective_weights(lambda x, data: (x - data.logp_mu_BT).exp() * x, logp, batch)
    same(effective_weights("entropy_bonus", logp, batch, gradient="importance"), estimate)


def test_entropy_from_samples_of_another_policy():
    exact = gradient_of(negative_entropy)[1]
    same(expected("entropy_bonus", sampler=SAMPLER, gradient="importance")[1], exact)
    differ(expected("entropy_bonus", sampler=SAMPLER)[1], exact)
    fitting = gradient_of(lambda logp: kl_forward(logp, SAMPLER))[1]
    same(expected("entropy_bonus", sampler=SAMPLER, gradient="pathwise")[1], -fitting)


def test_distillation_on_the_students_own_tokens_is_the_reverse_divergence():
    same(expected("distillation")[1], REVERSE[1])
    same(expected("distillation", direction="forward", estimator="k1", gradient="both")[1], FORWARD[1])
    same(expected("distillation@tinker")[1], REVERSE[1])


def test_tinkers_distillation_off_policy_follows_the_samplers_reward():
    # E_mu[(pi/mu) log(mu/ref) grad log pi] = grad of sum_a pi_a log(mu_a/ref_a)
    stale = gradient_of(lambda logp: (logp.exp() * (log_softmax(SAMPLER) - log_softmax(OTHER))).sum())[1]
    same(expected("distillation@tinker", sampler=SAMPLER)[1], stale)
    differ(stale, REVERSE[1])


def test_maximum_likelihood_on_tokens_of_a_teacher_is_the_forward_divergence():
    same(expected("sft", sampler=OTHER)[1], FORWARD[1])


def test_the_capped_weight_of_k3_bounds_its_value_as_well_as_its_slope():
    logp, batch = batch_of()
    k3 = objective["kl_penalty"].function(logp, batch)
    rho = (logp - batch.logp_mu_BT).exp().clamp(max=2.0)
    capped = objective["unbiased_kl@trinity"].function(logp, batch)
    torch.testing.assert_close(capped[batch.mask_BT], (rho * k3)[batch.mask_BT], rtol=1e-12, atol=1e-14)
    assert float((objective["unbiased_kl"].function(logp, batch) - capped).abs().max()) > 0.1
