"""Where responses begin: what is given, what leaves the mask, who continues whom, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.config.run import Run
from testbed.execution.preflight import check_arguments
from testbed.prefixes import prefix
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

TREE = Run(task="tree", prompts=4, group=4, steps=6, seed=3, log_every=5)
TOY = Run(
    task="running-sum", task_args=(("digits", 4), ("modulus", 3)), policy="toy", prompts=4, group=4, steps=2
)
WORLDS = {"tree": TREE, "toy": TOY}


def rollout(run, step=0):
    """The step's responses at the weights at the start."""
    check_arguments([run])
    world = build_world((run,))
    return world, world.generate(world.initial(), step)


def guided(run, **given):
    """The run with prefixes of solutions."""
    return replace(run, prefix="teacher", prefix_args=tuple({"tokens": 2, **given}.items()))


def solutions(world, found):
    """The task's own solution of every sequence's prompt, [B, T]."""
    if found.state_RBT is None:
        prompt_NQ, task = found.prompt_RNQ[0].numpy(), world.task
    else:
        prompt_NQ, task = (
            world.task.prompt_NQ[found.prompt_RNQ[0, :, 0].numpy() // world.task.nodes],
            world.task.task,
        )
    return np.repeat(task.answer(prompt_NQ[:, :-1]), found.group, axis=0)


@pytest.mark.parametrize("name", WORLDS)
def test_given_tokens_are_the_solution_s_and_leave_the_mask(name):
    world, found = rollout(guided(WORLDS[name], distribution="fixed", share=0.5))
    assert found.mask_RBT[0, :8].all()
    assert not found.mask_RBT[0, 8:, :2].any()
    assert found.mask_RBT[0, 8:, 2:].all()
    assert (found.logp_mu_RBT[~found.mask_RBT] == 0).all()
    assert (found.token_RBT[0, 8:, :2].numpy() == solutions(world, found)[8:, :2]).all()


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_written_behind_a_prefix_has_the_policy_s_own_probability(name):
    run = guided(WORLDS[name], distribution="uniform")
    world, found = rollout(run)
    assert torch.allclose(world.logp(world.initial(), found), found.logp_mu_RBT, atol=1e-5)


def test_the_reward_is_that_of_the_whole_response():
    world, found = rollout(guided(TOY, distribution="fixed", tokens=3))
    right = found.token_RBT[0].numpy() == solutions(world, found)
    assert (found.reward_RB[0].numpy() == right.all(-1)).all()
    assert right[:, :3].all()


def test_falling_prefixes_are_gone_at_their_time():
    run = guided(replace(TREE, steps=8), distribution="falling", until=0.5)
    world, _ = rollout(run)
    given = [int((~world.generate(world.initial(), step).mask_RBT[0, 0]).sum()) for step in (0, 2, 4, 7)]
    assert given == [2, 1, 0, 0]


def test_stages_continue_one_another_member_by_member():
    _, found = rollout(guided(TREE, distribution="staged", share=0.5))
    assert found.parents()[0].tolist() == [-1] * 8 + [-1, 8, 9, 10, -1, 12, 13, 14]
    kept = (~found.mask_RBT).sum(-1)[0]
    assert kept.tolist() == [0] * 8 + [0, 1, 1, 2] * 2


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("credit", ["suffix", "whole"])
def test_a_retry_keeps_its_try_up_to_the_first_error(name, credit):
    world, found = rollout(replace(WORLDS[name], prefix="retry", prefix_args=(("credit", credit),)))
    tried, again = (found.token_RBT[0].unflatten(0, (4, 4))[:, half] for half in (slice(0, 2), slice(2, 4)))
    right = torch.from_numpy(solutions(world, found)).unflatten(0, (4, 4))[:, :2]
    wrong = tried != right
    mask = found.mask_RBT[0].unflatten(0, (4, 4))[:, 2:]
    parent = found.parents()[0].unflatten(0, (4, 4))[:, 2:]
    for n, g in np.ndindex(4, 2):
        kept = int(wrong[n, g].int().argmax()) if bool(wrong[n, g].any()) else 0
        assert again[n, g, :kept].tolist() == tried[n, g, :kept].tolist()
        assert mask[n, g].tolist() == [credit == "whole" or t >= kept for t in range(len(mask[n, g]))]
        assert int(parent[n, g]) == (4 * n + g if bool(wrong[n, g].any()) else -1)
    logp = world.logp(world.initial(), found)
    assert torch.allclose(logp, found.logp_mu_RBT, atol=1e-5)


def test_stored_prefixes_are_successes_of_the_start_and_every_try_is_counted():
    run = replace(
        TREE,
        prefix="stored",
        prefix_args=(("tokens", 2), ("distribution", "fixed"), ("ask", 16), ("attempts", 64)),
    )
    world, found = rollout(run)
    assert (found.token_RBT[0, 8:, :2].numpy() == solutions(world, found)[8:, :2]).all()
    assert world.counts()["prefix/attempts"].tolist() == [16 * 64]
    assert train(run)["rollouts"].tolist() == [16 * 64 + 16, 16 * 64 + 6 * 16]


def test_parents_follow_their_groups_and_end_with_them():
    _, found = rollout(guided(TREE, distribution="staged"))
    refuses("age_limit removed single sequences", replace(found, group_RB=found.groups()).parents)


def test_every_source_trains_with_the_recipe_that_reads_parents():
    for given in (guided(TREE, distribution="staged"), replace(TREE, prefix="retry")):
        run = replace(given, recipe="tree_opo")
        check_arguments([run])
        assert np.isfinite(train(run)["actor/grad_norm"]).all()


REFUSED = {
    "no source has that name": (replace(TREE, prefix="techer"), "Did you mean 'teacher'"),
    "longer than the response": (guided(TREE, tokens=3),
                                 "at most 3 tokens and the policy must write one; take 2"),
    "no prompt at all": (guided(TREE, share=0.1), "a share 0.1 of 4 prompts rounds to none"),
    "no such distribution": (guided(TREE, distribution="random"), "distribution"),
    "share above one": (guided(TREE, share=1.5), "expected above 0 and at most 1"),
    "nothing kept": (guided(TREE, tokens=0), "expected at least 1"),
    "no attempts": (replace(TREE, prefix="stored", prefix_args=(("attempts", 0), ("tokens", 2))), "attempts"),
    "no tokens": (replace(TREE, task="chain", prefix="teacher"), "task 'chain' has none"),
    "odd groups": (replace(TREE, group=3, prefix="retry"), "group=3 is odd"),
    "stages of one": (guided(replace(TREE, group=1), distribution="staged"), "group of at least 2"),
    "no checker of steps": (replace(TREE, task_args=(("task", "length"),), prefix="retry"), "cannot tell"),
    "parents without a source": (replace(TREE, recipe="tree_opo"), "Take prefix=retry or prefix=stored"),
    "parents of groups that begin alike": (guided(replace(TREE, recipe="tree_opo")),
                                           "prefix .teacher. has none"),
    "weights that change inside": (guided(replace(TREE, staleness="in-flight", lag=1)),
                                   "staleness 'in-flight'"),
    "baselines from the prompt": (guided(replace(TREE, recipe="remax")), "begin behind it"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_is_refused_beforehand(why):
    run, words = REFUSED[why]
    refuses(words, check_arguments, [run])


def test_an_empty_store_says_what_to_do():
    run = replace(TREE, prefix="stored", prefix_args=(("tokens", 2), ("ask", 1), ("attempts", 1)))
    refuses("empty: none of 1 responses to each of 1 prompts", rollout, run)


def test_an_empty_store_may_leave_all_prompts_without_a_prefix():
    args = (("tokens", 2), ("ask", 1), ("attempts", 1), ("empty", "plain"))
    world, found = rollout(replace(TREE, prefix="stored", prefix_args=args))
    assert world.counts()["prefix/traces"].tolist() == [0]
    assert found.mask_RBT.all()


def test_every_source_is_documented():
    assert set(prefix) == {"off", "teacher", "stored", "retry"}
