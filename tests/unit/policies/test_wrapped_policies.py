"""A policy, but rounded or perturbed: what it notes when it generates, it finds again when it learns."""

from dataclasses import replace

import pytest
import torch
from support.quick import quick
from support.small_runs import LENGTHS, TOY

from testbed.pipeline import trace
from testbed.pipeline.design import from_words
from testbed.staleness import build_source, schedule
from testbed.worlds.build_world import build_world

TABLE = replace(LENGTHS, steps=3)
TRANSFORMER = replace(TOY, steps=3)
SCHEDULES = {
    "empirical": {"distribution": "0:0.5 2:0.5"}, "in-flight": {"tokens": 2}, "latency": {"speed": 2},
    "partial": {"tokens": 2}, "pipeline": {"design": "batch=16 group=4 slots=16"}, "replay": {"share": 0.5},
    "uniform": {"slices": 2}, "two-point": {"slices": 2}, "geometric": {"slices": 2},
}  # fmt: skip
LAGS = {"one-step-off": 1, "offline": 0, "in-flight": 1, "empirical": 1}
NO_MEAN = ("latency", "partial", "replay", "pipeline", "trace", "windowed")
WRAPPED = {
    "table-int8": (TABLE, {"precision": "int8 matrices=all"}),
    "toy-fp8": (TRANSFORMER, {"precision": "fp8-tensor matrices=all"}),
    "toy-fp8-activations": (TRANSFORMER, {"precision": "fp8-block+fp8-activations matrices=all"}),
    "toy-perturbed": (TRANSFORMER, {"perturb": 0.1}),
}


def under(run, name, tmp_path, **policy_args):
    """Return the run under a schedule, with arguments of the policy added."""
    arguments = SCHEDULES.get(name, {})
    if name == "windowed":  # which wants responses of a fixed length
        tree, plain = (("task", "running-sum"),), (("digits", 4), ("modulus", 3))
        given = ("tree", tree) if run.policy == "tabular" else ("running-sum", plain)
        run = replace(run, task=given[0], task_args=given[1])
    if name == "trace":
        path = tmp_path / "lags.parquet"
        trace.write(trace.record(from_words(SCHEDULES["pipeline"]["design"].split()), 8), path)
        arguments = {"file": str(path)}
    return replace(
        run, staleness=name, staleness_args=tuple(sorted(arguments.items())),
        lag=0 if name in NO_MEAN else LAGS.get(name, 2),
        policy_args=tuple(sorted({**dict(run.policy_args), **policy_args}.items())),
    )  # fmt: skip


def resting(run):
    """Return the world of a run and weights at which roundings show."""
    world = build_world((run,))
    theta = world.initial()
    if run.policy == "tabular":
        theta = torch.randn(theta.shape, generator=torch.Generator().manual_seed(0), dtype=theta.dtype)
    return world, theta


@pytest.mark.parametrize("name", quick({"in-flight", "replay"}, sorted(schedule)))
@pytest.mark.parametrize(("run", "wrap"), WRAPPED.values(), ids=list(WRAPPED))
def test_weights_that_do_not_move_have_ratio_one_under_every_schedule(run, wrap, name, tmp_path):
    run = under(run, name, tmp_path, **wrap)
    world, theta = resting(run)
    source = build_source((run,), world, theta)
    for step in range(run.steps):
        rollout = source.batch(theta, step).rollout
        drift = (world.logp(theta, rollout) - rollout.logp_mu_RBT)[rollout.mask_RBT].abs().max()
        assert drift < 1e-6, f"|log ratio| is {drift:.2g} at step {step}, though the weights do not move"


def test_an_engine_around_a_rounded_policy_keeps_its_roundings():
    both = replace(
        TRANSFORMER, policy_args=(*TRANSFORMER.policy_args, ("precision", "fp8-block+fp8-activations"))
    )
    weights = replace(
        TRANSFORMER,
        policy_args=(*TRANSFORMER.policy_args, ("precision", "fp8-block")),
        mismatch="fp8-activations",
    )
    theta = build_world((both,)).initial()
    drawn = [build_world((run,)).generate(theta, 0).logp_mu_RBT for run in (both, weights)]
    assert torch.equal(*drawn)


def test_a_stale_cache_around_a_rounded_policy_is_that_of_rounded_weights():
    run = replace(TRANSFORMER, mismatch="stale-kv")
    rounded = replace(run, policy_args=(*run.policy_args, ("precision", "fp8-tensor matrices=all")))
    plain, world = build_world((run,)), build_world((rounded,))
    theta = 2 * plain.initial()
    older = theta + 0.1 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1))
    seen = world.policy.weights
    expected = plain.generate(seen(theta), 0, 1, seen(older)).logp_mu_RBT
    assert torch.equal(world.generate(theta, 0, 1, older).logp_mu_RBT, expected)
    assert not torch.equal(world.generate(theta, 0, 1, theta).logp_mu_RBT, expected)
