"""Rollouts in powers of two, the format that breaks short responses already, and the same on both sides.

Chosen because one mantissa bit more (mismatch-horizon) was seen to break nothing up to 48 tokens; on seeds of
its own.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.claims import Evidence
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.engines.fp8_training import FP8, JET_RL
from analysis.experiments.engines.mismatch_horizon import COPYING, ERRORS, MARGIN, SHAPE, UNIFIED, lost, names
from analysis.plot import Plot
from analysis.sequential import median_exceeds
from testbed.config.run import Run

LENGTHS = (12, 24)
SHORT, LONG = LENGTHS[0], LENGTHS[-1]
PRECISION = f"{FP8} matrices=all mantissa=0"


def cells() -> tuple[Run, ...]:
    """Copies of 12 and 24 digits; rollouts in full precision or powers of two; at 12 such a trainer."""
    found: list[Run] = []
    for length in LENGTHS:
        run = replace(COPYING, task_args=(("digits", length),), teacher_noise=ERRORS / length, seed=0)
        found += [run, replace(run, mismatch=FP8, mismatch_args=(("matrices", "all"), ("mantissa", 0)))]
    short = replace(COPYING, task_args=(("digits", SHORT),), teacher_noise=ERRORS / SHORT, seed=0)
    return (*found, replace(short, policy_args=(*SHAPE, ("precision", PRECISION))))


EXPERIMENT = Experiment(
    "mismatch-break",
    question="What do rollouts in powers of two cost a full-precision trainer, and what repairs it?",
    source=JET_RL,
    differs="a transformer of 16,000 weights copies up to 24 digits; an emulated format far below FP8",
    cells=cells,
    stop=Stop(block=16, cap=32, first=2400, fresh=3400),
    keys=("task_args.digits", "mismatch", "policy_args", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed"),
        *("mean rollout_corr/ess_kish_sequence_raw", "mean rollout_corr/kl_mu_pi_k3"),
    ),
    margins={"accuracy that counts as lost": MARGIN},
    figure=Plot(
        "final by dial",
        x="task_args.digits: tokens of a response",
        y="accuracy: final accuracy",
        arm=("mismatch: rollouts μ", "policy_args: trainer π"),
        names=names(PRECISION),
    ),
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
    return median_exceeds(lost(table, SHORT), MARGIN, f"{_medians(table)}; less {MARGIN:g}")


@EXPERIMENT.claim()
def powers_of_two_cost_more_on_longer_responses(table: pd.DataFrame) -> Evidence:
    """Such rollouts cost more final accuracy with responses of 24 tokens than with 12, on most seeds; base
    models are as often right at both.
    """
    more = (lost(table, LONG) - lost(table, SHORT)).dropna()
    return median_exceeds(more, 0.0, f"median of what 24 tokens lose more than 12; {_medians(table)}")


@EXPERIMENT.claim()
def powers_of_two_on_both_sides_lose_less(table: pd.DataFrame) -> Evidence:
    """With responses of 12 tokens, powers of two on both sides end at a higher accuracy, in that format, than
    a full-precision trainer with such rollouts, on most seeds.
    """
    gain = (lost(table, SHORT) - lost(table, SHORT, UNIFIED)).dropna()
    return median_exceeds(gain, 0.0, f"median gain; {_medians(table)}")
