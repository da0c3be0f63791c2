"""Evidence for or against a claim: an effect with its interval, and an e-value for every word it may earn.

A claim says that a number x is above a margin ("exceeds"), or within it ("within"), in each of its cells. A
cell gives two monotone bets (analysis.judging.bets): that x is above t, and that it is below. From them:

    exceeds m    supported            above(m) in every cell
                 smaller than claimed above(0) in every cell, below(m) in some        where m > 0
                 no difference        above(-m) and below(m) in every cell            where m > 0
                 refuted              below(min(m, 0)) in some cell
                 direction only       above(0) in every cell                          where m > 0
                 margin missed        below(m) in some cell                           where m > 0
    within m     supported            above(-m) and below(m) in every cell
                 refuted              above(m) or below(-m) in some cell

"in every cell" takes the smallest e-value, "in some" the mean over cells: both are e-values again. A wrong
word needs one of two fixed bets to win, whatever the truth is. Where several cells may show equality there
are three, and two of them share a stake. So half the largest e-value is one e-value for the whole claim
(docs/theory/verdicts.md). The last two of "exceeds" are half words: they state one end of
the effect, and count only where no other word is earned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.judging import bets
from analysis.judging.seed_intervals import student_interval
from envs.arrays import Floats

SUPPORTED, SMALLER, NONE, REFUTED = "supported", "smaller than claimed", "no difference", "refuted"
UNDECIDED = "undecided"
HALVES = DIRECTION, MISSED = "direction only", "margin missed"
WORDS = (SUPPORTED, SMALLER, NONE, REFUTED)
"""Words that a claim can earn; ties in evidence go to the earlier word."""


@dataclass(frozen=True)
class Measure:
    """A kind of number: its e-values (above, below) at a threshold, its estimate, its 95 % interval."""

    name: str
    bet: Callable[[Floats, float], tuple[float, float]]
    center: Callable[[Floats], float]
    interval: Callable[[Floats], tuple[float, float]]


def _student(x_N: Floats) -> tuple[float, float]:
    if x_N.size < 2:
        return -math.inf, math.inf
    found = student_interval(x_N)
    return found.low, found.high


def _share(won_N: Floats, t: float) -> tuple[float, float]:
    won = float((won_N > 0.5).sum())
    return bets.shares(won, won_N.size - won, t) if 0 < t < 1 else (1.0, 1.0)


MEDIAN = Measure("median", bets.median, lambda x_N: float(np.median(x_N)), bets.median_sequence)
MEAN = Measure("mean", bets.mean, lambda x_N: float(x_N.mean()), _student)
SHARE = Measure("share", _share, lambda x_N: float(x_N.mean()), bets.share_sequence)


@dataclass(frozen=True)
class Cell:
    """One group of independent units: its name, estimate, size, and whether the estimate agrees."""

    name: str
    effect: float
    n: int
    agrees: bool


@dataclass(frozen=True)
class Evidence:
    """Evidence for a claim: the effect and its certainty.

    effect, low, high: estimate and 95 % interval of the number in question, in the cell that agrees least.
    asks: what the claim says of it, "> 0.05". e: e-value of every word that it can earn. n: independent units
    of the smallest cell, or relations of an exact claim. note: what the number is. cells: all of them.
    holds, tolerance: of an exact claim, decided by computation; its effect is the largest gap.
    half: e-value of the half words, DIRECTION and MISSED.
    runs: the evidence of a first run and of its replication on fresh seeds, each by itself.
    """

    effect: float
    low: float
    high: float
    n: int
    note: str
    asks: str = ""
    e: Mapping[str, float] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()
    holds: bool | None = None
    tolerance: float | None = None
    half: Mapping[str, float] = field(default_factory=dict)
    runs: tuple[Evidence, ...] = ()


def exact(gap_C: ArrayLike, tolerance: float, note: str) -> Evidence:
    """Return evidence that every gap is at most `tolerance`; effect is the largest. A NaN gap fails."""
    gaps_C = np.atleast_1d(np.asarray(gap_C, dtype=np.float64)).ravel()
    worst = float(gaps_C.max())
    holds = bool(worst <= tolerance)
    return Evidence(worst, worst, worst, gaps_C.size, note, holds=holds, tolerance=tolerance)


def exceeds(
    x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str, measure: Measure, null: float = 0.0
) -> Evidence:
    """Return evidence that x is above the margin, in every group of independent units.

    null: the value of "no effect", from which the direction is read; the margin itself where no such value
    exists, as for a level. A group without units decides nothing.
    """
    cells = _cells(x, measure, lambda effect: effect > margin)
    if cells is None:
        return Evidence(math.nan, -math.inf, math.inf, 0, f"{note}; no rows", f"> {margin:g}")
    groups, found = cells
    at = {t: [measure.bet(x_N, t) for x_N in groups] for t in {margin, null, -margin}}
    banded = margin > null == 0  # around a null such as 1/2 the margin is no band of equality
    # Of several cells, equality fails by a bet in one of them and the other words by their mean: two bets
    # that x is below, where one cell has one, share its stake.
    stake = 0.5 if banded and len(groups) > 1 else 1.0
    e = {
        SUPPORTED: _every(above for above, _ in at[margin]),
        REFUTED: stake * _some(below for _, below in at[min(margin, null)]),
    }
    half = {}
    if margin > null:
        half = {DIRECTION: _every(a for a, _ in at[null]), MISSED: stake * _some(b for _, b in at[margin])}
        e[SMALLER] = min(half.values())
    if banded:
        e[NONE] = min(_every(a for a, _ in at[-margin]), stake * _every(b for _, b in at[margin]))
    worst = min(range(len(found)), key=lambda index: found[index].effect)
    evidence = _evidence(found, worst, measure.interval(groups[worst]), e, note, f"> {margin:g}")
    return replace(evidence, half=half)


def stays_below(
    x: ArrayLike | Mapping[Any, ArrayLike], margin: float, note: str, measure: Measure, null: float = 0.0
) -> Evidence:
    """Return evidence that x is below the margin in every group; see `exceeds`."""
    turned = {name: -np.asarray(x_N, dtype=np.float64) for name, x_N in _groups(x).items()}
    found = exceeds(turned, -margin, note, measure, -null)
    return replace(
        # 0.0 - x and not -x, which would make an effect of zero -0.
        found, effect=0.0 - found.effect, low=-found.high, high=-found.low, asks=f"< {margin:g}",
        cells=tuple(replace(cell, effect=-cell.effect) for cell in found.cells),
    )  # fmt: skip


def within(
    x: ArrayLike | Mapping[Any, ArrayLike],
    margin: float,
    note: str,
    measure: Measure,
    floored: Sequence[str] = (),
) -> Evidence:
    """Return evidence that |x| is below the margin in every group of differences.

    Groups that are `floored`, see comparisons.at_floor, are no evidence of equality. The margin must be
    chosen before looking.
    """
    cells = _cells(x, measure, lambda effect: abs(effect) < margin)
    if cells is None:
        return Evidence(math.nan, -math.inf, math.inf, 0, f"{note}; no rows", f"within {margin:g}")
    groups, found = cells
    low = [measure.bet(x_N, -margin) for x_N in groups]
    high = [measure.bet(x_N, margin) for x_N in groups]
    inside = min(_every(above for above, _ in low), _every(below for _, below in high))
    # The mean of two e-values is one again; their sum is not.
    outside = (_some(above for above, _ in high) + _some(below for _, below in low)) / 2
    if floored:
        note += f"; both arms at the floor, where nothing can differ: {', '.join(floored)}"
        # Equality is not shown by what cannot differ, but a difference would be one.
        inside = min(inside, 1.0)
    worst = max(range(len(found)), key=lambda index: abs(found[index].effect))
    e = {SUPPORTED: inside, REFUTED: outside}
    return _evidence(found, worst, measure.interval(groups[worst]), e, note, f"within {margin:g}")


def _groups(x: ArrayLike | Mapping[Any, ArrayLike]) -> dict[str, Floats]:
    groups = x if isinstance(x, Mapping) else {"": x}
    return {str(name): np.asarray(x_N, dtype=np.float64).ravel() for name, x_N in groups.items()}


def _cells(
    x: ArrayLike | Mapping[Any, ArrayLike], measure: Measure, agrees: Callable[[float], bool]
) -> tuple[list[Floats], tuple[Cell, ...]] | None:
    groups = _groups(x)
    if not groups or any(x_N.size == 0 or np.isnan(x_N).any() for x_N in groups.values()):
        return None
    found = []
    for name, x_N in groups.items():
        effect = measure.center(x_N)
        found.append(Cell(name, effect, x_N.size, agrees(effect)))
    return list(groups.values()), tuple(found)


def _evidence(
    cells: tuple[Cell, ...],
    worst: int,
    interval: tuple[float, float],
    e: Mapping[str, float],
    note: str,
    asks: str,
) -> Evidence:
    if len(cells) > 1:
        agree = sum(cell.agrees for cell in cells)
        note = f"{note}; {agree} of {len(cells)} cells agree, least {cells[worst].name}"
    n = min(cell.n for cell in cells)
    return Evidence(cells[worst].effect, *interval, n, note, asks, dict(e), cells)


def _every(values: Any) -> float:
    return float(min(values))


def _some(values: Any) -> float:
    found = list(values)
    return float(sum(found) / len(found))
