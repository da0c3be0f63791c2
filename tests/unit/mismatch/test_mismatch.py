"""Engine mismatch: engines keep their promises, and numbers that they draw depend on what they should."""

import math

import numpy as np
import pytest
import torch
from support.mismatch_setting import (
    SEEDS,
    TABLE,
    TASK,
    WORLD,
    drawn,
    table_behavior,
    table_pair,
    table_weights,
    toy,
    toy_weights,
)
from support.refusals import refuses

from testbed.mismatch import Draw, compose, engine, mismatch
from testbed.mismatch.behavior import Behavior

# Engines keep their promises


def test_every_engine_says_what_it_is():
    for name, entry in mismatch.items():
        assert entry.promises["level"] in ("none", "weights", "forward", "distribution"), name
        assert entry.promises["support"] in ("full", "partial"), name
        made = engine(name)
        assert made.name == name
        for level in ("weights", "forward", "distribution"):
            assert (getattr(made, level) is not None) == (entry.promises["level"] == level)
        assert entry.formula.endswith((".", ".\n"))
        assert entry.source


def test_weights_have_a_row_per_seed_and_slice():
    behavior = Behavior(TABLE, engine("logit-noise"), SEEDS, slices=2)
    whole = table_weights().repeat_interleave(2, 0)
    assert behavior.weights(whole, 0).shape == whole.shape
    for rows in (len(SEEDS), 3 * len(SEEDS), 2 * len(SEEDS) + 1):
        told = f"theta has {rows} rows for {len(SEEDS)} seeds and 2 slices"
        refuses(told, behavior.weights, whole[:1].expand(rows, *whole.shape[1:]), 0)


@pytest.mark.parametrize("name", [n for n in mismatch if mismatch[n].promises["identity"] is not None])
def test_switched_off_an_engine_returns_bit_for_bit_what_it_got(name):
    made = engine(name, **mismatch[name].promises["identity"])
    policy = toy()
    theta = toy_weights(policy)
    behavior = Behavior(policy, made, SEEDS)
    assert torch.equal(behavior.weights(theta, 2), theta)
    prompt, uniform = drawn(policy, TASK)
    own = policy.sample(theta, prompt, 16, uniform)
    assert all(map(torch.equal, behavior.sample(theta, prompt, 16, uniform, 2), own))
    if "layers" in mismatch[name].promises.get("needs", ()):
        return
    in_table, logits = Behavior(TABLE, made, SEEDS), table_weights()
    assert torch.equal(in_table.weights(logits, 2), logits)
    log_pi = TABLE.logits(logits).log_softmax(-1)
    assert torch.equal(in_table.log_table(logits, 2), log_pi)
    if made.distribution is None:
        assert np.array_equal(in_table.probabilities(logits, 2), TABLE.probabilities(logits))


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in mismatch
        if mismatch[n].promises["level"] != "none" and not mismatch[n].promises.get("needs")
    ],
)
def test_support_is_what_is_promised(name):
    log_pi, log_mu = table_pair(name)
    full = mismatch[name].promises["support"] == "full"
    found = WORLD.divergence(np.exp(log_pi), np.exp(log_mu), unsupported="infinite")
    np.testing.assert_allclose(np.exp(log_mu).sum(-1), 1.0, atol=1e-12)
    assert (found.kl_mu_pi > 1e-9).all()
    assert (np.isfinite(found.kl_pi_mu) == full).all()
    assert ((found.mean_rho_token > 0.9999) == full).all()
    assert np.isfinite(log_mu).all() == full


@pytest.mark.parametrize("name", ["bf16", "fp8-tensor", "fp8-block", "int8"])
def test_rounding_twice_is_rounding_once(name):
    policy = toy(dtype=torch.float64)
    behavior = Behavior(policy, engine(name), SEEDS)
    once = behavior.weights(toy_weights(policy), 0)
    assert not torch.equal(once, toy_weights(policy))
    assert torch.allclose(behavior.weights(once, 0), once, rtol=1e-14)


@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-block", "int8", "layer-noise"])
def test_embeddings_and_head_keep_their_precision_unless_all_is_asked_for(name):
    policy = toy()
    theta = toy_weights(policy)
    before = policy.shape.named(theta)
    for matrices in ("linear", "all"):
        after = policy.shape.named(Behavior(policy, engine(name, matrices=matrices), SEEDS).weights(theta, 0))
        same = {key for key in before if torch.equal(before[key], after[key])}
        assert same == ({"embedding", "head"} if matrices == "linear" else set())


@pytest.mark.parametrize("name", ["bf16", "fp8-tensor", "fp8-block", "int8"])
def test_training_through_rounded_weights_is_straight_through(name):
    theta = table_weights().requires_grad_()
    rounded = table_behavior(name).weights(theta, 0)
    weight = torch.randn(theta.shape, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weight * rounded).sum(), theta)
    assert torch.equal(gradient, weight)


def test_noise_depends_on_seed_step_and_place_alone():
    policy, name = TABLE, engine("logit-noise", sigma=1.0)
    theta = table_weights()
    both = Behavior(policy, name, SEEDS).log_table(theta, 4)
    alone = Behavior(policy, name, SEEDS[1:]).log_table(theta[1:], 4)
    assert torch.equal(both[1:], alone)
    assert torch.equal(both, Behavior(policy, name, SEEDS).log_table(theta, 4))
    assert not torch.equal(both, Behavior(policy, name, SEEDS).log_table(theta, 5))


def test_two_equal_engines_in_a_row_draw_two_noises():
    twice = Behavior(TABLE, compose(*[engine("logit-noise", sigma=1.0)] * 2), SEEDS)
    once = Behavior(TABLE, engine("logit-noise", sigma=1.0), SEEDS)
    double = Behavior(TABLE, engine("logit-noise", sigma=2.0), SEEDS)
    theta = table_weights(0.0)
    first, sum_, same = (b.log_table(theta, 0) for b in (once, twice, double))
    second = sum_ - first
    centered = [x - x.mean(-1, keepdim=True) for x in (first, second)]
    assert not torch.allclose(sum_, same, atol=1e-3)
    correlation = torch.corrcoef(torch.stack([c.flatten() for c in centered]))[0, 1]
    assert abs(correlation) < 0.3  # 5 standard errors of 240 independent pairs


def test_a_composition_changes_weights_first_and_then_the_law():
    both = compose(engine("fp8-tensor"), engine("temperature", temperature=2.0))
    theta = table_weights()
    rounded = table_behavior("fp8-tensor").weights(theta, 0)
    expected = (TABLE.logits(rounded) / 2).log_softmax(-1)
    torch.testing.assert_close(Behavior(TABLE, both, SEEDS).log_table(theta, 0), expected, rtol=0, atol=1e-14)
    assert compose().name == "off"
    assert compose().weights is None
    assert compose().distribution is None


@pytest.mark.parametrize(
    ("name", "hyper"),
    [("fp9", {}), ("fp8-block", {"blok": 4}), ("fp8-block", {"block": 0}),
     ("temperature", {"temperature": 0.0}), ("logit-noise", {"sigma": -1.0}),
     ("layer-noise", {"sigma": math.nan}), ("top-p", {"p": 0.0}), ("top-p", {"p": 1.5}),
     ("top-k", {"k": -1}), ("skip-layers", {"ratio": 1.5}), ("int8+top-p", {"sigma": 0.1})],
)  # fmt: skip
def test_bad_hyperparameters_are_refused_in_one_sentence(name, hyper):
    refuses(".", engine, name, **hyper)


def test_what_cannot_be_done_is_said():
    theta = table_weights()
    refuses("needs a transformer", table_behavior("skip-layers").weights, theta, 0)
    refuses("reads past_RP", table_behavior("stale-copy").weights, theta, 0)
    refuses("expected linear or all", table_behavior("int8", matrices="some").weights, theta, 0)
    refuses("rows for 2 seeds", table_behavior("bf16").weights, theta[:1], 0)
    refuses("layout describes", engine("int8").weights, theta, {"w": (2, 2)}, Draw(SEEDS))
