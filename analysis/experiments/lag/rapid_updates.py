"""RAPID: N batches generated at once and used one after the other, with and without importance weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.claims import Evidence
from analysis.comparisons import Arm, arms, at_floor
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.lag.shared_rates import KEYS, NAME, UPDATES, rapid_cells
from analysis.lab_rates import tuned
from analysis.plot import Plot
from analysis.sequential import median_exceeds, median_within
from testbed.config.run import Run

RAPID = "RAPID (2025), arXiv:2510.03515"
MARGIN = 0.02
"""Accuracy. Set before the sweep was run."""
MOST = UPDATES[-1]
ARMS: dict[str, Arm] = {
    "synchronous": {"recipe": "reinforce", "staleness_args": "default"},
    **{f"N = {n}": {"recipe": "rapid", "staleness_args": f"period={n}"} for n in UPDATES},
    "without weights": {"recipe": "reinforce", "staleness_args": f"period={MOST}"},
}


def cells() -> tuple[Run, ...]:
    """On-policy REINFORCE, RAPID at N = 2, 4 and 8, REINFORCE at N = 8, each at its best rate."""
    return tuple(replace(cell, seed=0) for cell in tuned(rapid_cells(), NAME, KEYS))


EXPERIMENT = Experiment(
    "rapid-updates",
    question="How many updates can one generation serve, and are importance weights what allows it?",
    source=RAPID,
    differs="a transformer of 7,000 weights, sums of 6 digits; 400 updates in every arm; rates from three",
    cells=cells,
    stop=Stop(block=16, cap=16),
    keys=("recipe", "staleness_args", "seed"),
    metrics=("accuracy", "area", "collapsed", "rollouts_to 0.8", "min rollout_corr/ess_kish_sequence_raw"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution",
        x="staleness_args",
        y="accuracy",
        arm=("recipe",),
        x_label="updates per generation",
        y_label="final accuracy",
    ),
    systems={"RAPID": Part("accuracy at N updates per generation; time: see pipeline")},
)


def _as_good(table: pd.DataFrame, name: str) -> Evidence:
    """Return the equivalence evidence of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = (
        f"{MARGIN:g} less the median change in final accuracy; medians {middle[name]:.3f}, "
        f"{middle['synchronous']:.3f} synchronous"
    )
    floored = [name] if at_floor([found[name], found["synchronous"]], MARGIN) else []
    return median_within({name: found[name] - found["synchronous"]}, MARGIN, note, floored)


for _n in UPDATES:
    EXPERIMENT.claim(
        f"rapid-with-{_n}-updates-is-as-good-as-synchronous",
        source=f"{RAPID}: equal or better accuracy",
        statement=(
            f"With {_n} updates per generation RAPID ends within 0.02 of on-policy REINFORCE's accuracy "
            "after as many updates, in the median over seeds."
        ),
    )(partial(_as_good, name=f"N = {_n}"))


@EXPERIMENT.claim(
    "rapids-weights-raise-accuracy-at-8-updates",
    source=f"{RAPID}: importance weights make several updates per generation possible",
    statement=(
        "With 8 updates per generation RAPID ends at a higher accuracy than without its importance weights, "
        "on most seeds."
    ),
)
def weights_help(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = f"median gain; medians {middle[f'N = {MOST}']:.3f}, {middle['without weights']:.3f} without"
    return median_exceeds(found[f"N = {MOST}"] - found["without weights"], 0.0, note)
