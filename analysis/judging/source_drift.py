"""At which drift a system's source speaks, as far as it was read (source_drift.csv): lag, clip share, KL."""

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
    """Values of a measure of which a source speaks, and the place in it that says so."""

    measure: str
    low: float
    high: float
    where: str

    def place(self, here: float) -> str:
        """Return whether a value lies inside, below or above."""
        return "above" if here > self.high else "below" if here < self.low else "inside"


@cache
def spoken(path: Path = TABLE) -> dict[str, tuple[Range, ...]]:
    """Return what a source says of drift, by system; () where what was read says nothing.

    Raises UserError for an unknown measure.
    """
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
    """Return whether no KL lies outside its source's, and each range beside the value here, in words.

    A lag is as large as its steps and a clip share as its clip is wide, so that these two are told and
    refuse nothing.
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
    """Return what the source of a system says of drift, and where; "" where nobody looked."""
    known = spoken().get(system, ())
    said = "; ".join(f"{each.measure} {each.low:g} to {each.high:g} ({each.where})" for each in known)
    return said or NONE * (system in spoken())
