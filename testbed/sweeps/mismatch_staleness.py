"""Two dials at once: how far the engine is from the trainer, and how old its weights are."""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Run, grid
from testbed.sweeps import sweep_table

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, mismatch="logit-noise")
"""Four prompts of three digits modulo 3, a softmax per prompt and prefix: everything is known exactly."""
SIGMAS = (0.0, 0.4, 0.8, 1.2, 1.6)
LAGS = (0, 2, 4, 8, 16, 32)
SEEDS = range(10, 18)


@sweep_table(
    "mismatch-staleness",
    source="landscape of rollout-trainer mismatch reports; lag and mismatch as two factors of pi/mu",
    keys=("recipe", "learning_rate", "mismatch_args.sigma", "lag", "seed"),
    metrics=(
        "exact/value",
        "mean exact/value",
        "mean exact/ess_kish_sequence",
        "min exact/ess_kish_sequence",
        "first exact/kl_pi_mu",
        "exact/kl_pi_mu",
    ),
)
def cells() -> tuple[Run, ...]:
    """Logit noise by lag, with and without sequence weights; beside each noise a run that never learns."""
    found: list[Run] = []
    for sigma in SIGMAS:
        noisy = replace(TREE, mismatch_args=(("sigma", sigma),))
        found += grid(noisy, recipe=["reinforce", "importance"], lag=LAGS, seed=SEEDS)
        found += grid(noisy, recipe=["reinforce"], learning_rate=[0.0], lag=[0, LAGS[-1]], seed=SEEDS)
    return tuple(found)
