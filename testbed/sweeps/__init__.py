"""Named sweeps: tuples of Run that the command line, the tests and the figures share.

A sweep whose results become a committed table with one row per cell is one file in this folder, and that is
all it takes; nothing else lists it:

    @sweep_table("my-sweep", source="where the question is from", keys=("recipe", "lag", "seed"),
                 metrics=("accuracy", "collapsed", "min rollout_corr/ess_kish_sequence_raw"))
    def cells() -> tuple[Run, ...]:
        \"\"\"One line: what is varied.\"\"\"
        return grid(TOY, recipe=["grpo", "rec"], lag=[0, 16], seed=range(8))

`testbed run my-sweep` runs it; `python -m paper_figs.sweep_tables my-sweep` also writes its table,
paper_figs/data/my-sweep.csv, for claims and figures. Keys and metrics: analysis.cell_table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from testbed.config.run import Run, grid
from testbed.errors import UserError, unknown
from testbed.registry import Registry

Cells: TypeAlias = Callable[[], tuple[Run, ...]]

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

PLAIN: Mapping[str, tuple[Run, ...]] = MappingProxyType(
    {
        "staleness": STALENESS,
        "staleness-full": STALENESS_FULL,
        "ess-collapse": ESS_COLLAPSE,
        "bandit-grid": BANDIT_GRID,
    }
)
"""Sweeps that no table with one row per cell is made of."""

SWEEP_TABLES = Registry("sweep table", package="testbed.sweeps")
"""Sweeps that such a table is made of, each in a file of this folder."""


def sweep_table(
    name: str, *, source: str, keys: tuple[str, ...], metrics: tuple[str, ...]
) -> Callable[[Cells], Cells]:
    """Register cells() -> tuple of Run as a named sweep, and what its table keeps of every cell.

    Args:
        name: of the sweep and of the table.
        source: paper or page whose question it asks.
        keys: fields of Run, or arguments as "recipe_args.eps", that tell the cells apart.
        metrics: what the table says of a cell: see analysis.cell_table.
    """
    return SWEEP_TABLES(name, source=source, keys=keys, metrics=metrics)


def sweeps() -> dict[str, tuple[Run, ...]]:
    """Return what `testbed run NAME` knows; raise UserError when two sweeps share a name."""
    if shared := sorted(set(PLAIN) & set(SWEEP_TABLES)):
        raise UserError(f"Two sweeps are named '{shared[0]}'; pick another name for the sweep table.")
    return {**PLAIN, **{name: entry.function() for name, entry in SWEEP_TABLES.items()}}


def demo_model(model: str) -> tuple[Run, ...]:
    """Return the cells that take the demo's tiny Hugging Face model through two recipes at lags 0 and 8."""
    base = replace(HUB, model=model, task_args=ONE_DIGIT, learning_rate=6e-4)
    return grid(base, recipe=["reinforce", "grpo"], lag=[0, 8])


def sweep(name: str) -> tuple[Run, ...]:
    """Return a named sweep; raise UserError with the nearest name for an unknown one."""
    known = sweeps()
    if name not in known:
        raise unknown("sweep", name, known)
    return known[name]
