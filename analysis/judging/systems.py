"""The systems of the literature that stand behind this project, as systems.csv lists them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from analysis.experiment import EXPERIMENTS, Experiment, Part
from testbed.errors import UserError, suggest, unknown

TABLE = Path(__file__).with_name("systems.csv")

OUT_OF_REACH: dict[str, str] = {}
"""Systems of which not even the kernel can be tried on two cores, with the reason. None so far."""


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


def find(word: str) -> System:
    """Return the system of this number or name, in any case, with or without what stands in parentheses.

    Raises UserError with the nearest name for an unknown one.
    """
    listed = systems()
    known = {name.split(" (")[0].lower(): each for name, each in listed.items()}
    known |= {name.lower(): each for name, each in listed.items()}
    known |= {str(each.n): each for each in listed.values()}
    if word.lower() not in known:
        raise UserError(f"Unknown system '{word}'.{suggest(word.lower(), known)} All: testbed systems")
    return known[word.lower()]


def trials(experiments: Mapping[str, Experiment] = EXPERIMENTS) -> dict[str, dict[str, Part]]:
    """Return for every system the experiments that judge it, by name, with the part that they judge.

    Raises UserError for an experiment that names a system which is not in the list, names one without making
    a claim, or names one that is said to be out of reach.
    """
    found: dict[str, dict[str, Part]] = {name: {} for name in systems()}
    for name, experiment in experiments.items():
        for system, part in experiment.judges().items():
            if system not in found:
                raise unknown(f"system in experiment {name}:", system, found)
            if not part.claims:
                raise UserError(f"Experiment '{name}' judges '{system}', but makes no claim. Add one.")
            if system in OUT_OF_REACH:
                raise UserError(f"Experiment '{name}' judges '{system}', which OUT_OF_REACH says cannot be.")
            found[system][name] = part
    return found


def status(name: str, tried: Mapping[str, Part]) -> str:
    """Return "judged", "judged in part", "not yet tried" or "cannot be tried here".

    name: of the system. tried: the experiments that judge it, as `trials` has them.
    """
    if tried:
        return "judged in part" if all(part.what for part in tried.values()) else "judged"
    return "cannot be tried here" if name in OUT_OF_REACH else "not yet tried"
