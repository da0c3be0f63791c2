"""Is it lag times learning rate that counts? Curves against rate times step, at equal products."""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Run, grid
from testbed.sweeps import sweep_table

TREE = Run(task="tree", recipe="reinforce", prompts=64, group=8)
RATES = (0.75, 1.5, 3.0)
PRODUCTS = (0, 12, 24, 48, 96, 192)
"""Lag times learning rate."""
HORIZON = 300
"""Learning rate times steps: every cell travels as far."""


@sweep_table(
    "lag-times-rate",
    source="arXiv:2607.01083: stale gradients cost what lag times learning rate says",
    keys=("learning_rate", "lag", "seed"),
    metrics=("exact/value", "mean exact/value", "min exact/ess_kish_sequence"),
)
def cells() -> tuple[Run, ...]:
    """REINFORCE at six products of lag and learning rate, each at three rates with as much time."""
    found: list[Run] = []
    for rate in RATES:
        steps = round(HORIZON / rate)
        run = replace(TREE, learning_rate=rate, steps=steps, log_every=steps // 20)
        found += grid(run, lag=[round(product / rate) for product in PRODUCTS], seed=range(10, 18))
    return tuple(found)
