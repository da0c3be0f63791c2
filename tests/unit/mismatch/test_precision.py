"""One precision on both sides: a policy that learns with the roundings that it generates with."""

import dataclasses

import numpy as np
import pytest
import torch
from test_mismatch_training import TOY, TREE, uneven, uneven_start, with_engine

from testbed.errors import UserError
from testbed.mismatch import engine
from testbed.training.loop import train
from testbed.worlds.build import build_world
from testbed.worlds.rounded import Rounded

__all__ = ["uneven_start"]

FP8 = "fp8-tensor+fp8-activations matrices=all"


def unified(run, precision):
    return dataclasses.replace(run, policy_args=(*run.policy_args, ("precision", precision)))


@pytest.mark.parametrize(("run", "precision"), [(TREE, "int8 matrices=all"), (TOY, FP8)], ids=["tree", "toy"])
def test_one_precision_on_both_sides_has_ratio_one_and_learns_the_full_weights(run, precision, uneven_start):
    both = unified(run, precision)
    table = train(both)
    assert np.abs(table["rollout_corr/log_rho_token_p999"]).max() < 5e-6
    world, plain = build_world((both,)), build_world((run,))
    assert torch.equal(world.initial(), plain.initial())
    theta = uneven(plain)
    assert not torch.equal(
        world.logp(theta, plain.generate(theta, 0)), plain.logp(theta, plain.generate(theta, 0))
    )


def test_the_gradient_of_a_rounded_policy_is_taken_at_the_rounded_weights(uneven_start):
    world = build_world((unified(TREE, "int8 matrices=all"),))
    theta = uneven(world)
    rollout = world.generate(theta, 0)
    rounded = world.policy.weights(theta)
    gradients = []
    for start, logp in ((theta, world.logp), (rounded, build_world((TREE,)).logp)):
        leaf = start.detach().requires_grad_()
        gradients.append(torch.autograd.grad(logp(leaf, rollout).sum(), leaf)[0])
    assert not torch.equal(theta, rounded)
    assert torch.equal(*gradients)


def test_a_base_model_is_the_same_at_every_precision():
    warm = dataclasses.replace(TOY, warm_start_steps=3)
    assert torch.equal(build_world((warm,)).initial(), build_world((unified(warm, FP8),)).initial())


def test_every_method_of_a_rounded_policy_reads_rounded_weights():
    world = build_world((unified(TOY, "bf16"),))
    plain = build_world((TOY,))
    theta = uneven(plain)
    rounded = engine("bf16").weights(theta, world.policy.layout, None)
    rollout = plain.generate(theta, 0)
    for name in ("logp", "entropy", "score_norm"):
        assert torch.equal(getattr(world, name)(theta, rollout), getattr(plain, name)(rounded, rollout)), name
    assert np.array_equal(world.accuracy(theta), plain.accuracy(rounded))
    assert torch.equal(world.generate(theta, 1).logp_mu_RBT, plain.generate(rounded, 1).logp_mu_RBT)
    assert torch.equal(world.greedy_reward(theta, rollout), plain.greedy_reward(rounded, rollout))


def test_a_precision_reaches_what_linear_layers_read():
    world, plain = build_world((unified(TOY, "fp8-activations"),)), build_world((TOY,))
    theta = uneven(plain)
    rollout = plain.generate(theta, 0)
    assert (world.logp(theta, rollout) - plain.logp(theta, rollout)).abs().max() > 1e-4
    assert torch.equal(world.policy.weights(theta), theta)


@pytest.mark.parametrize("precision", ["layer-noise", "temperature", "stale-copy", "skip-layers"])
def test_a_precision_that_two_sides_cannot_share_is_refused(precision):
    with pytest.raises(UserError, match=f"precision is '{precision}', which changes more than rounding"):
        build_world((unified(TOY, precision),))


def test_a_mismatch_can_lie_on_top_of_a_precision():
    run = with_engine(unified(TREE, "int8 matrices=all"), "logit-noise")
    world = build_world((run,))
    assert isinstance(world.policy, Rounded)
    assert train(run)["rollout_corr/kl_mu_pi_k2"][0] > 1e-4
