"""Engine mismatch: a cache of older weights, and linear layers that read rounded activations."""

import itertools

import numpy as np
import pytest
import torch
from references.reference_transformer import changing_laws
from support.mismatch_setting import SEEDS, TABLE, TASK, WITH_END, drawn, toy, toy_weights
from support.refusals import refuses
from torch import Tensor

from envs.catalog import token_task
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch import Draw, SamplerEngine, compose, engine
from testbed.mismatch.behavior import Behavior
from testbed.mismatch.quantized import E4M3, to_float
from testbed.policies.toy.toy_transformer import LOGP_TOLERANCE, ToyTransformer

GROUP = 4
TASKS = pytest.mark.parametrize("task", [TASK, WITH_END], ids=["fixed-length", "with-end"])
SPANS = pytest.mark.parametrize("span", ["prompt", "all"])


def exact(task=TASK) -> ToyTransformer:
    return toy(task, torch.float64)


def past_weights(policy: ToyTransformer) -> Tensor:
    """Weights unrelated to toy_weights."""
    return toy_weights(policy, (31, 32))


def sampled(policy: ToyTransformer, made: SamplerEngine, task=TASK, past: Tensor | None = None) -> Rollout:
    """A rollout of the engine."""
    prompt, uniform = drawn(policy, task, GROUP)
    draws = Behavior(policy, made, SEEDS).sample(toy_weights(policy), prompt, GROUP, uniform, 0, past)
    return Rollout(prompt, *draws, torch.zeros(draws[0].shape[:2]), GROUP)


def test_a_forward_pass_is_drawn_at_the_step_of_its_batch():
    policy, drawn_at = toy(), []

    def forward(inner: ToyTransformer, draw: Draw) -> ToyTransformer:
        drawn_at.append(draw.step)
        return inner

    noted = SamplerEngine("noted", forward=forward)
    Behavior(policy, noted, SEEDS).logp(toy_weights(policy), sampled(policy, noted), 7)
    assert drawn_at == [0, 7]


def read_by(policy: ToyTransformer, rollout: Rollout, span: str) -> Tensor:
    """Log mu [R, B, T] of a plain transformer, each of whose tokens is read by present or by past weights."""
    token, Q = rollout.token_RBT, rollout.prompt_RNQ.shape[2]
    named = [policy.shape.named(x) for x in (toy_weights(policy), past_weights(policy))]
    logp = np.zeros(token.shape)
    for r, b, t in itertools.product(*map(range, token.shape)):
        now, past = ({n: w[r].double().numpy() for n, w in weight.items()} for weight in named)
        prompt = rollout.prompt_RNQ[r, b // GROUP].tolist()
        start = next((k for k, v in enumerate(prompt) if v != policy.task.pad_token), Q)
        read = prompt[start:] + token[r, b, :t].tolist()
        old = Q - start - 1 if span == "prompt" else len(read) - 1
        readers = [past] * old + [now] * (len(read) - old)
        logp[r, b, t] = changing_laws(readers, policy.heads, start, read)[-1, token[r, b, t]]
    return torch.where(rollout.mask_RBT, torch.from_numpy(logp), 0.0)


@TASKS
@SPANS
def test_a_stale_cache_is_read_as_a_plain_transformer_would_read_it(task, span):
    policy = exact(task)
    made = engine("stale-kv", span=span)
    rollout = sampled(policy, made, task, past_weights(policy))
    expected = read_by(policy, rollout, span)
    torch.testing.assert_close(rollout.logp_mu_RBT, expected, atol=1e-12, rtol=0)
    again = Behavior(policy, made, SEEDS).logp(toy_weights(policy), rollout, 0, past_weights(policy))
    assert torch.equal(again, rollout.logp_mu_RBT)


@SPANS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cache_of_the_present_weights_is_not_stale(span, dtype):
    policy = toy(WITH_END, dtype)
    rollout = sampled(policy, engine("stale-kv", span=span), WITH_END, toy_weights(policy))
    own = policy.logp(toy_weights(policy), rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)
    tolerance = 10 * LOGP_TOLERANCE if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(rollout.logp_mu_RBT, own, atol=tolerance, rtol=0)


@SPANS
def test_a_stale_cache_is_a_law_over_responses_with_full_support(span):
    policy = exact(WITH_END)
    behavior = Behavior(policy, engine("stale-kv", span=span), SEEDS)
    token_LT, mask_LT = map(torch.from_numpy, WITH_END.enumerate())
    prompts = torch.from_numpy(WITH_END.prompts(np.random.default_rng(1), 1)).expand(2, 1, -1)
    token, mask = token_LT.expand(2, -1, -1), mask_LT.expand(2, -1, -1)
    rollout = Rollout(prompts, token, mask, torch.zeros(1), torch.zeros(token.shape[:2]), len(token_LT))
    theta = toy_weights(policy)
    log_mu = behavior.logp(theta, rollout, 0, past_weights(policy)).sum(-1)
    log_pi = policy.logp(theta, prompts, token, mask).sum(-1)
    torch.testing.assert_close(log_mu.exp().sum(-1), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-12)
    assert ((log_mu.exp() * (log_mu - log_pi)).sum(-1) > 1e-4).all()


def test_other_engines_change_the_past_too():
    policy, past = exact(), past_weights(exact())
    rounded = Behavior(policy, engine("fp8-block"), SEEDS)
    both = sampled(policy, compose(engine("fp8-block"), engine("stale-kv")), TASK, past)
    stale = Behavior(policy, engine("stale-kv"), SEEDS)
    theta = rounded.weights(toy_weights(policy), 0)
    expected = stale.logp(theta, both, 0, rounded.weights(past, 0))
    assert torch.equal(expected, both.logp_mu_RBT)


@pytest.mark.parametrize("order", [1, -1])
def test_a_stale_cache_goes_with_rounded_activations_and_with_a_law(order):
    policy, past = exact(), past_weights(exact())
    made = compose(*[engine("stale-kv"), engine("fp8-activations")][::order], engine("top-k", k=2))
    rollout = sampled(policy, made, TASK, past)
    again = Behavior(policy, made, SEEDS).logp(toy_weights(policy), rollout, 0, past)
    assert torch.equal(again, rollout.logp_mu_RBT)
    for left_out in (("stale-kv",), ("fp8-activations",), ("stale-kv", "fp8-activations")):
        rest = [engine(name) for name in ("stale-kv", "fp8-activations") if name not in left_out]
        other = Behavior(policy, compose(*rest, engine("top-k", k=2)), SEEDS)
        gap = (other.logp(toy_weights(policy), rollout, 0, past) - rollout.logp_mu_RBT).abs().max()
        assert gap > 1e-3


def test_activations_are_rounded_with_a_scale_per_token():
    seen: list[Tensor] = []
    rounding = engine("fp8-activations").forward(Spy(seen), Draw(SEEDS))
    assert rounding is seen
    x = torch.tensor([[[448.0, 1.0], [449.0 / 2, 0.3], [0.0, -0.01], [1.1, 0.0]]], dtype=torch.float64)
    first, second = x[0].T
    expected = torch.stack([to_float(first, E4M3), to_float(second * 448, E4M3) / 448], 1)
    torch.testing.assert_close(seen[0](x)[0], expected, atol=1e-15, rtol=0)
    assert seen[0](torch.zeros(1, 3, 2)).eq(0).all()
    error = (seen[0](x) - x).abs()
    assert (error <= x.abs().amax(1, keepdim=True) / 28).all()
    assert error.max() > 0
    power = seen[1:]
    engine("fp8-activations", power_of_two=True).forward(Spy(power), Draw(SEEDS))
    torch.testing.assert_close(power[0](x)[0, :, 1], to_float(second * 256, E4M3) / 256, atol=0, rtol=0)


class Spy:
    """A policy that notes what its layers' inputs are to become."""

    def __init__(self, seen: list) -> None:
        self.seen = seen

    def with_rounding(self, rounding) -> list:
        self.seen.append(rounding)
        return self.seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_linear_layer_of_a_block_reads_rounded_inputs_and_nothing_else_does(dtype):
    policy = toy(TASK, dtype)
    theta, (prompt, uniform) = toy_weights(policy), drawn(policy, TASK, GROUP)
    shapes: list[int] = []

    def note(x_RDM: Tensor) -> Tensor:
        shapes.append(x_RDM.shape[1])
        return x_RDM

    watched = policy.with_rounding(note)
    own = policy.sample(theta, prompt, GROUP, uniform)
    tolerance = LOGP_TOLERANCE if dtype == torch.float32 else 0
    for found, expected in zip(watched.sample(theta, prompt, GROUP, uniform), own, strict=True):
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)
    block = [8, 8, 8, 32]  # to queries, keys and values; out; up; down
    assert shapes == block * policy.shape.layers * TASK.response_length
    shapes.clear()
    watched.logp(theta, prompt, *own[:2])
    assert shapes == block * policy.shape.layers


def test_rounded_activations_leave_the_policy_itself_alone():
    policy = exact()
    prompt, uniform = drawn(policy, TASK, GROUP)
    before = policy.sample(toy_weights(policy), prompt, GROUP, uniform)
    rollout = sampled(policy, engine("fp8-activations"))
    assert all(map(torch.equal, policy.sample(toy_weights(policy), prompt, GROUP, uniform), before))
    own = policy.logp(toy_weights(policy), rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)
    assert (own - rollout.logp_mu_RBT).abs().max() > 1e-3


@TASKS
def test_recorded_log_mu_of_rounded_activations_is_reproduced_but_for_ties(task):
    # Sampler and trainer add in another order; an input next to a tie may round the other way.
    policy, made = exact(task), engine("fp8-activations")
    rollout = sampled(policy, made, task)
    again = Behavior(policy, made, SEEDS).logp(toy_weights(policy), rollout, 0)
    torch.testing.assert_close(again, rollout.logp_mu_RBT, atol=1e-13, rtol=0)


def test_training_through_rounded_activations_is_straight_through():
    policy = exact()
    behavior = Behavior(policy, engine("fp8-activations"), SEEDS)
    rollout = sampled(policy, engine("fp8-activations"))
    theta = toy_weights(policy).requires_grad_()
    (gradient,) = torch.autograd.grad(behavior.logp(theta, rollout, 0).sum(), theta)
    plain = policy.logp(theta, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT).sum()
    (unrounded,) = torch.autograd.grad(plain, theta)
    cosine = torch.nn.functional.cosine_similarity(gradient, unrounded)
    assert (cosine > 0.9).all()
    assert (cosine < 1 - 1e-6).all()


def test_what_no_forward_pass_can_do_is_said():
    policy = exact()
    theta, (prompt, uniform) = toy_weights(policy), drawn(policy, TASK, GROUP)
    stale = Behavior(policy, engine("stale-kv"), SEEDS)
    refuses("expected prompt or all", engine, "stale-kv", span="some")
    refuses("which is None", stale.sample, theta, prompt, GROUP, uniform, 0)
    with pytest.raises(UserError, match=r"past_RP has shape \(1, "):
        engine("stale-kv").forward(policy, Draw(SEEDS, past_RP=theta[:1])).sample(
            theta, prompt, GROUP, uniform
        )
    for name in ("stale-kv", "fp8-activations"):
        with pytest.raises(UserError, match="needs a transformer, policy 'toy'; this one is TabularPolicy"):
            Behavior(TABLE, engine(name), SEEDS)


def test_what_a_stale_cache_cannot_do_is_said():
    policy = exact()
    theta, (prompt, _) = toy_weights(policy), drawn(policy, TASK, GROUP)
    kept = engine("stale-kv").forward(policy, Draw(SEEDS, past_RP=theta))
    for name in ("entropy", "score_norm", "log_distribution"):
        refuses("that of every token over its cache", getattr(kept, name), theta, prompt)
    for name in ("sample_in_flight", "logp_in_flight"):
        refuses("a cache that can change twice", getattr(kept, name), theta, prompt)
    short = exact(token_task("length", {"digits": 1, "modulus": 3, "limit": 3}))
    stale = (short, engine("stale-kv"), short.task, toy_weights(short))
    refuses("needs prompts of two tokens or more", sampled, *stale)
    refuses("age is 0", engine, "stale-kv", age=0)
    refuses("this one is TabularPolicy", engine("stale-kv").forward, TABLE, Draw(SEEDS))
