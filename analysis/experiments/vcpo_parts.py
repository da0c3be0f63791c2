"""VCPO's two parts, the step size by ESS and the off-policy baseline: which of them keeps old data safe?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.claims import Evidence
from analysis.comparisons import Arm, arms, at_floor
from analysis.experiment import Experiment, Part, Stop
from analysis.plot import Plot
from analysis.sequential import happens_more_often, median_exceeds, median_within
from analysis.starting_runs import LAB
from testbed.config.run import Run

SOURCE = "VCPO (2026), arXiv:2602.17616"
OLD = 128
MARGIN = 0.05
"""Accuracy. Set before the sweep was run."""
RULE, BASELINE = "recipe_args.ess_reference", "recipe_args.baseline"
ARMS: dict[str, Arm] = {
    "neither": {RULE: 0, BASELINE: "group_std", "lag": OLD},
    "step rule": {RULE: 1, BASELINE: "group_std", "lag": OLD},
    "baseline": {RULE: 0, BASELINE: "proxy", "lag": OLD},
    "both": {RULE: 1, BASELINE: "proxy", "lag": OLD},
    "on-policy": {RULE: 1, BASELINE: "proxy", "lag": 0},
}


def cells() -> tuple[Run, ...]:
    """Truncated sequence weights at lag 128, with step rule and baseline or without, and both on-policy."""
    base = replace(LAB, recipe="vcpo", learning_rate=3e-3)
    return tuple(
        replace(
            base,
            lag=int(arm["lag"]),
            recipe_args=(("ess_reference", float(arm[RULE])), ("baseline", str(arm[BASELINE]))),
        )
        for arm in ARMS.values()
    )


EXPERIMENT = Experiment(
    "vcpo-parts",
    question="Which of VCPO's two parts makes data safe that are 128 steps old, at the on-policy rate?",
    source=SOURCE,
    differs="running sums; the authors' logit proxy in the baseline; the rate is the best of three on-policy",
    cells=cells,
    stop=Stop(cap=24),
    keys=(RULE, BASELINE, "lag", "seed"),
    metrics=(
        *("accuracy", "best", "start", "collapsed", "collapse_step", "mean actor/learning_rate"),
        *("min rollout_corr/ess_kish_sequence_raw", "val/entropy"),
    ),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "final by dial",
        x="lag",
        y="accuracy",
        arm=(RULE, BASELINE),
        x_label="lag (optimizer steps)",
        y_label="final accuracy",
    ),
    systems={"VCPO (Stable Asynchrony)": Part("its two parts at lag 128; not the speed")},
)


@EXPERIMENT.claim(
    "vcpo-at-lag-128-is-as-good-as-on-policy",
    statement="With both parts VCPO ends within 0.05 of its on-policy accuracy at lag 128, in the median.",
)
def holds(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = (
        f"{MARGIN:g} less the median change in final accuracy; medians {middle['both']:.3f} at lag {OLD}, "
        f"{middle['on-policy']:.3f} on-policy"
    )
    floored = ["both"] if at_floor([found["both"], found["on-policy"]], MARGIN) else []
    return median_within({"both": found["both"] - found["on-policy"]}, MARGIN, note, floored)


@EXPERIMENT.claim(
    "vcpo-collapses-less-than-its-weights-alone",
    statement="At lag 128 truncated weights collapse on more seeds without VCPO's two parts than with both.",
)
def collapses_less(table: pd.DataFrame) -> Evidence:
    """Return the evidence of pairs of seeds."""
    lost = arms(table, "collapsed", ARMS)
    counts = ", ".join(f"{name} {int((lost[name] > 0.5).sum())}" for name in ARMS)
    return happens_more_often(lost["neither"], lost["both"], f"collapsed of {len(lost)} seeds: {counts}")


@EXPERIMENT.claim(
    "vcpos-step-rule-raises-accuracy",
    statement="At lag 128 VCPO's step rule alone ends at a higher accuracy than neither part, on most seeds.",
)
def rule_helps(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    return _gains(table, "step rule")


@EXPERIMENT.claim(
    "vcpos-baseline-raises-accuracy",
    statement="At lag 128 VCPO's baseline alone ends at a higher accuracy than neither part, on most seeds.",
)
def baseline_helps(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    return _gains(table, "baseline")


def _gains(table: pd.DataFrame, name: str) -> Evidence:
    found = arms(table, "accuracy", ARMS)
    medians = ", ".join(f"{each} {value:.3f}" for each, value in found.median().items())
    return median_exceeds(found[name] - found["neither"], 0.0, f"median gain; medians {medians}")
