"""Claims about training with anchors: planted tables turn every verdict, and pairs are paired by seed."""

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import batch_invariance

SEEDS = 12
NOISE = 0.002 * np.sin(np.arange(SEEDS) * 2.3)


def batches(rescaled=0.0, fixed=0.08, coupled=0.03):
    """A table like batch-invariance with planted changes at the smaller batches."""
    arms = [("ewma", 0.8, 64, 0.0), ("recompute", np.nan, 64, 0.0)]
    for prompts, decay in ((16, 16 / 17), (4, 64 / 65)):
        arms += [("ewma", decay, prompts, rescaled), ("ewma", 0.8, prompts, fixed)]
        arms += [("recompute", np.nan, prompts, coupled)]
    rows = [
        {
            "anchor": anchor,
            batch_invariance.DECAY: decay,
            "prompts": prompts,
            "seed": seed,
            batch_invariance.CURVE: 0.8 + seed / 50 + change + NOISE[seed] * (prompts < 64),
        }
        for anchor, decay, prompts, change in arms
        for seed in range(SEEDS)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_arms_of_the_batch_sizes_are_told_apart_by_their_decay():
    table = batches(rescaled=0.001, fixed=0.08, coupled=0.03)
    for arm, planted in ((("ewma", False), 0.001), (("ewma", True), 0.08), (("recompute", False), 0.03)):
        groups = batch_invariance.curves(table, *arm)
        assert list(groups) == ["4 prompts", "16 prompts"]
        for x_N in groups.values():
            np.testing.assert_allclose(x_N, planted + NOISE, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "holds", "fails"),
    [
        ("ppo-ewma-is-batch-size-invariant", {"rescaled": 0.004}, {"rescaled": -0.02}),
        ("ppo-is-not-batch-size-invariant", {"coupled": 0.03}, {"coupled": 0.0}),
        ("ppo-ewma-needs-its-decay-rescaled", {"fixed": 0.05}, {"fixed": -0.05}),
    ],
)
def test_batch_size_invariance_is_judged_arm_by_arm(name, holds, fails):
    check = batch_invariance.EXPERIMENT.claims[name].function
    assert word(check(batches(**holds))) == "supported"
    assert word(check(batches(**fails))) in ("refuted", "no difference")
