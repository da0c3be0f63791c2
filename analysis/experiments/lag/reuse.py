"""Four updates on every batch: who turns them into fewer rollouts?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.experiments.lag.reuse_rates import ARMS, arm_cells
from analysis.lab import Arm, Evidence, Experiment, Part, Stop, arm, arms, happens_mostly, median_stays_below
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

LEVEL = "rollouts_to 0.8"
DRIFT = "val/kl_start_k3"
HALF, THIRD = 2.0, 3.0
"""How many times fewer rollouts the sources, read modestly, would have: R2VPO 2 times, ReMix 30 and more."""


def _table_arm(name: str) -> Arm:
    recipe, args = ARMS[name]
    words = ",".join(f"{key}={value:g}" for key, value in sorted(args)) or "default"
    return {"recipe": recipe, "recipe_args": words}


def cells() -> tuple[Run, ...]:
    """The arms of `reuse-rates`, each at the rate with the largest mean accuracy along the run."""
    found = tuned(arm_cells(), "reuse-rates", ("recipe", "recipe_args"), "area")
    return tuple(replace(cell, seed=0) for cell in found)


EXPERIMENT = Experiment(
    "reuse",
    question="How many rollouts do four updates on every batch save, and does it matter how they are made?",
    source="SFPO, arXiv:2510.04072; ReMix, arXiv:2507.06892; R2VPO, arXiv:2601.03320",
    differs="a transformer of 7,000 weights, sums of 6 digits; four passes; rates from three on 2 seeds",
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("recipe", "recipe_args", "seed"),
    metrics=(
        "accuracy",
        "area",
        "collapsed",
        LEVEL,
        "rollouts_to 0.5",
        DRIFT,
        "mean actor/clip_share_last_pass",
    ),
    margins={"times fewer, R2VPO": HALF, "times fewer, ReMix": THIRD},
    figure="reuse",
    systems={
        "SFPO (Slow-Fast)": Part(
            "three fast passes and alpha 0.8 at one task; no entropy trigger, no time",
            claims=("sfpo-saves-rollouts", "sfpo-saves-rollouts-over-plain-reuse", "sfpo-drifts-less"),
        ),
        "R²VPO": Part(
            "four passes on fresh data; budget and dual step are ours",
            claims=("r2vpo-halves-the-rollouts", "r2vpo-saves-rollouts-over-plain-reuse"),
        ),
        "ReMix (Squeeze the Soaked Sponge)": Part(
            "rollouts to accuracy 0.8 with four passes; its law of ages is not stated",
            claims=("remix-needs-a-third-of-the-rollouts",),
        ),
    },
)


def _saves(table: pd.DataFrame, rivals: tuple[str, str], times: float) -> Evidence:
    """Return the evidence that an arm needs fewer rollouts than a rival's / times on most seeds.

    A run that never has the accuracy needs infinitely many; two of them are no saving.
    """
    name, rival = rivals
    need = {each: arm(table, LEVEL, _table_arm(each)).fillna(np.inf) for each in (name, rival)}
    both = pd.DataFrame(need).dropna()
    event = both[name] * times < both[rival]
    ratio = (both[rival] / both[name]).replace([np.inf, -np.inf], np.nan).median()
    never = {each: int(np.isinf(both[each]).sum()) for each in both}
    note = (
        f"share of seeds with less than 1/{times:g} of the rollouts of {rival}; median quotient "
        f"{ratio:.2f}; never at 0.8: {name} {never[name]}, {rival} {never[rival]} of {len(both)}"
    )
    return happens_mostly(event, note)


@EXPERIMENT.claim(source="SFPO, arXiv:2510.04072: the pull back limits drift")
def sfpo_drifts_less(table: pd.DataFrame) -> Evidence:
    """SFPO ends at a smaller KL from the base model than GRPO with as many passes, on most seeds."""
    found = arms(table, DRIFT, {name: _table_arm(name) for name in ("SFPO", "GRPO x4")})
    middle = found.median()
    note = f"nats per token less in the median; medians {middle['SFPO']:.3f} and {middle['GRPO x4']:.3f}"
    return median_stays_below(found["SFPO"] - found["GRPO x4"], 0.0, note)


REMIX, R2VPO, SFPO = "ReMix, arXiv:2507.06892", "R2VPO, arXiv:2601.03320", "SFPO, arXiv:2510.04072"
for _name, _rivals, _times, _source, _statement in (
    (
        "sfpo-saves-rollouts",
        ("SFPO", "GRPO"),
        1.0,
        f"{SFPO}: up to 4.93 times fewer",
        "SFPO has accuracy 0.8 after fewer rollouts than GRPO with one pass, on most seeds.",
    ),
    (
        "sfpo-saves-rollouts-over-plain-reuse",
        ("SFPO", "GRPO x4"),
        1.0,
        f"{SFPO}: the pull back is what stabilizes reuse",
        "SFPO has accuracy 0.8 after fewer rollouts than GRPO with as many passes, on most seeds.",
    ),
    (
        "r2vpo-halves-the-rollouts",
        ("R2VPO x4", "GRPO"),
        HALF,
        f"{R2VPO}: about half the rollouts",
        "R2VPO with four passes has accuracy 0.8 after under half of GRPO's rollouts, on most seeds.",
    ),
    (
        "r2vpo-saves-rollouts-over-plain-reuse",
        ("R2VPO x4", "GRPO x4"),
        1.0,
        R2VPO,
        "R2VPO has accuracy 0.8 after fewer rollouts than GRPO, both with four passes, on most seeds.",
    ),
    (
        "remix-needs-a-third-of-the-rollouts",
        ("ReMix x4", "GRPO"),
        THIRD,
        f"{REMIX}: 30 to 450 times fewer",
        "ReMix with four passes has accuracy 0.8 in under a third of GRPO's rollouts, on most seeds.",
    ),
):
    EXPERIMENT.claim(_name, source=_source, statement=_statement)(
        partial(_saves, rivals=_rivals, times=_times)
    )
