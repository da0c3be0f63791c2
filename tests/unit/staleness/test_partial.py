"""Partial rollouts: responses go on under newer weights, and every token knows which."""

import dataclasses

import pytest
import torch
from support.refusals import refuses
from support.small_runs import CHAIN, TOY, TREE, moving

from testbed.config.run import grid
from testbed.staleness import build_source, plan_for
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

WIDE = dataclasses.replace(TOY, task_args=(("limit", 6), ("modulus", 3)))
"""Enough responses that no two groups are alike by chance."""
every_world = pytest.mark.parametrize("run", [TREE, CHAIN, TOY], ids=["tree", "chain", "toy"])


def partial(run, **arguments):
    pairs = tuple(sorted({"tokens": 2, **arguments}.items()))
    return dataclasses.replace(run, staleness="partial", staleness_args=pairs)


def batches(run, steps, seeds=(0, 1)):
    """Yield (step, weights so far, rollout, world) of two cells whose weights move by noise."""
    runs = grid(run, seed=list(seeds))
    world = build_world(runs)
    source = build_source(runs, world, world.initial())
    history = []
    for step, theta in moving(world, steps):
        history.append(theta)
        yield step, history, source.batch(theta, step).rollout, world


@every_world
def test_a_part_is_one_step_newer_than_the_part_before(run):
    for step, _, rollout, world in batches(partial(run), 20):
        if step < 2 * world.length:
            continue
        start_RB1 = rollout.version_RBT[..., :1]
        part_T = torch.arange(world.length) // 2
        written = rollout.mask_RBT
        assert ((rollout.version_RBT - start_RB1)[written] == part_T.expand_as(written)[written]).all()


@every_world
def test_no_sample_is_older_than_twice_the_longest_response(run):
    for step, _, rollout, world in batches(partial(run), 20):
        parts = -(-world.length // 2)
        age_RBT = step - rollout.version_RBT
        assert int(age_RBT.max()) <= 2 * (parts - 1)
        last_RB = rollout.mask_RBT.sum(-1) - 1
        last_age = age_RBT.gather(-1, last_RB[..., None])
        assert int(last_age.min()) >= 0


def test_groups_are_trained_on_once_each_in_the_order_in_which_they_were_done():
    seen, checked = [], 0
    for step, _, rollout, _ in batches(partial(WIDE), 12, seeds=(3,)):
        length_N = rollout.mask_RBT[0].sum(-1).unflatten(0, (4, 4)).amax(-1)
        start_N = rollout.version_RBT[0, ::4, 0]
        done_N = start_N + (length_N + 1) // 2 - 1
        if int(start_N.min()) > 0:  # versions of groups begun before step 0 are all 0
            assert (done_N[1:] >= done_N[:-1]).all()
            assert int(done_N.max()) <= step
            checked += 1
        logp_NX = rollout.logp_mu_RBT[0].reshape(4, -1)
        seen += [(*p.tolist(), *u.tolist()) for p, u in zip(rollout.prompt_RNQ[0], logp_NX, strict=True)]
    assert len(set(seen)) == len(seen) == 48
    assert checked >= 6


def test_long_responses_are_older_than_short_ones():
    ages = {True: [], False: []}
    for step, _, rollout, _ in batches(partial(WIDE), 20):
        if step >= 8:
            oldest_RB = (step - rollout.version_RBT[..., 0]).unflatten(1, (4, 4))[..., 0]
            long_RN = rollout.mask_RBT.sum(-1).unflatten(1, (4, 4)).amax(-1) > 4
            for long, age in zip(long_RN.flatten().tolist(), oldest_RB.flatten().tolist(), strict=True):
                ages[long].append(age)
    assert min(ages[True]) >= 2  # written in three parts
    assert min(ages[False]) < 2


def test_impossible_partial_rollouts_are_refused_with_the_numbers():
    refuses("lag is 2", plan_for, dataclasses.replace(partial(CHAIN), lag=2))
    refuses("tokens 0", plan_for, partial(CHAIN, tokens=0))
    refuses("12 tokens, 2 per step, is written by 6 versions, .* keeps 5", train, partial(CHAIN, versions=5))
    train(partial(TREE, versions=6))
