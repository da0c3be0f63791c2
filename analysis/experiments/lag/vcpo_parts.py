"""VCPO's two parts, the step size by ESS and the off-policy baseline: which one makes old data safe?"""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.judging.replication import Frame
from analysis.lab import (
    Arm,
    Evidence,
    Experiment,
    Part,
    Plot,
    Stop,
    Tuned,
    arms,
    at_floor,
    happens_more_often,
    median_within,
)
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run

SOURCE = "VCPO (2026), arXiv:2602.17616"
MARGIN = 0.05
OLD = 128
VCPO_ARMS = {
    "neither": (0, "group_std", OLD),
    "step rule": (1, "group_std", OLD),
    "baseline": (0, "proxy", OLD),
    "both": (1, "proxy", OLD),
    "on-policy": (1, "proxy", 0),
}
"""ESS share that counts as on-policy (0: no step rule), baseline and lag of each arm."""
RULE, BASELINE = "recipe_args.ess_reference", "recipe_args.baseline"


def cells() -> tuple[Run, ...]:
    """Truncated weights at lag 128 with and without each part, both on-policy; tuned and common rates."""
    return tuple(
        replace(SMALL, recipe="vcpo", lag=lag, recipe_args=(("baseline", baseline), ("ess_reference", rule)))
        for rule, baseline, lag in VCPO_ARMS.values()
    )


def _arms(rate: str) -> dict[str, Arm]:
    """Return the arms at their "own" best rates, or at the "common" one, which is best on-policy."""
    assert EXPERIMENT.cells is not None
    own = EXPERIMENT.cells()[: len(VCPO_ARMS)]
    return {
        name: {RULE: rule, BASELINE: baseline, "lag": lag, "learning_rate": cell.learning_rate}
        for (name, (rule, baseline, lag)), cell in zip(
            VCPO_ARMS.items(), own if rate == "own" else own[-1:] * len(own), strict=True
        )
    }


EXPERIMENT = Experiment(
    question="Which of VCPO's two parts makes data safe that are 128 steps old?",
    source=SOURCE,
    differs="a transformer of 7,000 weights; the authors' logit proxy in the baseline; rates from three",
    cells=cells, tuned=Tuned(all_at=-1), stop=Stop(block=16, cap=32, begun_with=16),
    keys=(RULE, BASELINE, "lag", "learning_rate", "seed"),
    metrics=(
        *("accuracy", "best", "start", "collapsed", "mean actor/learning_rate"),
        *("min rollout_corr/ess_kish_sequence_raw", "val/entropy"),
    ),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution", x=f"{BASELINE}: baseline", y="accuracy: final accuracy",
        arm=(f"{RULE}: ", "learning_rate: "), where={"lag": OLD},
        names={
            "0": "no step rule",
            "1": "step rule",
            "0.001": "rate 0.001",
            "0.003": "rate 0.003",
            "group_std": "the group's",
            "proxy": "VCPO's",
        },
        says="Shows final accuracy of a transformer of 7,000 weights on sums of six digits, on data 128 "
        "steps old, with truncated sequence weights; the baseline is the group's mean or VCPO's off-policy "
        "one, computed from logits instead of gradients; the step rule scales the named learning rate down "
        "with the effective sample size.",
    ),
    systems={
        "VCPO (Stable Asynchrony)": Part(
            "its two parts at lag 128, where the arm with neither part ends within .04 of on-policy at a "
            "third of the rate; for ESS as a warning see ess-warns; time is not measured"
        )
    },
)  # fmt: skip


def _two(table: Frame, outcome: str, rate: str, *names: str) -> Frame:
    """Return an outcome of only these arms, so that gates see the compared ones; a row per seed."""
    return arms(table, outcome, {name: _arms(rate)[name] for name in names})


@EXPERIMENT.claim("vcpo-at-lag-128-is-as-good-as-on-policy")
def vcpo_at_lag_128_is_as_good_as_on_policy(table: Frame) -> Evidence:
    """With both parts VCPO, tuned, ends within 0.05 of its on-policy accuracy at lag 128, in the median."""
    # A function and not a column: the rows of an arm are known only once its rate is read from the tuning
    # table.
    found = _two(table, "accuracy", "own", "both", "on-policy")
    floored = ["both"] if at_floor([found["both"], found["on-policy"]], MARGIN) else []
    change = {"both": found["both"] - found["on-policy"]}
    return median_within(change, MARGIN, "median change in final accuracy", floored)


@EXPERIMENT.claim("vcpo-collapses-less-than-its-weights-alone")
def vcpo_collapses_less_than_its_weights_alone(table: Frame) -> Evidence:
    """At lag 128 and the rate that is best on-policy, truncated weights collapse on more seeds without VCPO's
    two parts than with both.
    """
    # As above.
    lost = _two(table, "collapsed", "common", "neither", "both")
    return happens_more_often(lost["neither"], lost["both"], "share of discordant seeds lost without both")


def gain(table: Frame, name: str) -> pd.Series:
    """Return the final accuracy of an arm minus that of the arm without both parts, by seed."""
    found = _two(table, "accuracy", "common", name, "neither")
    return found[name] - found["neither"]


for _name, _part in (
    ("vcpos-step-rule-raises-accuracy-at-common-rates", "step rule"),
    ("vcpos-baseline-raises-accuracy-at-common-rates", "baseline"),
    ("vcpos-both-raises-accuracy-at-common-rates", "both"),
):
    _what = "two parts together end" if _part == "both" else f"{_part} alone ends"
    EXPERIMENT.claim(
        _name,
        f"At lag 128 VCPO's {_what} at a higher accuracy than neither part, all at the rate best on-policy, "
        "on most seeds.",
    ).compare(partial(gain, name=_part))
