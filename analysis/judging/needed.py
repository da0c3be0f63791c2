"""How many seeds or worlds would decide a claim that is undecided, and why they were not spent.

Both follow from the claim's row in the table of verdicts and from unit_costs.csv. This has the seconds of one
core that one unit (a seed, or a mean over worlds) of an open claim takes, or of those of an experiment,
measured over 20 units without tuning; and why more units were not spent, if cost is not the reason.
"""

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scipy import stats

from analysis.judging import bets, rule
from analysis.judging.e_values import HALVES, UNDECIDED

OPEN = (UNDECIDED, *HALVES)
"""Verdicts that more units may change."""
POWER = float(stats.norm.ppf(0.8))
"""Standard errors by which chance moves an effect towards a boundary, at most, in four cases of five."""
MOST = 1e7
LARGEST = 10.0
"""Student's statistic that suffices for any e-value used here."""
NEAR = 0.1
"""Distance from a boundary, as a share of the margin, below which the effect counts as lying on it."""
COSTS = Path(__file__).with_name("unit_costs.csv")
CLOSED = 2 / 0.05
"""e-value at which a confidence sequence excludes a value."""


def units_to_decide(row: Mapping[str, Any]) -> int | None:
    """Return the units, in both runs together, after which the claim earns a word in four cases of five.

    Assumes the estimated effect in the cell that agrees least, and its spread, derived from the interval.
    Rounded up to two digits. None for a claim that is decided, has no interval, or is decided by its interval
    already, and where ten million units would not suffice because the effect lies on a boundary between
    words.
    """
    far = _far(row)
    if not far or decides_already(row):
        return None
    low, high = math.log(row["n"]), math.log(MOST)
    for _ in range(16):
        middle = (low + high) / 2
        units = math.exp(middle)
        enough = _reaches(far * math.sqrt(units) - POWER, int(units), rule.USUAL)
        low, high = (low, middle) if enough else (middle, high)
    step = 10 ** max(0, len(str(int(math.exp(high)))) - 2)
    return math.ceil(math.exp(high) / step) * step if high < math.log(MOST) else None


def decides_already(row: Mapping[str, Any]) -> bool:
    """Return whether an open claim's interval is narrow enough for a word, while its bets are not.

    A word asks for e > 1 of the fresh run alone, and bets are made on each run. The units needed for that
    depend on the effects of each run, which the row does not hold.
    """
    return _reaches(_far(row) * math.sqrt(row["n"] or 0), int(row["n"] or 0), rule.USUAL)


def _far(row: Mapping[str, Any]) -> float:
    """Return an open claim's distance from the nearest boundary in spreads of a unit; 0 if there is none."""
    effect, low, high, n = (row[name] for name in ("effect", "low", "high", "n"))
    if row["verdict"] not in OPEN or effect is None or not n or n < 2 or not math.isfinite(high - low):
        return 0.0
    boundary = _boundary(effect, row["asks"])
    # Student's interval is centered on the estimate; a confidence sequence is not.
    mean = abs(high + low - 2 * effect) <= 1e-3 * (high - low)
    width = abs(effect - (low if boundary < effect else high))
    spread = width / (stats.t.ppf(0.975, n - 1) if mean else _statistic(int(n), CLOSED)) * math.sqrt(n)
    return float(abs(effect - boundary) / spread) if spread else 0.0


def why_not(row: Mapping[str, Any]) -> str:
    """Return why the units that would decide an undecided claim were not spent; "" for another claim.

    This names their cost, if recorded, and whether the effect lies on a boundary between two words.
    """
    if row["verdict"] not in OPEN:
        return ""
    if decides_already(row):
        return ""
    units = units_to_decide(row)
    if units is None:
        differ = row["note"].rpartition("; ")[2]
        rare = f", {differ}" if differ.endswith("pairs differ") else ""
        return f"the effect lies on a boundary between two words{rare}"
    found = []
    seconds, why = costs().get(row.get("claim", ""), costs().get(row["experiment"], (0.0, "")))
    hours = (units - row["n"]) * seconds / 3600
    if hours > 1 / 60:
        time = f"{hours:.2g} more hours" if hours >= 1 else f"{60 * hours:.0f} more minutes"
        found.append(f"{time} of one core")
    found += [why] if why else []
    margin = abs(float(row["asks"].split()[-1]))
    if margin and abs(row["effect"] - _boundary(row["effect"], row["asks"])) < NEAR * margin:
        found.append("the effect lies at a boundary")
    return ", ".join(found)


@cache
def costs() -> dict[str, tuple[float, str]]:
    """Return the seconds of one core that a unit takes, and why no more were spent, by their names."""
    with COSTS.open(newline="") as file:
        return {row["name"]: (float(row["seconds"]), row["why"]) for row in csv.DictReader(file)}


def _boundary(effect: float, asks: str) -> float:
    """Return the value that an interval must exclude for the first word that the effect would earn."""
    sign, _, number = asks.partition(" ")
    margin = float(number)
    if sign == "within":
        return math.copysign(margin, effect)
    if sign == "<":
        return -_boundary(-effect, f"> {-margin}")
    if margin <= 0 or effect >= 0 or margin == 0.5:  # 1/2 means no effect for a share
        return margin
    return 0.0 if -effect > effect + margin else -margin


def _statistic(n: int, e: float) -> float:
    """Return Student's statistic of n units at which bets on the mean are worth e."""
    low, high = 0.0, LARGEST
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if _reaches(middle, n, e) else (middle, high)
    return high


def _reaches(statistic: float, n: int, e: float) -> bool:
    """Return whether bets on the mean of n units reach e at a statistic; they grow with it."""
    return statistic >= LARGEST or (statistic > 0 and bets.at_statistic(statistic, n) >= e)
