"""Base models: what the noisy teacher leaves for RL to do, and on what it depends."""

import numpy as np
import pytest
import torch
from support.refusals import refuses

from envs.streams import uniforms
from envs.tokens.length import Length
from envs.tokens.running_sum import RunningSum
from testbed import rng
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.policies.warm_start import warm_start

SMALL = RunningSum(digits=2, modulus=3)


def small_policy(task=SMALL):
    return ToyTransformer(task, width=16, layers=2, heads=2)


def success(policy, task, theta_RP, prompts=256, group=4):
    """Return the share of right answers at temperature 1, [R], and the mean entropy of the sampled tokens."""
    replicas = len(theta_RP)
    prompt_NQ = task.prompts(rng.generator(0, "test/prompts"), prompts)
    prompt_RNQ = torch.from_numpy(prompt_NQ).expand(replicas, -1, -1)
    keys = rng.keys(tuple(range(replicas)), "test/uniforms")
    uniform = torch.from_numpy(uniforms(keys, 0, prompts * group, task.response_length))
    token, mask, _ = policy.sample(theta_RP, prompt_RNQ, group, uniform)
    repeated = prompt_NQ.repeat(group, 0)
    scores = [task.score(repeated, t.numpy(), m.numpy()).mean() for t, m in zip(token, mask, strict=True)]
    return np.array(scores), policy.entropy(theta_RP, prompt_RNQ, token, mask)[mask].mean().item()


def test_a_student_of_a_perfect_teacher_is_nearly_perfect():
    policy = small_policy()
    theta = warm_start(policy, SMALL, [0, 1], steps=150, noise=0.0)
    assert success(policy, SMALL, theta)[0].min() > 0.97


@pytest.mark.slow
def test_a_student_of_a_noisy_teacher_succeeds_as_often_as_its_teacher():
    policy = small_policy()
    theta = warm_start(policy, SMALL, [0, 1, 2], steps=400, noise=0.3)
    share, entropy = success(policy, SMALL, theta)
    # The teacher is right in both steps with chance 0.49; 1024 samples have a standard error of 0.016.
    assert np.abs(share - 0.49).max() < 0.07
    per_step = -0.7 * np.log(0.7) - 0.3 * np.log(0.15)
    assert entropy == pytest.approx(per_step, abs=0.05)


def test_above_width_32_a_base_model_learns_at_a_rate_that_falls_with_the_width():
    """Adam's first step moves every weight that has a gradient by the rate: of one step, all of it."""
    moved = []
    for width in (16, 32, 64):
        policy = ToyTransformer(SMALL, width=width, layers=1, heads=2)
        theta_RP = policy.initial([0])
        moved.append((warm_start(policy, SMALL, [0], steps=1) - theta_RP).abs().max().item())
    assert moved == pytest.approx([1e-2, 1e-2, 5e-3], rel=1e-3)


def test_a_base_model_depends_on_its_seed_and_not_on_the_stack():
    policy = small_policy()
    stack = warm_start(policy, SMALL, [4, 5, 4], steps=15)
    torch.testing.assert_close(stack[0], stack[2], atol=1e-5, rtol=0)
    torch.testing.assert_close(stack[1:2], warm_start(policy, SMALL, [5], steps=15), atol=1e-5, rtol=0)
    assert (stack[0] - stack[1]).abs().max() > 0.1


def test_the_same_call_gives_the_same_bits():
    policy = small_policy()
    first, second = (warm_start(policy, SMALL, [1, 2], steps=10) for _ in range(2))
    assert torch.equal(first, second)


def test_training_carries_no_gradient_out():
    theta = warm_start(small_policy(), SMALL, [0], steps=1)
    assert not theta.requires_grad
    assert theta.grad_fn is None


def test_a_task_with_an_end_token_is_learned_up_to_it():
    task = Length(digits=1, modulus=4, limit=6)
    policy = small_policy(task)
    before = success(policy, task, policy.initial([0]))[0]
    after = success(policy, task, warm_start(policy, task, [0], steps=150, noise=0.05))[0]
    assert after > before + 0.2


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"group": 0}, {"noise": 1.5}])
def test_bad_arguments_are_named(arguments):
    refuses(".", warm_start, small_policy(), SMALL, [0], **arguments)


@pytest.mark.slow
def test_the_default_base_model_of_the_running_sum_succeeds_sometimes():
    task = RunningSum()
    policy = ToyTransformer(task)
    share, entropy = success(policy, task, warm_start(policy, task, [0]), prompts=512)
    # The teacher's chance is 0.8^12 = 0.069; 2048 samples have a standard error of 0.006.
    assert 0.05 < share.item() < 0.30
    assert entropy > 0.7
