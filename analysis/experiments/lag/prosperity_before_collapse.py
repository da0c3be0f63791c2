"""Prosperity before collapse: what old data teach a policy that no clip holds, and how that ends."""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.lab import Arm, Evidence, Experiment, Part, Stop, arms, median_exceeds, median_stays_below
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import Table
from analysis.tables.outcomes import ACCURACY, DIVERGED
from testbed.config.run import Run, grid

M2PO = "Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161, section 3"
NAME = "prosperity-before-collapse"
OPEN = (("eps_high", 1e9), ("eps_low", 1.0))
"""GRPO whose clip no ratio reaches."""
LAGS, FAST, SLOW = (64, 256), 3e-3, 1e-3
STEPS, EVERY = 600, 50
TWICE, FALL, GAIN = 0.5, 0.1, 0.05
"""Share of the other's steps, and accuracies: set before the table, after a pilot on tuning seeds."""
KEYS = ("recipe", "recipe_args", "lag", "learning_rate", "seed")
METRICS = ("accuracy", "best", "start", "peak_step", "collapsed", "steps_to 0.5", "mean actor/clip_share")
CURVE = tuple(f"accuracy@{step}" for step in (*range(0, STEPS, EVERY), STEPS - 1))


def cells() -> tuple[Run, ...]:
    """GRPO with its clip and without one, and M2PO, at lags 64 and 256 and two learning rates."""
    run = replace(SMALL, steps=STEPS, log_every=EVERY)
    clipped = grid(run, recipe=["grpo", "m2po"], lag=list(LAGS), learning_rate=[SLOW, FAST])
    opened = grid(replace(run, recipe="grpo", recipe_args=OPEN), lag=list(LAGS), learning_rate=[SLOW, FAST])
    return (*clipped, *opened)


def from_rows(rows: pd.DataFrame) -> Table:
    """Return one row per cell: outcomes, and the accuracy at every logged step."""
    table = cell_table(NAME, rows, KEYS, METRICS)
    cells_C = rows.drop_duplicates("cell").set_index("cell")
    curve = rows.pivot_table(index="cell", columns="step", values=ACCURACY)
    curve.columns = [f"accuracy@{step}" for step in curve.columns]
    places = cells_C[["recipe", "lag", "learning_rate", "seed"]].assign(
        recipe_args=cells_C["recipe_args"].replace("", "default")
    )
    curve = places.join(curve).set_index(list(KEYS))
    return Table.of(NAME, table.frame.drop(columns=DIVERGED).join(curve, on=list(KEYS)), table.about)


EXPERIMENT = Experiment(
    NAME,
    question="Do old data teach faster without a clip, before the policy collapses, and does M2PO keep both?",
    source=M2PO,
    differs="a transformer of 7,000 weights on running sums; two learning rates for all",
    cells=cells,
    from_rows=from_rows,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=KEYS,
    metrics=(*METRICS, *CURVE),
    margins={
        "share of the clipped steps that is prosperity": TWICE,
        "fall from the best that is a collapse": FALL,
        "gain in final accuracy": GAIN,
    },
    figure=NAME,
    systems={"M2PO (Prosperity before Collapse)": Part("why old data need another clip at all")},
)
ARMS: dict[str, tuple[str, str]] = {
    "grpo": ("grpo", "default"),
    "open": ("grpo", "eps_high=1000000000,eps_low=1"),
    "m2po": ("m2po", "default"),
}
"""recipe and recipe_args, as the table has them."""


def _arm(name: str, lag: int, rate: float) -> Arm:
    recipe, arguments = ARMS[name]
    return {"recipe": recipe, "recipe_args": arguments, "lag": lag, "learning_rate": rate}


def _sooner(table: pd.DataFrame, name: str) -> Evidence:
    """Return evidence about the quotient of steps to an accuracy of .5; never counts as one step too many."""
    shares = {}
    for lag in LAGS:
        found = arms(table, "steps_to 0.5", {each: _arm(each, lag, FAST) for each in (name, "grpo")})
        found = found.fillna(STEPS)
        shares[f"lag {lag}"] = found[name] / found["grpo"]
    middle = ", ".join(f"{share.median():.2f} at {lag}" for lag, share in shares.items())
    return median_stays_below(shares, TWICE, f"median quotient of steps; {middle}")


def _falls(table: pd.DataFrame, name: str, rate: float, much: bool) -> Evidence:
    """Return evidence that the final accuracy is below the best by the margin, or by less."""
    fell = {}
    for lag in LAGS:
        ends = [arms(table, word, {name: _arm(name, lag, rate)})[name] for word in ("best", "accuracy")]
        fell[f"lag {lag}"] = ends[0] - ends[1]
    middle = ", ".join(f"{each.median():.2f} at {lag}" for lag, each in fell.items())
    note = f"median fall against {FALL:g}; {middle}"
    return median_exceeds(fell, FALL, note) if much else median_stays_below(fell, FALL, note)


for _name, _title in (("open", "Without its clip GRPO"), ("m2po", "M2PO")):
    EXPERIMENT.claim(
        f"{_name.replace('open', 'unclipped-grpo')}-learns-from-old-data-in-half-the-steps",
        source=M2PO,
        statement=f"{_title} reaches accuracy 0.5 in less than half of GRPO's steps, at lags 64 and 256 and "
        "learning rate 3e-3, in the median over seeds.",
    )(partial(_sooner, name=_name))

for _claim, _title, _arguments in (
    ("unclipped-grpo-falls-after-its-prosperity", "Without its clip GRPO", ("open", FAST, True)),
    ("clipped-grpo-does-not-fall", "With its clip GRPO", ("grpo", FAST, False)),
    ("m2po-does-not-fall", "M2PO", ("m2po", FAST, False)),
):
    _name, _rate, _much = _arguments
    EXPERIMENT.claim(
        _claim,
        source=M2PO,
        statement=f"{_title} ends {'more' if _much else 'less'} than 0.1 below its best, at lags 64 and 256 "
        "and learning rate 3e-3, in the median over seeds.",
    )(partial(_falls, name=_name, rate=_rate, much=_much))


@EXPERIMENT.claim(source="this project")
def a_smaller_rate_keeps_the_prosperity_of_unclipped_grpo(table: pd.DataFrame) -> Evidence:
    """At learning rate 1e-3 and lag 256, GRPO without its clip ends 0.05 above GRPO with it at either rate,
    in the median over seeds.
    """
    gains = {}
    for rate in (SLOW, FAST):
        names = {"open": _arm("open", LAGS[1], SLOW), "grpo": _arm("grpo", LAGS[1], rate)}
        found = arms(table, "accuracy", names)
        gains[f"rate {rate:g}"] = found["open"] - found["grpo"]
    middle = ", ".join(f"{gain.median():.2f} over {rate}" for rate, gain in gains.items())
    return median_exceeds(gains, GAIN, f"median gain; {middle}")
