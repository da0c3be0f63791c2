"""What the toy LLM writes where a tool answers, and where two roles have weights of their own."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.worlds.build_world import build_world
from testbed.worlds.task_registry import token_task

SMALL = (("heads", 2), ("layers", 1), ("width", 8))
GAME = Run(
    task="guess", task_args=(("base", 2), ("digits", 2), ("turns", 3)), policy="toy", policy_args=SMALL,
    prompts=6, group=4,
)  # fmt: skip
WORK = replace(
    GAME, task="solver-checker", task_args=(("digits", 3), ("modulus", 3)),
    policy_args=(*SMALL, ("roles", "separate")),
)  # fmt: skip


def drawn(run: Run, cache: str = ""):
    """A rollout, its world and its weights; under changing weights where a cache is named."""
    world = build_world((run,))
    theta_RP = world.initial()
    if not cache:
        return world.generate(theta_RP, 0), world, theta_RP
    version_RBT = (torch.arange(world.length) // 3)[None, None]
    theta_RWP = torch.stack([theta_RP * (1 + 0.2 * w) for w in range(int(version_RBT.max()) + 1)], 1)
    return world.generate_in_flight(theta_RWP, version_RBT, 0, cache), world, theta_RP


@pytest.mark.parametrize("cache", ["", "kept", "recomputed"])
def test_a_tool_answers_what_the_policy_has_written_however_it_is_sampled(cache):
    rollout, *_ = drawn(GAME, cache)
    task, tool_T = token_task(GAME), torch.tensor(token_task(GAME).tool_T)
    prompt_NQ = rollout.prompt_RNQ[0].repeat_interleave(rollout.group, 0).numpy()
    token_NT, mask_NT = rollout.token_RBT[0].numpy(), rollout.mask_RBT[0].numpy()
    assert not rollout.mask_RBT[..., tool_T].any()
    assert not rollout.logp_mu_RBT[..., tool_T].any()
    for t in torch.nonzero(tool_T)[:, 0].tolist():
        alive_N = mask_NT[:, t - 1] & (token_NT[:, t - 1] != task.end_token)
        assert alive_N.any()
        assert (token_NT[alive_N, t] == task.tool(prompt_NQ, token_NT[:, :t])[alive_N]).all()


def test_the_log_probabilities_of_a_game_are_found_again():
    rollout, world, theta_RP = drawn(GAME)
    assert_close(world.logp(theta_RP, rollout), rollout.logp_mu_RBT, rtol=0, atol=1e-5)


def test_each_role_reads_its_own_weights_alone():
    rollout, world, theta_RP = drawn(WORK)
    assert_close(world.logp(theta_RP, rollout), rollout.logp_mu_RBT, rtol=0, atol=1e-5)
    half = theta_RP.shape[-1] // 2
    other_RP = torch.cat([theta_RP[:, :half], 1.3 * theta_RP[:, half:]], -1)
    moved_RBT = world.logp(other_RP, rollout) != rollout.logp_mu_RBT
    before_RBT = world.logp(theta_RP, rollout)
    assert torch.equal(world.logp(other_RP, rollout)[..., :3], before_RBT[..., :3])
    assert moved_RBT[..., 3].all()


def test_a_role_reads_with_its_own_weights_what_the_other_wrote():
    _, world, theta_RP = drawn(WORK)
    half = theta_RP.shape[-1] // 2
    other_RP = torch.cat([theta_RP[:, :half], 1.3 * theta_RP[:, half:]], -1)
    rollout = world.generate(other_RP, 0)
    assert_close(world.logp(other_RP, rollout), rollout.logp_mu_RBT, rtol=0, atol=1e-5)


def test_two_roles_start_warm():
    warm_RP = build_world((replace(WORK, warm_start_steps=2),)).initial()
    for warm, cold in zip(warm_RP.chunk(2, -1), build_world((WORK,)).initial().chunk(2, -1), strict=True):
        assert not torch.equal(warm, cold)


def test_features_give_the_policy_s_own_law():
    rollout, world, theta_RP = drawn(GAME)
    x_RBTM = world.features(theta_RP, rollout)
    assert x_RBTM.shape == (*rollout.token_RBT.shape, world.width)
    assert_close(x_RBTM.square().mean(-1), torch.ones(rollout.token_RBT.shape), rtol=0, atol=1e-3)
    later = replace(rollout, token_RBT=rollout.token_RBT.clone())
    later.token_RBT[..., 3:] = 0
    assert_close(world.features(theta_RP, later)[..., :4, :], x_RBTM[..., :4, :])


def test_two_roles_have_no_greedy_sampler_and_no_features():
    rollout, world, theta_RP = drawn(WORK)
    for ask in (world.greedy_reward, world.features):
        with pytest.raises(UserError, match="take a policy that has"):
            ask(theta_RP, rollout)
