"""The learning rate of every recipe, chosen on seeds that no claim uses, by the median of an outcome.

A table of runs holds one row per arm, rate and tuning seed. `scores` takes the median over seeds.
`best_rates` keeps each arm's best rate, its score at the rate common to all, and the width of good rates. The
score of a chosen rate is the largest of several medians and so biased upward: these seeds choose, and fresh
seeds judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.cell_table import DEFAULT, FIELDS, words
from analysis.tables.outcomes import need
from testbed.config.run import Arguments, Run
from testbed.errors import UserError

FIRST_SEED = 10_000
"""First tuning seed: experiments and their replications use smaller seeds, as a test checks."""
WITHIN = 0.05
"""A rate counts as good as the best one if its score is within this distance."""
RATE, SEED, ARGS = "learning_rate", "seed", "recipe_args"
FEWER = (
    "steps_to", "rollouts_to", "collapsed", "entropy_collapsed", "length_collapsed", "diverged",
)  # fmt: skip
"""Outcomes of which less is better."""


def tuning_seeds(count: int) -> range:
    """Return this number of tuning seeds; raise UserError below 1."""
    if count < 1:
        raise UserError(f"{count} tuning seeds were asked for, expected at least 1.")
    return range(FIRST_SEED, FIRST_SEED + count)


def at_rates(runs: Iterable[Run], rates: Sequence[float], seeds: int = 2) -> tuple[Run, ...]:
    """Return every run at every rate, on this number of tuning seeds."""
    return tuple(
        replace(run, learning_rate=rate, seed=seed)
        for run in runs
        for rate in rates
        for seed in tuning_seeds(seeds)
    )


def rates_around(rate: float, below: int = 3, above: int = 1) -> tuple[float, ...]:
    """Return the rate with `below` smaller and `above` larger ones, half a decade apart, two digits."""
    return tuple(float(f"{rate * 10 ** (k / 2):.2g}") if k else rate for k in range(-below, above + 1))


def scores(
    frame: pd.DataFrame,
    by: Sequence[str] = ("recipe", "lag"),
    outcome: str = "last",
    knobs: Sequence[str] = (),
) -> pd.DataFrame:
    """Return one row per arm, knob setting and rate, sorted: median of the outcome, its range, seeds, chosen.

    Args:
        frame: a row per arm, rate and seed; the column of the outcome may have any name.
        by: columns that tell the arms apart.
        outcome: what is scored; a run without a number has the worst score. Less is better of FEWER.
        knobs: columns that are tuned beside the rate, for instance "recipe_args".

    `chosen` is 1 for each arm's best row: the best median, then the smaller rate, then "default" arguments.
    Raises UserError for missing columns, the same run twice, and rates of one arm that ran on other seeds
    than the rest: a median of fewer seeds is no fair rival.
    """
    by, knobs = list(by), list(knobs)
    need(frame, [*by, *knobs, RATE, SEED, outcome])
    setting = [*by, *knobs, RATE]
    if frame.duplicated([*setting, SEED]).any():
        raise UserError(
            f"Two rows share {', '.join(setting)} and seed, so something else varies too; name it in `by`."
        )
    for arm, rows in frame.groupby(by, dropna=False):
        seeds = rows.groupby([name for name in setting if name not in by], dropna=False)[SEED].agg(frozenset)
        if seeds.nunique() > 1:
            counts = ", ".join(f"{_words(key)}: {len(value)}" for key, value in seeds.items())
            raise UserError(
                f"The rates of {_words(arm)} ran on other seeds than each other ({counts} seeds); finish the "
                "sweep first, or select the seeds that all of them have."
            )
    fewer = outcome.partition(" ")[0] in FEWER
    worst = np.inf if fewer else -np.inf
    runs = frame[setting].assign(score=frame[outcome].astype(float).fillna(worst))
    grouped = runs.groupby(setting, sort=True, dropna=False)["score"]
    found = grouped.agg(score="median", low="min", high="max", seeds="size").reset_index()
    order = ["score", RATE, *knobs]
    ranked = found.sort_values(order, ascending=[fewer, *(True for _ in order[1:])], key=_default_first)
    best = ranked.groupby(by, sort=False, dropna=False).head(1).index
    return found.assign(chosen=found.index.isin(best).astype(int))


def _default_first(column: pd.Series) -> pd.Series:
    """Return the sort key of the column: "default" comes first."""
    return column.map(lambda value: (value != DEFAULT, value)) if column.dtype.kind not in "if" else column


def best_rates(
    frame: pd.DataFrame,
    by: Sequence[str] = ("recipe", "lag"),
    outcome: str = "last",
    knobs: Sequence[str] = (),
    *,
    common: float | None = None,
    within: float = WITHIN,
) -> pd.DataFrame:
    """Return each arm's best rate in one row: its score there and at the common rate, and the width.

    Columns: by, learning_rate, knobs, score (median over seeds), common_rate, common_score (at "default"
    knobs, else the first ones; NaN where the arm did not run at the rate), width, at_edge, seeds.

    width: decades of rate, log10(largest / smallest), in the unbroken run of grid rates around the best one
    whose scores are within `within` of it, at the chosen knobs; 0 when no neighbor is. at_edge: "low" or
    "high" where the best rate is the grid's first or last, so that a better one may lie beyond, "both" for a
    grid of one rate; else "".

    Args:
        frame: as `scores` takes it.
        by: as there.
        outcome: as there.
        knobs: as there.
        common: the rate common to all arms; by default the one that all ran at with the best mean score.
        within: as good as the best.

    Raises UserError as `scores` does, and for a common rate at which no arm ran.
    """
    table = scores(frame, by, outcome, knobs)
    by, knobs = list(by), list(knobs)
    common = _common(table, by, outcome) if common is None else common
    check_common(common, table[RATE])
    rows = []
    for _, arm in table.groupby(by, sort=True, dropna=False):
        best = arm[arm["chosen"] == 1].iloc[0]
        curve = arm[(arm[knobs].astype(str) == best[knobs].astype(str)).all(axis=1)] if knobs else arm
        plain = arm[arm[RATE] == common].sort_values(knobs or RATE, key=_default_first)
        rows.append(
            {
                **{name: best[name] for name in [*by, RATE, *knobs, "score"]},
                "common_rate": common,
                "common_score": plain["score"].iloc[0] if len(plain) else np.nan,
                "width": _width(curve, float(best[RATE]), within),
                "at_edge": _edge(curve, float(best[RATE])),
                "seeds": int(best["seeds"]),
            }
        )
    return pd.DataFrame(rows)


def check_common(common: float, rates: Iterable[float]) -> None:
    """Raise UserError for a common rate that is none of the rates."""
    rates = sorted({float(rate) for rate in rates})
    if common not in rates:
        known = ", ".join(f"{rate:g}" for rate in rates)
        raise UserError(f"No run has the common rate {common:g}. The rates are {known}.")


def best_arguments(
    frame: pd.DataFrame, by: Sequence[str], outcome: str, tried: Iterable[Arguments]
) -> dict[tuple[Any, ...], Arguments]:
    """Return each arm's arguments with the best score at their best rate; by: columns of an arm."""
    best = best_rates(frame, (*by, "recipe_args"), outcome).sort_values("score", kind="stable")
    named = {words(arguments): arguments for arguments in tried}
    rows = best.drop_duplicates(list(by), keep="last")
    return {tuple(arm): named[said] for *arm, said in rows[[*by, "recipe_args"]].itertuples(index=False)}


def _common(table: pd.DataFrame, by: list[str], outcome: str) -> float:
    """Return the rate that every arm ran at with the best mean score; the smallest of equals."""
    arms = table.groupby(by, dropna=False).ngroups
    per_arm = table.groupby([*by, RATE], dropna=False)["score"]
    fewer = outcome.partition(" ")[0] in FEWER
    best = (per_arm.min() if fewer else per_arm.max()).groupby(level=RATE).agg(["mean", "size"])
    shared = best[best["size"] == arms]["mean"]
    if shared.empty:
        raise UserError("The arms have no learning rate in common; give the common rate, or run one.")
    mean_G = shared.to_numpy(dtype=float)
    return float(shared.index.to_numpy(dtype=float)[mean_G.argmin() if fewer else mean_G.argmax()])


def _width(curve: pd.DataFrame, rate: float, within: float) -> float:
    curve = curve.sort_values(RATE)
    rate_G, score_G = curve[RATE].to_numpy(dtype=float), curve["score"].to_numpy(dtype=float)
    at = int(np.flatnonzero(rate_G == rate)[0])
    # Equal scores are near even where both are infinite, as their difference is NaN then.
    near_G = (np.abs(score_G - score_G[at]) <= within) | (score_G == score_G[at])
    first = last = at
    while first > 0 and near_G[first - 1]:
        first -= 1
    while last < rate_G.size - 1 and near_G[last + 1]:
        last += 1
    return float(np.log10(rate_G[last] / rate_G[first]))


def _edge(curve: pd.DataFrame, rate: float) -> str:
    low, high = rate == curve[RATE].min(), rate == curve[RATE].max()
    return "both" if low and high else "low" if low else "high" if high else ""


def at_best_rates(cells: Iterable[Run], chosen: pd.DataFrame) -> tuple[Run, ...]:
    """Return the cells, each at its arm's chosen learning rate, with its chosen arguments where it has some.

    Args:
        cells: runs with any rate and seed.
        chosen: what `best_rates` returns, or the rows of `scores` with chosen = 1; its columns that are
            fields of Run, other than those chosen, tell which row is a cell's.

    Raises UserError for a cell whose arm is not in the table.
    """
    from testbed.config.toml_file import override

    arms = [name for name in FIELDS if name in chosen and name not in (RATE, ARGS, SEED)]
    rows, found = by_arm(chosen, arms), []
    for cell in cells:
        arm = arm_of(cell, arms)
        if arm not in rows:
            raise UserError(f"No rate was chosen for {_words(arm)}; tune that arm too.")
        row = rows[arm]
        tuned = replace(cell, learning_rate=float(row[RATE]))
        given = str(row.get(ARGS, DEFAULT))
        pairs = [] if given == DEFAULT else [f"{ARGS}.{pair}" for pair in given.split(",")]
        found.append(override(replace(tuned, recipe_args=()), pairs) if pairs else tuned)
    return tuple(found)


def by_arm(frame: pd.DataFrame, by: Sequence[str]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    """Return the rows of a table by their arm."""
    rows = ({str(name): value for name, value in row.items()} for row in frame.to_dict("records"))
    return {tuple(str(row[name]) for name in by): row for row in rows}


def arm_of(cell: Run, by: Sequence[str]) -> tuple[str, ...]:
    """Return a cell's arm in the notation of tables."""
    values = (getattr(cell, name) for name in by)
    return tuple(words(value) if isinstance(value, tuple) else str(value) for value in values)


def _words(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
