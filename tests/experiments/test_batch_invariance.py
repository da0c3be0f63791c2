"""The claim on batch sizes: arms are told apart, and pairs are paired by seed."""

import numpy as np
import pandas as pd

from analysis.experiments.lag import batch_invariance

SEEDS = 12
NOISE = 0.002 * np.sin(np.arange(SEEDS) * 2.3)


def batches(rescaled):
    """A table like batch-invariance with planted changes at the smaller batches."""
    arms = [("ewma", 0.8, 64, 0.0), ("recompute", np.nan, 64, 0.0)]
    for prompts, decay in ((16, 16 / 17), (4, 64 / 65)):
        arms += [("ewma", decay, prompts, rescaled), ("ewma", 0.8, prompts, 0.08)]
        arms += [("recompute", np.nan, prompts, 0.03)]
    rows = [{"anchor": anchor, batch_invariance.DECAY: decay, "prompts": prompts, "seed": seed,
             batch_invariance.VALUE: 0.8 + seed / 50 + change + NOISE[seed] * (prompts < 64)}
            for anchor, decay, prompts, change in arms
            for seed in range(SEEDS)]  # fmt: skip
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_arms_of_the_batch_sizes_are_told_apart_by_their_decay():
    groups = batch_invariance.curves(batches(rescaled=0.001))
    assert list(groups) == ["4 prompts", "16 prompts"]
    for x_N in groups.values():
        np.testing.assert_allclose(x_N, 0.001 + NOISE, atol=1e-12)
