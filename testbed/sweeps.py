"""Named sweeps: tuples of Run that the command line, the tests and the figures share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from testbed.config import Run, grid
from testbed.errors import unknown

TOY = Run(
    task="running-sum",
    policy="toy",
    prompts=8,
    group=8,
    steps=260,
    learning_rate=3e-3,
    optimizer="adam",
    max_grad_norm=1.0,
    warm_start_steps=600,
    teacher_noise=0.2,
)
"""The toy LLM: 12 digits modulo 8, width 32, 2 layers, 4 heads, a base model that succeeds at 5 to 8 %."""

CHAIN = Run(task="chain", recipe="reinforce", prompts=32, group=8, steps=240, learning_rate=0.1)
"""A chain MDP whose value, gradient and ESS are known exactly; 256 episodes per step."""

STALENESS = grid(
    TOY, recipe=["reinforce", "grpo", "gspo", "m2po", "vcpo"], lag=[0, 16, 64, 128], seed=range(2)
)

STALENESS_FULL = grid(
    TOY,
    recipe=["reinforce", "grpo", "dr_grpo", "gspo", "cispo", "m2po", "minpro", "topr", "vcpo"],
    lag=[0, 4, 16, 64, 128],
    seed=range(8),
)

ESS_COLLAPSE = grid(CHAIN, lag=[0, 2, 4, 8, 16, 32, 64, 128], seed=range(4))

BANDIT_GRID = grid(
    Run(task="bandit", prompts=32, group=8, steps=500, learning_rate=0.3),
    recipe=["reinforce", "grpo", "m2po", "vcpo"],
    lag=[0, 1, 2, 4, 8, 16, 32, 64, 128, 256],
    seed=range(25),
)

HUB = Run(
    task="reasoning-gym",
    policy="hf",
    model="the folder of a local model",
    prompts=16,
    group=8,
    steps=100,
    learning_rate=1e-5,
    optimizer="adam",
    max_grad_norm=1.0,
)
"""Where `testbed validate` starts from; the model is given there."""

ONE_DIGIT = (
    ("dataset_args", "min_terms=2 max_terms=2 min_digits=1 max_digits=1"),
    ("prompt", "{expression} ="),
)
"""reasoning-gym's chain_sum with two one-digit terms: what a model of 84,000 weights learns in seconds."""

SWEEPS: Mapping[str, tuple[Run, ...]] = MappingProxyType(
    {
        "staleness": STALENESS,
        "staleness-full": STALENESS_FULL,
        "ess-collapse": ESS_COLLAPSE,
        "bandit-grid": BANDIT_GRID,
    }
)
"""What `testbed run NAME` knows."""


def demo_model(model: str) -> tuple[Run, ...]:
    """Return the cells that take the demo's tiny Hugging Face model through two recipes at lags 0 and 8."""
    base = replace(HUB, model=model, task_args=ONE_DIGIT, learning_rate=6e-4)
    return grid(base, recipe=["reinforce", "grpo"], lag=[0, 8])


def sweep(name: str) -> tuple[Run, ...]:
    """Return a named sweep; raise UserError with the nearest name for an unknown one."""
    if name not in SWEEPS:
        raise unknown("sweep", name, SWEEPS)
    return SWEEPS[name]
