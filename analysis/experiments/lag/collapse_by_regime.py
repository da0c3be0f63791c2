"""Four regimes of a weight in training, where answers may be of any length: which collapses, and how?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.experiments.lag.class_rates import REGIMES, regime_cells
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
    happens_mostly,
    named,
)
from testbed.config.run import Run

RATE = 3e-3
"""At which on two tuning seeds one regime lost nearly all, and the others little."""
LOST, STUCK, GONE = 0.2, 0.2, 2.0
"""Accuracy lost that is collapse; nats per token of repetition; tokens under which no answer is left."""
ENTROPY, LENGTH = "val/entropy", "val/response_length"
WORDS = {
    "right, above 1": "ratios above 1 of right answers",
    "right, below 1": "ratios below 1 of right answers",
    "wrong, above 1": "ratios above 1 of wrong answers",
    "wrong, below 1": "ratios below 1 of wrong answers",
}
ARMS: dict[str, Arm] = named(
    {name: ("dispo", run.recipe_args) for name, run in zip(REGIMES, regime_cells(), strict=True)}
)


def cells() -> tuple[Run, ...]:
    """DISPO at lag 64 with every ratio cut to 1, and with the ratios of one regime let through."""
    return tuple(replace(run, learning_rate=RATE) for run in regime_cells())


def _ends(table: pd.DataFrame, *, regime: str, repeats: bool) -> Evidence:
    """Return the evidence that a regime ends in repetition, or in answers of one token, on most seeds."""
    found = {name: arms(table, name, {regime: ARMS[regime]})[regime] for name in (ENTROPY, LENGTH)}
    gone_N = found[LENGTH] < GONE
    stuck_N = (found[ENTROPY] < STUCK) & ~gone_N
    note = f"share of seeds; {int(stuck_N.sum())} repeat, {int(gone_N.sum())} are gone of {len(gone_N)}"
    return happens_mostly(stuck_N if repeats else gone_N, note)


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield what the source says of each regime: entropy of right answers, collapse, and into what."""
    none = {"every ratio 1": ARMS["none"]}
    for regime, words in WORDS.items():
        slug, start = words.replace(" ", "-"), f"With {words} let through, and all others 1,"
        here = {regime: ARMS[regime]}
        if regime.startswith("right"):
            keep = regime.endswith("above 1")
            yield (
                f"{slug}-{'keep' if keep else 'lose'}-entropy",
                f"{start} the entropy ends {'above' if keep else 'below'} that with all 1, on most seeds.",
                partial(above, pair=here | none if keep else none | here, outcome=ENTROPY),
            )
        yield (
            f"{slug}-end-in-collapse",
            f"{start} accuracy ends over 0.2 below that with all 1, on most seeds.",
            partial(above, pair=none | here, margin=LOST),
        )
        yield (
            f"{slug}-end-in-repetition",
            f"{start} answers end long, at under 0.2 nats a token, on most seeds.",
            partial(_ends, regime=regime, repeats=True),
        )
        yield (
            f"{slug}-end-in-nothing",
            f"{start} answers end at under 2 tokens in the mean, on most seeds.",
            partial(_ends, regime=regime, repeats=False),
        )


EXPERIMENT = Experiment(
    "collapse-by-regime",
    question="Which of the four regimes of a weight collapses in training, and into what?",
    source="DISPO (2026), arXiv:2602.00983",
    differs="one right token and then any filler, which earns nothing; width 16, lag 64, 300 steps",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("recipe", "recipe_args", "seed"),
    metrics=("accuracy", "best", "collapsed", "length_collapsed", "entropy_collapsed", ENTROPY, LENGTH),
    margins={"accuracy lost": LOST, "nats per token of repetition": STUCK, "tokens of nothing": GONE},
    figure=Plot(
        "strips",
        x=ENTROPY,
        y="recipe_args",
        names={str(arm["recipe_args"]): name for name, arm in ARMS.items()},
        x_label="entropy at the end (nats per token)",
        y_label="ratios that count",
    ),
    systems=("DISPO",),
)
declare(EXPERIMENT, claims())
