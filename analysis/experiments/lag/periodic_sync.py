"""OAPL and truncated sequence weights where weights are sent every 3 to 801 optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from analysis.experiments.lag.class_rates import SYNC
from analysis.experiments.lag.lag_400 import FIGURE, MARGIN, MARGINS, RIVAL, TIMES
from analysis.experiments.lag.window_and_sync_rates import KEYS, NAME, SYNC_LAGS, sync_cells
from analysis.lab import Check, Experiment, Stop, above, declare, named, sooner
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

PASS = "known val/pass@8"


def cells() -> tuple[Run, ...]:
    """OAPL and GRPO with truncated sequence weights at four periods, each at its own rate."""
    return tuple(replace(run, log_every=40) for run in tuned(sync_cells(), NAME, KEYS))


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield whether OAPL holds with the period, and what it saves and gains against its rival."""
    oapl = {lag: named(SYNC, lag=lag)["OAPL"] for lag in SYNC_LAGS}
    for lag in SYNC_LAGS[1:]:
        yield (
            f"oapl-holds-its-accuracy-under-periodic-sync-at-lag-{lag}",
            f"Where weights are sent every {2 * lag + 1} steps, OAPL ends at most 0.05 below its accuracy "
            "with a sync every 3, on most seeds.",
            partial(above, pair={f"lag {lag}": oapl[lag], "lag 1": oapl[1]}, margin=-MARGIN),
        )
    for lag, times in (*((lag, TIMES) for lag in SYNC_LAGS), (SYNC_LAGS[-1], 2)):
        share = {TIMES: "a third", 2: "half"}[times]
        yield (
            f"oapl-needs-{share.replace(' ', '-')}-of-the-rollouts-under-periodic-sync-at-lag-{lag}",
            f"Where weights are sent every {2 * lag + 1} steps, OAPL has accuracy 0.8 in under {share} of "
            f"the rollouts of {RIVAL}, on most seeds.",
            partial(sooner, pair=named(SYNC, lag=lag), times=times),
        )
    for slug, outcome, words in (
        ("ends-above-sequence-weights", "accuracy", "ends with a higher accuracy than"),
        ("has-more-pass-at-8", PASS, "has over the run a higher mean pass@8 than"),
    ):
        yield (
            f"oapl-{slug}-under-periodic-sync-at-lag-400",
            f"Where weights are sent every 801 steps, OAPL {words} {RIVAL}, on most seeds.",
            partial(above, pair=named(SYNC, lag=400), outcome=outcome),
        )


EXPERIMENT = Experiment(
    "periodic-sync",
    question="Does OAPL learn from weights that are sent every 800 steps as from those of now, and in fewer "
    "rollouts than sequence weights?",
    source="Ritter et al. (2026), arXiv:2602.19362",
    differs="a transformer of 7,000 weights, sums of 6 digits, 1602 steps of 32 responses: at mean lag 400 "
    "two generations, the first by the base model; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=("recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "area", "collapsed", "rollouts_to 0.5", "rollouts_to 0.8"),
        *("last val/pass@8", PASS, "mean actor/learning_rate"),
    ),
    margins=MARGINS,
    figure=replace(FIGURE, x_label="mean lag (optimizer steps)"),
    systems=("OAPL",),
)
declare(EXPERIMENT, claims())
