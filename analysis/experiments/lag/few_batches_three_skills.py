"""KARL's mix: one, two or four huge stale batches of OAPL against fresh GRPO on three skills at once."""

from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.experiments.lag.few_huge_batches import ENGINES, MARGIN, SOURCE
from analysis.experiments.lag.small_rates import KEYS, NAME, OLD
from analysis.lab import Evidence, Experiment, Part, Plot, Stop, arm, median_exceeds, paired
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

STEPS = 300
REFRESHES = (1, 2, 4)
PERIOD = "staleness_args.period"
LEVELS = tuple(f"val/accuracy_difficulty_{k}" for k in range(3))
FEW = {n: {PERIOD: STEPS // n, "mismatch": "off"} for n in REFRESHES}
FRESH = {"recipe": "grpo", "mismatch": "off"}


def cells() -> tuple[Run, ...]:
    """OAPL on one, two and four batches, GRPO on fresh data; the last two also with a noisy engine."""
    oapl, grpo = tuned([replace(SMALL, recipe="oapl", lag=OLD), replace(SMALL, recipe="grpo")], NAME, KEYS)
    start: dict[str, Any] = {"task": "three-skills", "task_args": (("digits", 6),), "steps": STEPS, "seed": 0}
    few = [
        replace(oapl, lag=STEPS // n // 2, staleness="periodic", staleness_args=(("period", STEPS // n),))
        for n in REFRESHES
    ]
    noisy = [
        replace(run, mismatch="layer-noise", mismatch_args=ENGINES["layer-noise"]) for run in (few[-1], grpo)
    ]
    return tuple(replace(run, **start) for run in (*few, grpo, *noisy))


EXPERIMENT = Experiment(
    "few-batches-three-skills",
    question="Do few huge batches teach OAPL a mix of skills as well as fresh data teach GRPO?",
    source=SOURCE,
    differs="sums, copies and sorting of six digits in place of search tasks; rates as tuned on sums alone",
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("recipe", PERIOD, "mismatch", "seed"),
    metrics=("accuracy", "best", "start", "area", "collapsed", *LEVELS),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution", x=f"{PERIOD}: steps per batch", y="accuracy: final accuracy",
        arm=("recipe", "mismatch"), names={"off": "own engine", "layer-noise": "noisy", "none": "fresh"},
    ),
    systems={"KARL": Part()},
)  # fmt: skip


@EXPERIMENT.claim()
def few_batches_of_oapl_keep_up_with_grpo_on_three_skills(table: pd.DataFrame) -> Evidence:
    """On three skills at equal samples OAPL on one, two and four batches each ends at most 0.05 below GRPO on
    fresh data, in the median over seeds.
    """
    gains = {f"{n} batches": paired(table, "accuracy", FEW[n], FRESH) for n in REFRESHES}
    return median_exceeds(gains, -MARGIN, "median over seeds of the gain in accuracy over GRPO, plus 0.05")


@EXPERIMENT.claim()
def a_noisy_engine_costs_oapl_less_than_grpo(table: pd.DataFrame) -> Evidence:
    """There a noisy engine costs OAPL on four batches less accuracy than GRPO, on most seeds."""
    lost = {
        name: arm(table, "accuracy", where) - arm(table, "accuracy", {**where, "mismatch": "layer-noise"})
        for name, where in (("oapl", FEW[4]), ("grpo", FRESH))
    }
    found = pd.DataFrame(lost).dropna()
    note = f"median over seeds of what GRPO loses more; medians {found.median().round(3).to_dict()}"
    return median_exceeds(found["grpo"] - found["oapl"], 0.0, note)
