"""The systems of the literature that stand behind this project, as analysis/systems.csv lists them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("systems.csv")


@dataclass(frozen=True)
class System:
    """A row: what a source says, and what would show it here.

    n: number in the list. name: how experiments refer to it. kind: "A" a recipe, "B" a simulation, "C" an
    engine or scheduler, "D" a kernel of a domain that does not fit here. says: the claim of the source.
    would_show: the experiment that would judge it, with the effect to expect.
    """

    n: int
    name: str
    kind: str
    says: str
    would_show: str


@cache
def systems() -> dict[str, System]:
    """Return all systems by name, in the order of the list."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {name: System(int(n), name, kind, says, show) for n, name, kind, says, show in rows}
