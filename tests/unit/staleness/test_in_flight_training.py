"""Weights that change while responses are written: every token knows its version, and the loop trains."""

import dataclasses

import pytest
import torch
from support.refusals import refuses
from support.small_runs import CHAIN, TOY, TREE, moving

from testbed.config.run import grid
from testbed.execution.preflight import check_arguments
from testbed.staleness import build_source, plan_for
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

every_world = pytest.mark.parametrize("run", [TREE, CHAIN, TOY], ids=["tree", "chain", "toy"])


def in_flight(run, lag=1, **arguments):
    pairs = tuple(sorted({"tokens": 1, "cache": "recomputed", **arguments}.items()))
    return dataclasses.replace(run, staleness="in-flight", staleness_args=pairs, lag=lag)


@every_world
def test_every_token_is_a_step_younger_than_the_one_before(run):
    runs = grid(in_flight(run), lag=[0, 2])
    world = build_world(runs)
    source = build_source(runs, world, world.initial())
    for step, theta in moving(world, 14):
        generated = source.batch(theta, step)
    rollout = generated.rollout
    if run is TREE:  # what the exact ratio law is computed from is the law that wrote the batch
        table = world.logp(generated.behavior.weights_XP, rollout)
        torch.testing.assert_close(table, rollout.logp_mu_RBT, rtol=0, atol=1e-12)
    place = torch.arange(world.length)
    for replica, lag in enumerate((0, 2)):
        expected = (step - lag - (world.length - 1 - place)).clamp(min=0)
        assert (rollout.version_RBT[replica] == expected).all()


def test_the_table_of_a_tree_is_the_law_that_wrote_the_batch():
    world = build_world((in_flight(TREE),))
    generator = torch.Generator().manual_seed(4)
    shape = (1, world.length, world.initial().shape[1])
    theta_RWP = torch.randn(shape, generator=generator, dtype=torch.float64)
    place_T = torch.arange(world.length)
    rollout = world.generate_in_flight(theta_RWP, place_T[None, None], 0, "kept")
    table = world.in_flight_table(theta_RWP, place_T)
    torch.testing.assert_close(world.logp(table, rollout), rollout.logp_mu_RBT, rtol=0, atol=1e-12)
    assert build_world((in_flight(CHAIN),)).in_flight_table(theta_RWP, place_T) is None


def test_a_kept_cache_gives_laws_that_no_version_has():
    kept, recomputed = (build_world((in_flight(TOY, cache=cache),)) for cache in ("kept", "recomputed"))
    start = kept.initial()
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
    theta_RWP = torch.stack([start, start + 0.5 * noise], 1)
    version_RBT = (torch.arange(kept.length) >= 3).long()[None, None]
    own = kept.generate_in_flight(theta_RWP, version_RBT, 0, "kept")
    read = recomputed.logp(theta_RWP[:, 1], own)
    gap_T = (own.logp_mu_RBT - read).abs().amax((0, 1))
    assert gap_T[4:].max() > 1e-3
    again = recomputed.generate_in_flight(theta_RWP, version_RBT, 0, "recomputed")
    gap_T = (again.logp_mu_RBT - recomputed.logp(theta_RWP[:, 1], again)).abs().amax((0, 1))
    assert gap_T[3:].max() < 5e-6
    assert gap_T[:3].max() > 1e-3


def test_an_engine_acts_on_every_version():
    run = dataclasses.replace(
        in_flight(TREE), mismatch="temperature", mismatch_args=(("temperature", 2.0),), anchor="snapshot"
    )
    world = build_world((run,))
    generator = torch.Generator().manual_seed(6)
    theta_RWP = torch.randn((1, 2, world.initial().shape[1]), generator=generator, dtype=torch.float64)
    version_RBT = (torch.arange(world.length) >= 1).long()[None, None]
    rollout = world.generate_in_flight(theta_RWP, version_RBT, 0, "kept")
    hot = torch.where(
        version_RBT.bool(), world.logp(theta_RWP[:, 1] / 2, rollout), world.logp(theta_RWP[:, 0] / 2, rollout)
    )
    torch.testing.assert_close(rollout.logp_mu_RBT, hot, rtol=0, atol=1e-12)
    plain = torch.where(
        version_RBT.bool(), world.logp(theta_RWP[:, 1], rollout), world.logp(theta_RWP[:, 0], rollout)
    )
    torch.testing.assert_close(rollout.logp_trainer_RBT, plain, rtol=0, atol=1e-12)


def test_what_is_drawn_is_drawn_by_the_engine():
    cold = (("temperature", 1e-4),)
    world = build_world((dataclasses.replace(in_flight(TREE), mismatch="temperature", mismatch_args=cold),))
    generator = torch.Generator().manual_seed(7)
    theta_RWP = torch.randn((1, 2, world.initial().shape[1]), generator=generator, dtype=torch.float64)
    version_RBT = (torch.arange(world.length) >= 1).long()[None, None]
    rollout = world.generate_in_flight(theta_RWP, version_RBT, 0, "kept")
    likeliest_RWS = world.policy.logits(theta_RWP).argmax(-1)
    for t in range(world.length):
        wanted_RB = likeliest_RWS[0, int(version_RBT[0, 0, t])][rollout.state_RBT[..., t]]
        assert torch.equal(rollout.token_RBT[..., t], wanted_RB)


def test_impossible_in_flight_updates_are_refused():
    refuses("tokens 0", plan_for, in_flight(TREE, tokens=0))
    refuses("cache is 'dropped'", plan_for, in_flight(TREE, cache="dropped"))
    aged = dataclasses.replace(in_flight(TREE), age_limit=2)
    refuses("the first of 3 tokens, 1 per update, is 3 steps old under lag 1", check_arguments, [aged])
    for fine in ({"age_limit": 3}, {"too_old": "truncate"}):
        check_arguments([dataclasses.replace(aged, **fine)])
    short = in_flight(TREE, versions=3)
    refuses("written by 3 versions; with lag 1 that needs a buffer of 4", train, short)
    train(in_flight(TREE, versions=4))
