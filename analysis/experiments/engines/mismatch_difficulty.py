"""Rollouts in powers of two, by how hard the task is for the base model, and the same on both sides."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.experiments.engines.fp8_training import JET_RL
from analysis.experiments.engines.mismatch_break import BITS, SHORT
from analysis.experiments.engines.mismatch_horizon import (
    KEYS,
    MARGIN,
    METRICS,
    UNIFIED,
    copying,
    figure,
    lost,
)
from analysis.lab import Evidence, Experiment, Part, Stop, median_exceeds
from testbed.config.run import Run

NOISE, NOISES = "teacher_noise", (0.05, 0.125, 0.25)
"""Errors per token of the base model's teacher: a half, a fifth, a thirtieth of its responses are right."""
EASY, _, HARD = NOISES


def cells() -> tuple[Run, ...]:
    """Copies of 12 digits at three difficulties; rollouts in powers of two, or both sides, or neither."""
    return tuple(replace(run, teacher_noise=noise) for noise in NOISES for run in copying(SHORT, BITS))


EXPERIMENT = Experiment(
    "mismatch-difficulty",
    question="Do rollouts in powers of two cost a full-precision trainer more on a harder task?",
    source=JET_RL,
    differs="a transformer of 14,000 weights copies 12 digits; difficulty is the base model's success",
    cells=cells,
    stop=Stop(block=16, cap=32, first=2600, fresh=3600),
    keys=(NOISE, *KEYS[1:]),
    metrics=METRICS,
    margins={"accuracy that counts as lost": MARGIN},
    figure=figure(BITS, f"{NOISE}: errors per token of the base model's teacher"),
    systems={"Jet-RL": Part("difficulty: base success of a half to a thirtieth, at 12 tokens")},
)


def _medians(table: pd.DataFrame, name: str, words: str) -> str:
    found = ", ".join(f"{lost(table, at, name, NOISE).median():+.3f}" for at in NOISES)
    return f"median accuracy lost {words}, easy to hard: {found}"


@EXPERIMENT.claim()
def powers_of_two_cost_more_on_a_harder_task(table: pd.DataFrame) -> Evidence:
    """Rollouts in powers of two, without correction, cost a full-precision trainer more final accuracy where
    a thirtieth of the base model's responses are right than where half are, on most seeds.
    """
    more = (lost(table, HARD, by=NOISE) - lost(table, EASY, by=NOISE)).dropna()
    return median_exceeds(more, 0.0, f"median difference; {_medians(table, 'mismatch', 'by rollouts')}")


@EXPERIMENT.claim()
def powers_of_two_cost_accuracy_on_a_hard_task(table: pd.DataFrame) -> Evidence:
    """Where a thirtieth of the base model's responses are right, they cost more than 0.05 of final accuracy,
    on most seeds.
    """
    note = f"median loss; {_medians(table, 'mismatch', 'by rollouts')}"
    return median_exceeds(lost(table, HARD, by=NOISE), MARGIN, note)


@EXPERIMENT.claim()
def powers_of_two_on_both_sides_lose_less_on_a_hard_task(table: pd.DataFrame) -> Evidence:
    """There powers of two on both sides end at a higher accuracy, in that format, than a full-precision
    trainer with such rollouts, on most seeds.
    """
    gain = (lost(table, HARD, by=NOISE) - lost(table, HARD, UNIFIED, NOISE)).dropna()
    return median_exceeds(gain, 0.0, f"median gain; {_medians(table, UNIFIED, 'with both sides')}")
