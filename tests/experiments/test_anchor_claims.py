"""Claims about training with anchors: planted tables turn every verdict, and pairs are paired by seed."""

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.engines import anchors
from analysis.experiments.lag import areal_lag, batch_invariance

SEEDS = 12
NOISE = 0.002 * np.sin(np.arange(SEEDS) * 2.3)
AREAL, ANCHORS = areal_lag.EXPERIMENT.claims, anchors.EXPERIMENT.claims


def lags(**lost):
    """A table like areal-lag in which an anchor loses what is given at lags 1, 2, 4, 8 and 16."""
    rows = [
        {
            "anchor": anchor,
            "lag": lag,
            "seed": seed,
            areal_lag.VALUE: 0.9 + seed / 50 - gone - NOISE[seed] * (lag > 0),
        }
        for anchor, at in lost.items()
        for lag, gone in zip((0, 1, 2, 4, 8, 16), (0.0, *at), strict=True)
        for seed in range(SEEDS)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


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


def corrections(value):
    """A table like anchors with planted final values by (recipe, anchor, lag)."""
    rows = [
        {
            "recipe": recipe,
            "anchor": anchor,
            "lag": lag,
            "seed": seed,
            areal_lag.VALUE: v + seed / 50 + s * NOISE[seed],
        }
        for s, ((recipe, anchor, lag), v) in enumerate(value.items())
        for seed in range(SEEDS)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((0, 0, 0, 0.005, 0.3), "supported"),
        ((0, 0, 0, 0.02, 0), "refuted"),
        ((0.02, -0.1, -0.1, -0.1, 0), "refuted"),
        ((0.012, 0, 0, 0, 0), "undecided"),
    ],
)
def test_flat_means_at_every_lag_up_to_eight_and_no_further(lost, expected):
    found = AREAL["decoupled-ppo-is-flat-to-lag-8"].function(lags(recompute=lost, behavior=(0.5,) * 5))
    assert word(found) == expected


@pytest.mark.parametrize(("lost", "expected"), [(0.03, "supported"), (0.005, "no difference")])
def test_coupled_ppo_is_judged_at_lag_eight(lost, expected):
    found = AREAL["coupled-ppo-is-not-flat-to-lag-8"].function(
        lags(behavior=(0.5, 0.5, 0.5, lost, 0.5), recompute=(0,) * 5)
    )
    assert word(found) == expected
    assert found.effect == pytest.approx(lost + NOISE.mean())


def test_six_points_are_asked_of_every_lag_from_four():
    enough = AREAL["coupled-ppo-loses-six-points-from-lag-4"].function(lags(behavior=(0, 0, 0.07, 0.1, 0.2)))
    short = AREAL["coupled-ppo-loses-six-points-from-lag-4"].function(
        lags(behavior=(0.5, 0.5, 0.03, 0.1, 0.2))
    )
    assert word(enough) == "supported"
    assert word(short) == "smaller than claimed"


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


def test_missing_log_probabilities_must_cost_at_every_lag():
    cheap = {("decoupled", "missing", lag): 0.95 if lag == 16 else 0.7 for lag in areal_lag.LAGS}
    base = {("decoupled", "recompute", lag): 0.9 for lag in areal_lag.LAGS}
    costly = {**cheap, ("decoupled", "missing", 16): 0.8}
    for table, expected in (({**base, **cheap}, "refuted"), ({**base, **costly}, "supported")):
        found = ANCHORS["missing-old-logits-cost-decoupled-ppo"].function(corrections(table))
        assert word(found) == expected


def test_the_right_anchor_is_judged_at_lag_sixteen_alone():
    values = {("decoupled", name, lag): 0.9 for name in ("snapshot", "recompute") for lag in (0, 16)}
    stalls = {**values, ("decoupled", "snapshot", 16): 0.8, ("decoupled", "snapshot", 0): 0.99}
    found = ANCHORS["the-right-anchor-stalls-at-lag-16"].function(corrections(stalls))
    assert word(found) == "supported"
    assert found.n == SEEDS


def test_every_truncation_has_to_beat_having_none():
    values = {(name, "missing", 0): 0.9 for name in ("tis", "mis", "icepop")} | {
        ("decoupled", "missing", 0): 0.7
    }
    values |= {(name, "recompute", 0): 0.1 for name in ("tis", "mis", "icepop", "decoupled")}
    found = ANCHORS["truncation-replaces-the-missing-trust-region"].function(corrections(values))
    assert word(found) == "supported"
    lost = ANCHORS["truncation-replaces-the-missing-trust-region"].function(
        corrections({**values, ("mis", "missing", 0): 0.5})
    )
    assert word(lost) == "refuted"
