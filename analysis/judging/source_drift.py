"""Drift of which a system's source speaks, where it was read (source_drift.csv): lag, clip share, KL."""

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from testbed.errors import unknown

TABLE = Path(__file__).with_name("source_drift.csv")
LAG, SHARE, NATS = MEASURES = ("lag", "clip share", "KL")
"""Optimizer steps between sampler and learner; share of tokens; nats per token from data to policy."""
NONE = "its source gives none that was read"


class Range(NamedTuple):
    """Range of a measure in a source, and the place in the source."""

    measure: str
    low: float
    high: float
    where: str

    def place(self, here: float) -> str:
        """Return whether a value lies inside, below or above the range."""
        return "above" if here > self.high else "below" if here < self.low else "inside"


@cache
def spoken(path: Path = TABLE) -> dict[str, tuple[Range, ...]]:
    """Return a source's ranges of drift by system, () if it names none; UserError for unknown measures."""
    found: dict[str, tuple[Range, ...]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            there = found.setdefault(row["system"], ())
            if row["measure"] not in ("", *MEASURES):
                raise unknown(f"measure of drift in {path.name}:", row["measure"], MEASURES)
            if row["measure"]:
                ends = float(row["low"]), float(row["high"])
                found[row["system"]] = (*there, Range(row["measure"], *ends, row["where"]))
    return found


def beside(systems: Iterable[str], here: Mapping[str, float]) -> tuple[bool, str]:
    """Return whether no KL lies outside its source's range, and in words each range beside the value here.

    Lags in steps and clip shares are not comparable, so they are reported but fail nothing.
    """
    listed = [spoken()[system] for system in systems if system in spoken()]
    told = [
        f"source {each.measure} {each.low:g} to {each.high:g}, here {here[each.measure]:.3g}: "
        f"{each.place(here[each.measure])}"
        for each in sum(listed, ())
    ] or [NONE] * bool(listed)
    outside = (each.measure == NATS and each.place(here[NATS]) != "inside" for each in sum(listed, ()))
    return not any(outside), ", ".join(told)


def in_words(system: str) -> str:
    """Return a source's drift and its place in words; "" if nobody looked."""
    known = spoken().get(system, ())
    said = "; ".join(f"{each.measure} {each.low:g} to {each.high:g} ({each.where})" for each in known)
    return said or NONE * (system in spoken())
