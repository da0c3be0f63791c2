"""Rollouts in powers of two, the format that breaks short responses already, and the same on both sides.

Chosen because one mantissa bit more (mismatch-horizon) was seen to break nothing up to 48 tokens; on seeds of
its own.
"""

from __future__ import annotations

import pandas as pd

from analysis.experiments.engines.fp8_training import JET_RL
from analysis.experiments.engines.mismatch_horizon import (
    KEYS,
    MARGIN,
    METRICS,
    UNIFIED,
    copying,
    figure,
    lost,
    more_on_longer,
)
from analysis.lab import Evidence, Experiment, Part, Stop, median_exceeds
from testbed.config.run import Run

LENGTHS = (12, 24)
SHORT, LONG = LENGTHS[0], LENGTHS[-1]
BITS = 0


def cells() -> tuple[Run, ...]:
    """Copies of 12 and 24 digits; rollouts in full precision or powers of two; at 12 such a trainer."""
    *short, unified = copying(SHORT, BITS)
    return (*short, *copying(LONG, BITS)[:2], unified)


EXPERIMENT = Experiment(
    "mismatch-break",
    question="What do rollouts in powers of two cost a full-precision trainer, and what repairs it?",
    source=JET_RL,
    differs="a transformer of 16,000 weights copies up to 24 digits; an emulated format far below FP8",
    cells=cells,
    stop=Stop(block=16, cap=32, first=2400, fresh=3400),
    keys=KEYS,
    metrics=METRICS,
    margins={"accuracy that counts as lost": MARGIN},
    figure=figure(BITS),
    systems={"Jet-RL": Part("the format that breaks short responses already, and one precision there")},
)


def _medians(table: pd.DataFrame) -> str:
    found = ", ".join(f"{lost(table, length).median():+.3f} at {length}" for length in LENGTHS)
    return f"median accuracy lost: {found}; on both sides {lost(table, SHORT, UNIFIED).median():+.3f} at 12"


@EXPERIMENT.claim()
def powers_of_two_cost_accuracy_on_short_responses(table: pd.DataFrame) -> Evidence:
    """With responses of 12 tokens, rollouts in powers of two cost a trainer in full precision, without
    correction, more than 0.05 of final accuracy, on most seeds.
    """
    return median_exceeds(lost(table, SHORT), MARGIN, f"{_medians(table)}")


@EXPERIMENT.claim()
def powers_of_two_cost_more_on_longer_responses(table: pd.DataFrame) -> Evidence:
    """Such rollouts cost more final accuracy with responses of 24 tokens than with 12, on most seeds; base
    models are as often right at both.
    """
    return more_on_longer(table, SHORT, LONG, _medians(table))


@EXPERIMENT.claim()
def powers_of_two_on_both_sides_lose_less(table: pd.DataFrame) -> Evidence:
    """With responses of 12 tokens, powers of two on both sides end at a higher accuracy, in that format, than
    a full-precision trainer with such rollouts, on most seeds.
    """
    gain = (lost(table, SHORT) - lost(table, SHORT, UNIFIED)).dropna()
    return median_exceeds(gain, 0.0, f"median gain; {_medians(table)}")
