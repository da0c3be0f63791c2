"""Batch-size invariance: the same samples in 4 or 16 times as many smaller batches, all else rescaled."""

from __future__ import annotations

from dataclasses import replace

from testbed.anchors.rescale import smaller_batches
from testbed.config.run import Arguments, Run, grid
from testbed.sweeps import sweep_table
from testbed.sweeps.areal_lag import NOISY

PARTS = (1, 4, 16)
DECAY: Arguments = (("decay", 0.8),)
COUPLED = replace(
    NOISY,
    recipe_args=(("passes", 4),),
    prompts=64,
    steps=40,
    learning_rate=40.0,
    log_every=2,
    anchor="recompute",
)
"""On-policy PPO: the anchor is the start of the step, so the region it clips to shrinks with the batch."""
DECOUPLED = replace(COUPLED, anchor="ewma", anchor_args=DECAY)


@sweep_table(
    "batch-invariance",
    source="Hilton, Cobbe & Schulman (2021), arXiv:2110.00641",
    keys=("anchor", "anchor_args.decay", "prompts", "seed"),
    metrics=("mean exact/value", "exact/value", "mean actor/clip_share_last_pass"),
)
def cells() -> tuple[Run, ...]:
    """PPO, and PPO-EWMA with its decay rescaled or fixed; three batch sizes, rates rescaled, 32 seeds."""
    arms = [smaller_batches(run, parts) for run in (COUPLED, DECOUPLED) for parts in PARTS]
    arms += [replace(smaller_batches(DECOUPLED, parts), anchor_args=DECAY) for parts in PARTS[1:]]
    return tuple(cell for arm in arms for cell in grid(arm, seed=range(32)))
