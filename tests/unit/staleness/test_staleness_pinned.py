"""Batches of every schedule, compared whole: versions, ages, groups and counts over nine steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.pins import outcome, pinned
from support.small_runs import LENGTHS, SMALL, moving

from testbed.staleness import build_source, plan_for
from testbed.staleness.storage import readable
from testbed.worlds.build_world import build_world

LAW = "0:0.5,3:0.3,7:0.2"
PIPELINE = "slots=8 batch=16 group=4 length_mean=20 max_length=60 train_time=3 in_flight=true"
CASES = {
    "exact 3": ("exact", 3, {}), "uniform 4": ("uniform", 4, {"slices": 2}), "uniform span": ("uniform", 4,
    {"span": 1}),
    "geometric": ("geometric", 3, {"longest": 6}), "geometric long": ("geometric", 2, {}),
    "two-point": ("two-point", 4, {"low": 3, "high": 9}), "two-point 0": ("two-point", 2, {}),
    "empirical": ("empirical", 3, {"distribution": LAW}), "periodic": ("periodic", 4, {"period": 3,
    "ahead": 1}),
    "periodic 2": ("periodic", 2, {"period": 4}), "one-step-off": ("one-step-off", 1, {}),
    "offline": ("offline", 0, {}),
    "in-flight": ("in-flight", 1, {"tokens": 1}), "in-flight again": ("in-flight", 2, {"tokens": 2,
    "cache": "recomputed"}),
    "partial": ("partial", 0, {"tokens": 2}), "latency": ("latency", 0, {"speed": 2, "concurrency": 6}),
    "latency base": ("latency", 0, {"speed": 0.7, "base": 2, "concurrency": 9}), "windowed": ("windowed", 0,
    {"tokens": 2}),
    "replay": ("replay", 0, {"share": 0.5}), "replay age": ("replay", 0, {"share": 0.25, "reuse": 2,
    "window": 3}),
    "replay advantage": ("replay", 0, {"share": 0.5, "priority": "advantage", "decay": 0.7}),
    "replay on-policy": ("replay", 0, {"share": 0.5, "priority": "on-policyness", "alpha": 0.4}),
    "pipeline": ("pipeline", 0, {"design": PIPELINE}), "pipeline last": ("pipeline", 0, {"design": PIPELINE,
    "token": "last"}),
    "wrong span": ("uniform", 2, {"span": 5}), "wrong law": ("empirical", 3, {"distribution": "0:0.5,2:0.6"}),
}  # fmt: skip
LIMITS = ((-1, "drop"), (2, "drop"), (2, "wait"), (1, "discard"), (3, "truncate"), (0, "drop"))


def run_of(name, limit, how):
    kind, lag, arguments = CASES[name]
    base = replace(
        LENGTHS if kind in ("in-flight", "partial", "latency", "windowed") else SMALL, prompts=4, group=4
    )
    arguments = tuple(sorted(arguments.items()))
    return replace(
        base, staleness=kind, lag=lag, staleness_args=arguments, age_limit=limit, too_old=how, steps=9
    )


def batches(run):
    """Return what nine steps of a pack were given to learn from: a list a quantity, step by step."""
    # Batches of unequal size are not stacked.
    runs = (
        (run,) if run.age_limit >= 0 and run.too_old in ("drop", "truncate") else (run, replace(run, seed=5))
    )
    world = build_world(runs)
    found, source = {}, None
    for step, theta_RP in moving(world, 9):
        source = source or build_source(runs, world, theta_RP)
        made = source.batch(theta_RP, step)
        rollout = made.rollout
        token_RBT = torch.where(rollout.mask_RBT, rollout.token_RBT, 0)
        version_RBT = torch.where(rollout.mask_RBT, rollout.version_RBT, 0)
        weight_BT = torch.arange(1, 1 + rollout.mask_RBT[0].numel()).reshape(rollout.mask_RBT[0].shape)
        counted = {
            "versions": version_RBT.sum(-1), "tokens": (token_RBT * weight_BT).sum((-1, -2)),
            "length": rollout.mask_RBT.sum(-1), "reward": rollout.reward_RB, "empty": made.empty,
            "mu": torch.where(rollout.mask_RBT, rollout.logp_mu_RBT.double(), 0.0).sum((-1, -2)),
            **made.counts,
        }  # fmt: skip
        for name, value in counted.items():
            found.setdefault(name, []).extend(np.asarray(value).ravel().tolist())
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_generates_as_before(name):
    for limit, how in LIMITS:
        run = outcome(run_of, name, limit, how)
        plan = outcome(plan_for, run) if not isinstance(run, str) else run
        told = plan if isinstance(plan, str) else {
            **{each: getattr(plan, each, None) for each in ("name", "shortest", "mean", "slices", "depth")},
            "law": getattr(plan, "distribution", None), "versions": outcome(plan.versions, run, 6),
            "ages": [plan.ages(seed, step) for seed, step in ((0, 0), (0, 9), (5, 9))] if hasattr(plan,
            "ages") and plan.ages else None,
        }  # fmt: skip
        made = told if isinstance(told, str) else outcome(batches, run)
        pinned("staleness", f"{name}, limit {limit} {how}", {"plan": told, "batches": made}, rel=1e-7)


def test_sizes_are_read_as_before():
    sizes = (0, 1, 1023, 1024, 5000, 1024**2 - 1, 1024**2, 3 * 1024**3, 7 * 1024**4, 2**60)
    pinned("staleness", "sizes", [readable(size) for size in sizes])
    pinned(
        "staleness",
        "seeds",
        np.array([plan_for(run_of("geometric", -1, "drop")).ages(s, 4)[0] for s in range(9)]),
    )
