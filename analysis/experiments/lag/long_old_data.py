"""Token ratios and MinPRO on responses of 12 and 48 tokens that are 256 optimizer steps old."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

from analysis.experiments.lag.class_rates import KEYS, LEVELS, LONG, NAME, SHORT, level_cells
from analysis.lab import (
    Arm,
    Check,
    Evidence,
    Experiment,
    Plot,
    Stop,
    above,
    arms,
    declare,
    happens_more_often,
    median_exceeds,
    named,
)
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

ARMS: dict[int, dict[str, Arm]] = {
    length: named(LEVELS, task_args=f"digits={length}") for length in (SHORT, LONG)
}


def cells() -> tuple[Run, ...]:
    """GRPO, CISPO and MinPRO at two lengths, each at its own rate."""
    return tuned(level_cells(), NAME, KEYS)


def _grows(table: pd.DataFrame, *, rival: str) -> Evidence:
    """Return the evidence that MinPRO's gain over a rival in best accuracy is larger on long responses."""
    best = {n: arms(table, "best", {each: ARMS[n][each] for each in ("MinPRO", rival)}) for n in ARMS}
    short_N, long_N = (found["MinPRO"] - found[rival] for found in best.values())
    note = f"median growth of the gain; median gains {short_N.median():.3f} and {long_N.median():.3f}"
    return median_exceeds((long_N - short_N).dropna(), 0.0, note)


def _steadier(table: pd.DataFrame, *, rival: str) -> Evidence:
    both = arms(table, "collapsed", {name: ARMS[LONG][name] for name in ("MinPRO", rival)}) > 0.5
    note = f"collapsed: MinPRO {both['MinPRO'].sum()}, {rival} {both[rival].sum()} of {len(both)} seeds"
    return happens_more_often(both[rival], both["MinPRO"], f"{note}; share among seeds where one did")


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield what the source says of MinPRO against each token ratio."""
    for rival in ("GRPO", "CISPO"):
        for length, found in ARMS.items():
            yield (
                f"minpro-peaks-above-{rival.lower()}-at-{length}-tokens-and-lag-256",
                f"Copying {length} tokens at lag 256, MinPRO's best accuracy is above that of {rival}, on "
                "most seeds.",
                partial(above, pair={name: found[name] for name in ("MinPRO", rival)}, outcome="best"),
            )
        yield (
            f"minpro-collapses-less-often-than-{rival.lower()}-at-48-tokens-and-lag-256",
            f"Copying 48 tokens at lag 256, MinPRO collapses on fewer seeds than {rival}.",
            partial(_steadier, rival=rival),
        )
        yield (
            f"minpro-leads-{rival.lower()}-by-more-at-48-tokens-and-lag-256",
            f"At lag 256, MinPRO's gain over {rival} in best accuracy is larger at 48 tokens than at 12, on "
            "most seeds.",
            partial(_grows, rival=rival),
        )


EXPERIMENT = Experiment(
    "long-old-data",
    question="Is MinPRO's minimum over prefixes worth more, the longer and the older the responses are?",
    source="MinPRO (2026), arXiv:2601.22718",
    differs="copying digits, a transformer of 7,000 weights, 320 steps of 32 responses; rates by arm; "
    "ratio-level has lags 16 and 64, and prefix ratios",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("task_args", "recipe", "recipe_args", "seed"),
    metrics=("accuracy", "best", "start", "area", "collapsed", "mean actor/learning_rate"),
    figure=Plot(
        "distribution",
        x="task_args: tokens of a response",
        y="best",
        arm=("recipe",),
        names={"digits=12": "12", "digits=48": "48"},
        y_label="best accuracy at lag 256",
    ),
    systems=("MinPRO (A Step Back)",),
)
declare(EXPERIMENT, claims())
