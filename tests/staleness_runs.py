"""Small runs in three kinds of worlds, weights that move, and what it means that two tables are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.config import Run

CHAIN = Run(task="chain", prompts=4, group=4, steps=12, learning_rate=1.0, log_every=3)
TREE = Run(task="tree", prompts=4, group=4, steps=12, learning_rate=1.0, log_every=3)
TOY = Run(
    task="length",
    task_args=(("limit", 6), ("modulus", 3)),
    policy="toy",
    policy_args=(("heads", 2), ("layers", 1), ("width", 8)),
    prompts=4,
    group=4,
    steps=8,
    log_every=3,
    learning_rate=1e-2,
    optimizer="adam",
    evaluation_prompts=4,
)
every_world = pytest.mark.parametrize("run", [TREE, CHAIN, TOY], ids=["tree", "chain", "toy"])

DIALS = ("cell", "lag", "staleness", "staleness_args")
"""Columns in which two runs that amount to the same may differ."""


def moving(world, steps, seed=0):
    """Yield (step, weights) of weights that move by noise."""
    generator = torch.Generator().manual_seed(seed)
    theta = world.initial()
    for step in range(steps):
        yield step, theta
        theta = theta + 0.2 * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def assert_same(left, right):
    """Fail unless two tables of results agree in every bit outside DIALS."""
    left, right = ({k: np.asarray(v) for k, v in table.items() if k not in DIALS} for table in (left, right))
    shared = left.keys() & right.keys()
    assert {"reward/mean", "actor/grad_norm"} <= shared
    for name in shared:
        floats = np.issubdtype(left[name].dtype, np.floating)
        assert np.array_equal(left[name], right[name], equal_nan=floats), name
