"""Gates that read only a comparison's own table: headroom, arms that differ, grids, plateaus.

A gate holds, fails, or does not apply; the first two come with the number behind them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.judging.comparison import Comparison
from analysis.judging.comparisons import Read
from analysis.judging.e_values import REFUTED, Evidence
from analysis.judging.replication import difference, level
from analysis.judging.seed_intervals import student_interval
from analysis.tables.committed import remeasured

SHARES = re.compile(r"accuracy|area|final|share|score|solved|success|pass@|right|^(?:learning|end|value)$")
"""Names of outcomes between 0 and 1 for which more is better."""
LOSSES = re.compile(r"regret|violations|unsafe|missed")
"""Names of outcomes of at least 0 for which less is better."""
NEAR = 0.02
"""Distance from 0 or 1 within which a value counts as being there."""
PILED = 0.5
"""Share of an arm's seeds at one end from which the arm counts as piled up there."""
SAME, SEEDS = 0.9, 8
"""Share of equal outcomes, and number of seeds, from which the arms count as not differing."""
ENDS = ("accuracy", "final", "exact/value")
"""Outcomes that are read at the end of training."""
STILL_MOVING = 0.5
"""Share of a gap, or of an equality's margin, by which the last fifth of the steps may close or open it."""
NOT_RECORDED = "not recorded"
_REASONS = Path(__file__).with_name("unmeasured.csv").read_text(encoding="utf-8").splitlines()
UNMEASURED: dict[str, str] = dict(csv.reader(_REASONS[1:]))
"""Why `long enough` or `drift` stays open: by experiment if its table lacks the data, or by claim on finals
if repeated runs leave it open. Pages say beside the verdict what is missing (docs/decisions/013)."""
_SETTINGS = Path(__file__).with_name("settings.csv").read_text(encoding="utf-8").splitlines()
SETTINGS: dict[str, tuple[str, str]] = {name: (how, why) for name, how, why in csv.reader(_SETTINGS[1:])}
"""How arms are set, and a reason, by experiment or by claim, of comparisons whose table has neither rates nor
ends of grids (docs/decisions/016)."""
BY_HAND, NOBODY = "by hand", "nobody says how its arms are set"
HOW = ("no contest", "nothing to set", "swept", "tuned", "one setting", BY_HAND)


@dataclass(frozen=True)
class Answer:
    """Result of a gate for a claim: gate, whether it holds, and the number behind it."""

    gate: str
    holds: bool
    why: str


def unmeasured(checked: str) -> list[str]:
    """Return the gates of a row's `checked` that hold only because the table is older than the gate."""
    return [part.partition(":")[0] for part in checked.split("; ") if f": {NOT_RECORDED}" in part]


def excuse(row: Mapping[str, Any]) -> str:
    """Return the gates left open for a claim in the table of verdicts, and why; "" if there is none."""
    gates = ", ".join(unmeasured(row["checked"]))
    why = UNMEASURED.get(row["claim"], UNMEASURED.get(row["experiment"], ""))
    return gates and f"{gates}: {why}"


def lacking(gate: str, experiment: str, what: str) -> Answer:
    """Return a gate's result if its measurement is missing: failed, unless the table predates the gate."""
    known = UNMEASURED.get(experiment, "")
    return Answer(gate, bool(known), f"{NOT_RECORDED}, {known or what}")


def leaning(evidence: Evidence) -> str:
    """Return the word with most evidence; "" if there is none."""
    return max(evidence.e, key=lambda word: evidence.e[word], default="")


def answers(
    check: Callable[..., object],
    table: pd.DataFrame,
    read: Sequence[Read],
    evidence: Evidence,
    experiment: str = "",
    budget: str = "",
) -> list[Answer]:
    """Return the gates' results for a check on a table with one unit a seed.

    read: its arms. evidence: its result. experiment: owner of the table. budget: the equal budget at which it
    compares arms that still learn, if it states one.
    """
    found = [*_headroom(read)]
    if isinstance(check, Comparison):
        found += [
            *_fits(check, read),
            *_acts(check, read),
            *_tuned(check, table),
            *_long_enough(check, table, evidence, experiment, budget),
        ]
    return found


def _headroom(read: Sequence[Read]) -> Iterator[Answer]:
    """Not all arms may pile up at one end, where no effect could be seen."""
    arms = [x_N for name, _, x_N in read if SHARES.search(name)]
    if len(arms) < 2 or any(np.isnan(x_N).any() or x_N.min() < 0 or x_N.max() > 1 for x_N in arms):
        return
    middle = [float(np.median(x_N)) for x_N in arms]
    said = f"{len(arms)} arms from {min(middle):.3g} to {max(middle):.3g}"
    ends = [end for end in (0, 1) if all((np.abs(x_N - end) <= NEAR).mean() > PILED for x_N in arms)]
    yield Answer("headroom", not ends, f"{said}; all pile up at {ends[0]}" if ends else said)


def _fits(check: Comparison, read: Sequence[Read]) -> Iterator[Answer]:
    """A requested gain must fit between the arm to beat and the best possible value, 1 or 0."""
    gain = check.margin if check.way == "above" else -check.margin
    if check.second is None or check.way not in ("above", "below") or check.log or gain <= 0 or len(read) % 2:
        return
    less = all(LOSSES.search(each.column) for each in read)
    if not less and not all(SHARES.search(each.column) and each.values.max() <= 1 for each in read):
        return
    if min(each.values.min() for each in read) < -1e-6:  # regrets are differences, and round
        return
    beaten = read[1::2] if less == (check.way == "below") else read[::2]
    typical = np.median if check.typical == "median" else np.mean  # failing runs leave room in the mean
    levels = [float(typical(x_N)) for _, _, x_N in beaten]
    room = min((level if less else 1 - level for level in levels), default=gain)
    if room < gain:
        yield Answer("headroom", False, f"a gain of {gain:g} is asked where {room:.2g} is left")


def _acts(check: Comparison, read: Sequence[Read]) -> Iterator[Answer]:
    """An arm that should differ from another must not be the same run under another name."""
    if check.second is None or check.way in ("equal", "alone") or check.x or len(read) % 2:
        return
    pairs = [(a.values, b.values) for a, b in zip(read[::2], read[1::2], strict=True)]
    shares = [float((x_N == y_N).mean()) for x_N, y_N in pairs if len(x_N) == len(y_N) >= SEEDS]
    if shares and min(shares) >= SAME:
        yield Answer(
            "acts", False, f"both arms have the same outcome on {min(shares):.0%} of the seeds or more"
        )


def _tuned(check: Comparison, table: pd.DataFrame) -> Iterator[Answer]:
    """No compared arm may have its best setting at the edge of its grid."""
    if "at_edge" not in table:
        return
    edges = [
        f"{cell or 'one cell'} of {side}"
        for side, where in (("the first arm", check.first), ("the second", check.second))
        if where is not None
        for cell, x_N in level(table, "at_edge", {**where, **check.over}).items()
        if x_N.size and x_N.max() > 0
    ]
    yield Answer("tuned", not edges, f"at the grid's edge: {', '.join(edges)}" if edges else "optimum inside")


def _long_enough(
    check: Comparison, table: pd.DataFrame, evidence: Evidence, experiment: str, budget: str
) -> Iterator[Answer]:
    """The gap of two finals must not be closing when training stops, nor that of equals opening; at a stated
    budget it may. Arms that the evidence shows to differ have a gap.

    A movement is measured against the gap, or against the margin where the gap is smaller. An arm that should
    be no worse, with a margin below 0, must not be falling behind. For few repeated runs, the mean counts
    with its 95 % Student interval: the gate fails or holds if the whole interval says so; otherwise it is not
    recorded.
    """
    end = str(check.outcome)
    if check.first is None or check.second is None or check.x or end not in ENDS:
        return
    rises = table if f"rise {end}" in table else remeasured(experiment)
    arms = (check.first, check.second)
    gaps = difference(table, end, *arms, **check.over)
    opens = {} if rises is None else difference(rises, f"rise {end}", *arms, **check.over)
    if not opens or not all(x_N.size for x_N in opens.values()):
        if budget:
            yield Answer("long enough", True, f"at a budget, {budget}")
            return
        yield lacking("long enough", experiment, "finals without a curve that says whether their gap closes")
        return
    own = rises is table
    equals = check.way == "equal" and leaning(evidence) != REFUTED
    met = [(np.zeros(3), "of itself")]
    for cell, x_N in opens.items():
        gap = float((np.median if own else np.mean)(gaps[cell]))
        unit = check.margin if equals else max(abs(gap), abs(check.margin))
        ends = student_interval(x_N)
        moved = np.repeat(np.median(x_N), 3) if own else np.array([ends.center, ends.low, ends.high])
        closes = -moved if check.margin < 0 else -moved * np.sign(gap)
        if equals:
            closes = np.abs(moved)
            closes[1] *= moved[1] * moved[2] > 0  # otherwise 0 lies between the ends
        met += [(closes / unit, "of itself" if unit == abs(gap) else "of the margin")] if unit else []
    share, of = max((float(closes[0]), of) for closes, of in met)
    low, high = (max(float(end_of(closes[1:])) for closes, _ in met) for end_of in (np.min, np.max))
    what = "moves" if equals else "closes"
    said = f"the gap {what} by {share:.2g} {of} over the last fifth of the steps"
    if not own:
        said += f", 95 % interval to {high:.2g}, in {min(map(len, opens.values()))} runs made again"
    if budget:
        said = f"at a budget, {budget}; {said}"
    elif low <= STILL_MOVING < high:
        said = f"{NOT_RECORDED}, so few runs leave it open, {said}"
    yield Answer("long enough", bool(budget) or low <= STILL_MOVING, said)
