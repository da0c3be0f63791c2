"""Rollouts in a format coarser than FP8, by how often the base model is right."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.claims import Evidence
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.engines.fp8_training import FP8, JET_RL
from analysis.experiments.engines.mismatch_horizon import (
    COARSE,
    COPYING,
    FULL,
    MISMATCH,
    NAMES,
    PRECISION,
    SHAPE,
    UNIFIED,
    by_arm,
)
from analysis.plot import Plot
from analysis.sequential import median_exceeds
from testbed.config.run import Run

LENGTH = 48
EASY, HARD = 0.5 / LENGTH, 3.0 / LENGTH
"""Noise of the base model's teacher: it is right on six answers of ten, or on one of twenty."""


def cells() -> tuple[Run, ...]:
    """Copies of 48 digits from two base models; rollouts in full or coarse format; coarse on both sides."""
    found = []
    for noise in (EASY, HARD):
        run = replace(COPYING, task_args=(("digits", LENGTH),), teacher_noise=noise, seed=0)
        one = replace(run, policy_args=(*SHAPE, ("precision", PRECISION)))
        found += [run, replace(run, mismatch=FP8, mismatch_args=COARSE), one]
    return tuple(found)


EXPERIMENT = Experiment(
    "mismatch-difficulty",
    question="Do coarse rollouts cost a trainer in full precision more where answers are seldom right?",
    source=JET_RL,
    differs="a transformer of 16,000 weights copies 48 digits; a weaker base model in place of a harder task",
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("teacher_noise", "mismatch", "policy_args", "seed"),
    metrics=("accuracy", "best", "start", "area", "collapsed"),
    figure=Plot(
        "final by dial",
        x="teacher_noise: chance of an error per token of the base model's teacher",
        y="accuracy: final accuracy",
        arm=("mismatch", "policy_args"),
        names=NAMES,
    ),
    systems={"Jet-RL": Part("that mismatch costs more on challenging tasks; no GPU")},
)


def _lost(table: pd.DataFrame, noise: float, name: str = MISMATCH) -> pd.Series:
    """Return the final accuracy that an arm lacks against full precision, by seed."""
    found = by_arm(table[(table["teacher_noise"] - noise).abs() < 1e-3], "accuracy")
    return found[FULL] - found[name]


def _medians(table: pd.DataFrame, name: str = MISMATCH) -> str:
    easy, hard = (_lost(table, noise, name).median() for noise in (EASY, HARD))
    return f"median accuracy lost by {name} precision: {easy:+.3f} easy, {hard:+.3f} hard"


@EXPERIMENT.claim()
def coarse_rollouts_lose_more_on_hard_tasks(table: pd.DataFrame) -> Evidence:
    """At 48 tokens, rollouts with 1 mantissa bit cost a trainer in full precision more final accuracy where
    the base model is right on 5 % of all answers than where it is on 60 %, on most seeds.
    """
    more = (_lost(table, HARD) - _lost(table, EASY)).dropna()
    return median_exceeds(more, 0.0, f"median of what the hard task loses more; {_medians(table)}")


@EXPERIMENT.claim()
def one_coarse_precision_loses_less_on_hard_tasks(table: pd.DataFrame) -> Evidence:
    """On the hard one the same coarse format on both sides ends at a higher accuracy, in that format, than a
    full-precision trainer with such rollouts, on most seeds.
    """
    gain = (_lost(table, HARD) - _lost(table, HARD, UNIFIED)).dropna()
    return median_exceeds(gain, 0.0, f"median gain; {_medians(table)}; {_medians(table, UNIFIED)}")
