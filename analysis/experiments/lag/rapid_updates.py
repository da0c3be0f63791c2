"""RAPID: N batches are generated at once and used one after the other, with or without importance weights."""

import math
from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.arena.tasks import task
from analysis.lab import Arm, Experiment, Frame, Plot, Stop, Tuned, arm, ask
from analysis.tables.wall_clock import log_speed_up
from testbed.config.run import Run

RAPID = "RAPID (2025), arXiv:2510.03515"
MARGIN = 0.02
"""Accuracy. Set before the sweep was run."""
SAVED = 0.11
"""Share of simulated time saved: the lower end of the source's range (11 to 34 %)."""
LEVEL = "steps_to 0.5"
"""Accuracy at which the time is read."""
UPDATES = (2, 4, 8)
MOST = UPDATES[-1]
ARMS: dict[str, Arm] = {
    "synchronous": {"recipe": "reinforce", "staleness_args": "default"},
    **{f"N = {n}": {"recipe": "rapid", "staleness_args": f"period={n}"} for n in UPDATES},
    "without weights": {"recipe": "reinforce", "staleness_args": f"period={MOST}"},
}


def cells() -> tuple[Run, ...]:
    """On-policy REINFORCE, RAPID at N = 2, 4 and 8, and REINFORCE at N = 8, each at its best rate."""
    base = replace(task("sorted"), log_every=10)
    several = [
        replace(base, staleness="periodic", staleness_args=(("period", n),), lag=n // 2) for n in UPDATES
    ]
    return (
        replace(base, recipe="reinforce"),
        *(replace(run, recipe="rapid") for run in several),
        replace(several[-1], recipe="reinforce"),
    )


def drawn(run: Run) -> bool:
    """Return whether to run a seed: all arms share some, and arms of undecided claims have more."""
    open_ = run.staleness == "exact" or run.staleness_args == (("period", 4),)
    return open_ or run.seed in range(200, 232) or run.seed in range(2000, 2016)


EXPERIMENT = Experiment(
    question="How many updates can one generation serve, and are importance weights what allows it?",
    source=RAPID,
    differs="a transformer of 7,000 weights that sorts ten digits; 300 updates in every arm; best of four "
    "rates; seconds from a pipeline's closed form, in which generation takes nine tenths of a synchronous "
    "step",
    cells=cells, tuned=Tuned(rates=(3e-4, 1e-3, 3e-3, 1e-2), pilots=8), drawn=drawn,
    stop=Stop(block=16, cap=192, begun_with=32, first=200, fresh=2000),
    keys=("recipe", "staleness_args", "seed"),
    metrics=("accuracy", "collapsed", LEVEL, "rise accuracy", "min rollout_corr/ess_kish_sequence_raw"),
    margins={"accuracy that counts as equal": MARGIN, "share of simulated time": SAVED},
    figure=Plot(
        "distribution", x="staleness_args", y="accuracy", arm=("recipe",),
        names={"default": "1", **{f"period={n}": str(n) for n in UPDATES}},
        x_label="updates per generation", y_label="final accuracy",
        says="Shows final accuracy of a transformer of 7,000 weights that sorts ten digits, after 300 "
        "updates, by the number of batches generated at once and then used one after the other; RAPID "
        "weights older data by truncated sequence ratios; REINFORCE has no weights and is on-policy at 1; "
        "each arm has its best rate.",
    ),
    systems={"RAPID": "time by a closed form; rates in steps of three"},
)  # fmt: skip


for _name, _n in (
    ("rapid-with-2-updates-is-as-good-as-synchronous", 2),
    ("rapid-with-4-updates-is-as-good-as-synchronous", 4),
    ("rapid-with-8-updates-is-as-good-as-synchronous", 8),
):
    EXPERIMENT.claim(
        _name,
        f"With {_n} updates per generation RAPID ends within 0.02 of on-policy REINFORCE's accuracy after as "
        "many updates, in the median over seeds.",
        source=f"{RAPID}: equal or better accuracy",
    ).equal("accuracy", ARMS[f"N = {_n}"], ARMS["synchronous"], within=MARGIN)


def log_saved(table: Frame, updates: int) -> pd.Series:
    """Return the log speed-up in simulated time until an accuracy of 0.5, by seed."""
    from analysis.experiments.pipelines.pipeline_replications import BARRIER, base
    from testbed.pipeline import closed_forms

    one = base(**BARRIER, tau_1=1e-3, pools="colocated", batch=64, slots=64)
    period = closed_forms.synchronous_period(one)
    ratio = period / (period - closed_forms.rapid_saving(one, updates))
    slow, fast = (arm(table, LEVEL, ARMS[name]) for name in ("synchronous", f"N = {updates}"))
    # Arms of claims that were decided early have fewer seeds.
    return log_speed_up(slow[fast.index], fast, cells()[0].steps, ratio)


for _name, _n in (
    ("rapid-with-2-updates-saves-time", 2),
    ("rapid-with-4-updates-saves-time", 4),
    ("rapid-with-8-updates-saves-time", 8),
):
    ask(EXPERIMENT, _name, f"By the clock of a pipeline with stragglers, RAPID with {_n} updates per "
        "generation has an accuracy of 0.5 in at least 11 % less time than on-policy REINFORCE, on most "
        "seeds.", by=-math.log(1 - SAVED), outcome=partial(log_saved, updates=_n),
        source=f"{RAPID}: run time less by 11 to 34 %")  # fmt: skip

ask(EXPERIMENT, "rapids-weights-raise-accuracy-at-8-updates", "With 8 updates per generation RAPID ends at a "
    "higher accuracy than without its importance weights, on most seeds.", ARMS[f"N = {MOST}"],
    ARMS["without weights"],
    source=f"{RAPID}: importance weights make several updates per generation possible")  # fmt: skip
