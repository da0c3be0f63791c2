"""CTPO against GRPO and GSPO: copying 48 tokens at lag 64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from analysis.experiments.lag.window_and_sync_rates import KEYS, NAME, WINDOWS, window_cells
from analysis.lab import Check, Experiment, Plot, Stop, above, declare, named
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

WORDS = {
    "accuracy": ("ends-above", "ends with a higher accuracy than"),
    "best": ("peaks-above", "has a higher best accuracy than"),
}
"""Outcome -> what a claim's name and its sentence say of who has more of it."""


def cells() -> tuple[Run, ...]:
    """CTPO, GRPO and GSPO, each at its own rate."""
    return tuned([run for run in window_cells() if not run.recipe_args], NAME, KEYS)


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield that CTPO is above its rivals in both outcomes."""
    found = named(WINDOWS)
    for outcome, (slug, says) in WORDS.items():
        for rival in ("GRPO", "GSPO"):
            yield (
                f"ctpo-{slug}-{rival.lower()}-at-48-tokens",
                f"Copying 48 tokens at lag 64, CTPO {says} {rival}, on most seeds.",
                partial(above, pair={"CTPO": found["CTPO"], rival: found[rival]}, outcome=outcome),
            )


EXPERIMENT = Experiment(
    "long-windows",
    question="Do prefix ratios in a window that widens with the position learn more from old responses?",
    source="CTPO (2026), arXiv:2605.07331",
    differs="copying 48 digits, a transformer of 7,000 weights, 240 steps of 32 responses; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("recipe", "recipe_args", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed"),
        *("mean actor/clip_share", "mean actor/learning_rate"),
    ),
    figure=Plot(
        "distribution",
        x="recipe",
        y="accuracy",
        y_label="final accuracy, 48 tokens, lag 64",
    ),
    systems=("CTPO (cumulative token)",),
)
declare(EXPERIMENT, claims())
