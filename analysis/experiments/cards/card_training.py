"""Part 3 of a report card: every objective on a toy LLM, on fresh, stale, frozen and otherwise odd data."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import Table
from analysis.tables.outcomes import DIVERGED
from testbed.config.run import Run
from testbed.objectives import objective

NAME = "card-training"
RATE, OTHER_RATES = 3e-3, (1e-3, 1e-2)
"""The common learning rate, and those that a tuned objective may have in its place."""
LAGS = (16, 64, 128, 256)
TUNED_AT = 64
"""The lag at which an objective is tuned, and at which answers are four times as long."""
SEEDS = range(8)
BLOCKS = (5, 3)
"""Seeds of one more objective: the first block always, the second where the first leaves something open."""

BASE = replace(
    SMALL,
    steps=384,
    log_every=32,
    task_args=(("digits", 4),),
    policy_args=(("layers", 1), ("width", 16)),
    teacher_noise=0.5,
    learning_rate=RATE,
)
"""Sums of four digits: a base model that is right in one answer of twenty, as it is on four times as many."""

ARMS: dict[str, Run] = {
    "on-policy": BASE,
    **{f"lag {lag}": replace(BASE, lag=lag) for lag in LAGS},
    "offline": replace(BASE, lag=BASE.steps),
    "reuse x8": replace(BASE, staleness="replay", staleness_args=(("share", 0.125), ("reuse", 8))),
    "mismatch": replace(BASE, mismatch="logit-noise", mismatch_args=(("sigma", 1.0),)),
    "length x4": replace(
        BASE, lag=TUNED_AT, task_args=(("digits", 16),), teacher_noise=0.15, steps=192, log_every=16
    ),
    "negatives only": replace(BASE, lag=4, recipe_args=(("advantage", "nsr"),)),
    **{f"rate {rate:g}": replace(BASE, lag=TUNED_AT, learning_rate=rate) for rate in OTHER_RATES},
}
"""What an objective is trained on; its recipe and the seed are filled in. Offline: all data come from the
first weights. Reuse: one group of eight is new. Mismatch: the sampler's logits have noise of deviation 1.
Length: half the steps, as each has four times the tokens. Negatives only: advantage -1 for a wrong answer, 0
for a right one, at lag 4."""
OWN_ADVANTAGE = "negatives only"
"""The arm of which an objective that reads no advantage, but rewards, would know nothing."""

METRICS = ("accuracy", "collapsed", "steps_to 0.5")
_FIELDS = ("recipe_args", "task_args", "mismatch", "staleness", "lag", "learning_rate")


def judged() -> tuple[str, ...]:
    """Return the objectives of papers that are losses by themselves: no variants, no terms, no turns."""
    return tuple(
        name
        for name in objective
        if "@" not in name
        and objective[name].family != "terms"
        and "turn" not in objective[name].promises["reads"]
    )


def arms_of(name: str) -> dict[str, Run]:
    """Return the arms of an objective, which stands for its paper's recipe."""
    reads = objective[name].promises.get("reads", ("adv",))
    return {
        arm: replace(run, recipe=name) for arm, run in ARMS.items() if arm != OWN_ADVANTAGE or "adv" in reads
    }


def cells_of(names: Iterable[str], seeds: Iterable[int]) -> tuple[Run, ...]:
    """Return every arm and seed of these objectives, one after the other: few recipes share a pack."""
    seeds = tuple(seeds)
    return tuple(
        replace(arm, seed=seed) for name in names for arm in arms_of(name).values() for seed in seeds
    )


def cells() -> tuple[Run, ...]:
    """Every objective that is a loss by itself, twelve arms, 8 seeds, 384 steps."""
    return cells_of(judged(), SEEDS)


def by_arm(rows: pd.DataFrame) -> Table:
    """Return the table of result rows: a row per recipe, arm and seed."""
    found = cell_table(NAME, rows, ("recipe", *_FIELDS, "seed"), METRICS)
    frame = found.frame.copy()
    named = {_place(run): arm for arm, run in ARMS.items()}
    frame.insert(1, "arm", [named[_key(row)] for row in frame[list(_FIELDS)].itertuples(index=False)])
    order = {arm: number for number, arm in enumerate(ARMS)}
    frame = frame.drop(columns=[*_FIELDS, DIVERGED]).sort_values(
        ["recipe", "arm", "seed"], key=lambda column: column.map(order) if column.name == "arm" else column
    )
    return Table.of(NAME, frame, found.about)


def _place(run: Run) -> tuple[object, ...]:
    """Return what tells the arms apart, as the columns of a table have it."""
    texts = (
        ",".join(f"{k}={v}" for k, v in pairs) or "default" for pairs in (run.recipe_args, run.task_args)
    )
    return (*texts, run.mismatch, run.staleness, run.lag, f"{run.learning_rate:.6g}")


def _key(row: tuple[object, ...]) -> tuple[object, ...]:
    return (*row[:-1], f"{row[-1]:.6g}")


EXPERIMENT = Experiment(
    NAME,
    question="How do objectives train on fresh, stale, frozen and otherwise odd data?",
    source="papers of the objectives, in docs/objectives.md; the comparison is this project's",
    differs="a transformer of 4,000 weights on running sums of four digits; rows of few seeds",
    cells=cells,
    from_rows=by_arm,
    keys=("recipe", "arm", "seed"),
    metrics=METRICS,
)
