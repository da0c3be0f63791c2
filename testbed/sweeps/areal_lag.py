"""AReaL's staleness table in a world that needs a trust region: PPO with a decoupled clip, and without."""

from __future__ import annotations

from testbed.config.run import Run, grid
from testbed.sweeps import sweep_table

NOISY = Run(
    task="bandit",
    task_args=(("contexts", 8),),
    recipe="decoupled",
    recipe_args=(("passes", 8),),
    prompts=4,
    group=8,
    steps=100,
    learning_rate=10.0,
)
"""Eight bandits of ten Bernoulli arms, 32 pulls per batch, eight passes over it: unclipped, it overfits."""

LAGS = (0, 1, 2, 4, 8, 16)


@sweep_table(
    "areal-lag",
    source="Fu et al. (2025), AReaL, arXiv:2505.24298, the table over the admitted staleness",
    keys=("anchor", "lag", "seed"),
    metrics=("exact/value", "mean actor/clip_share_last_pass"),
)
def cells() -> tuple[Run, ...]:
    """PPO clipped around mu (coupled) or around the weights at the start of the step, 6 lags, 64 seeds."""
    return grid(NOISY, anchor=["behavior", "recompute"], lag=LAGS, seed=range(64))
