"""The systems of the literature behind this project, and the verdict on the central claim of each.

systems.csv lists the claim of each source, and the claims of this project that judge it ("central"). A status
follows only from the verdicts on these claims. asked.csv has what a fair test needs, and what ours has.
"""

import csv
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.experiment import EXPERIMENTS, Experiment, Part
from analysis.judging.claims import CLAIMS
from analysis.judging.e_values import HALVES, SMALLER, UNDECIDED
from analysis.judging.verdicts import INVALID, NOT_RUN, Row
from testbed.errors import UserError, suggest, unknown

TABLE, ASKED = (Path(__file__).with_name(name) for name in ("systems.csv", "asked.csv"))
ANSWERS = {
    "delivered": "Done",
    "delivered but for what is wrong": "Done, but for parts that would test nothing here",
    "delivered but for what is open": "Done in part",
}
"""What ours has of it, as in asked.csv and on pages; the reason stands beside it."""
DECIDED, HALF, SIDE = "decided", "half decided", "side matter only"
CITED = re.compile(r"\d{4}\)|arXiv:\d")
"""Marks of a cited work in a source: a year or an arXiv number."""
STATUSES = (DECIDED, SMALLER, HALF, UNDECIDED, INVALID, SIDE)


@dataclass(frozen=True)
class System:
    """A row of the list.

    n: its number. name: used by experiments. kind: "A" a training recipe, "B" a simulation, "C" an engine or
    scheduler, "D" a kernel of a domain outside this project. says: the claim of the source. would_show: the
    experiment that would judge it. central: claims here that judge the source's claim; () if none does.
    without: why none does, in words.
    """

    n: int
    name: str
    kind: str
    says: str
    would_show: str
    central: tuple[str, ...]
    without: str = ""


@cache
def systems() -> dict[str, System]:
    """Return all systems by name, in the order of the list."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {
        name: System(int(n), name, kind, says, show, tuple(central.split()), without)
        for n, name, kind, says, show, central, without in rows
    }


@cache
def asked() -> dict[str, str]:
    """Return what a fair test needs and what ours has, as text, for each system in asked.csv.

    Raises UserError for an unknown system, or for a word outside ANSWERS.
    """
    found: dict[str, str] = {}
    with ASKED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["system"] not in systems():
                raise unknown(f"system in {ASKED.name}", row["system"], systems())
            if row["answer"] not in ANSWERS:
                raise unknown(f"answer in {ASKED.name}", row["answer"], ANSWERS)
            found[row["system"]] = f"{row['asked']}. {ANSWERS[row['answer']]}: {row['why']}"
    return found


def find(word: str) -> System:
    """Return the system of this number or name, in any case, with or without the text in parentheses.

    Raises UserError with the nearest name for an unknown one.
    """
    listed = systems()
    known = {name.split(" (")[0].lower(): each for name, each in listed.items()}
    known |= {name.lower(): each for name, each in listed.items()}
    known |= {str(each.n): each for each in listed.values()}
    if word.lower() not in known:
        raise UserError(f"Unknown system '{word}'.{suggest(word.lower(), known)} All: testbed list systems")
    return known[word.lower()]


def short_names(name: str) -> tuple[str, ...]:
    """Return a system's short names in lower case: its parts between punctuation, and "r2vpo" for R²VPO."""
    before, _, inside = name.removesuffix(")").partition(" (")
    parts = [before, *re.split(r" [/→] ", before)]
    parts += [inside] if re.fullmatch(r"\S*[A-Z]\S*", inside) else []
    return tuple(dict.fromkeys(name for part in parts for name in (part.lower(), _plain(part))))


def source(name: str) -> str:
    """Return the works cited by claims about a system, separated by "; "; "" if none is cited.

    If some of them name the system, return only those.
    """
    said = (CLAIMS[claim].source for part in trials()[name].values() for claim in part.claims)
    parts = (part for each in said for part in re.split(r"; |, of which", each.replace("arXiv ", "arXiv:")))
    works = [re.sub(r"(arXiv:\d{4}\.\d+).*", r"\1", part) for part in parts if CITED.search(part)]
    short = [rf"(?<!\w){re.escape(_plain(each))}(?!\w)" for each in short_names(name)]
    named = [work for work in works if any(re.search(each, _plain(work)) for each in short)]
    return "; ".join(dict.fromkeys(named or works))


def _plain(text: str) -> str:
    """Return text in lower case, with ² and ü replaced by 2 and ue."""
    return unicodedata.normalize("NFKD", text.lower())


def trials(experiments: Mapping[str, Experiment] = EXPERIMENTS) -> dict[str, dict[str, Part]]:
    """Return, for every system, the names of the experiments about it, with the part that they judge.

    Raises UserError for an experiment that names an unlisted system, or names one without making a claim.
    """
    found: dict[str, dict[str, Part]] = {name: {} for name in systems()}
    for name, experiment in experiments.items():
        for system, part in experiment.judges().items():
            if system not in found:
                raise unknown(f"system in experiment {name}:", system, found)
            if not part.claims:
                raise UserError(f"Experiment '{name}' judges '{system}', but makes no claim. Add one.")
            found[system][name] = part
    return found


def status(system: System, judged: Mapping[str, Row]) -> str:
    """Return the status of a system: that of the weakest verdict on its central claims.

    "decided" where each has a word; "smaller than claimed" where the direction holds and a margin does not;
    "half decided" where only one end of an effect is known; "undecided"; "invalid" where a gate failed;
    "side matter only" without a central claim. judged: rows of the table of verdicts by claim.

    Raises UserError for a central claim that has no row.
    """
    found = [_verdict(system, claim, judged) for claim in system.central]
    if not found:
        return SIDE
    if any(word.startswith(INVALID) for word in found):
        return INVALID
    if any(word in (UNDECIDED, NOT_RUN) for word in found):
        return UNDECIDED
    if any(word in HALVES for word in found):
        return HALF
    return SMALLER if SMALLER in found else DECIDED


def world(system: System, judged: Mapping[str, Row]) -> str:
    """Return the kinds of evidence of a system's central claims, "toy training", as text."""
    return ", ".join(dict.fromkeys(judged[claim]["kind"] for claim in system.central))


def counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many systems have each status."""
    found = [row["status"] for row in rows]
    return {word: found.count(word) for word in STATUSES}


def _verdict(system: System, claim: str, judged: Mapping[str, Row]) -> str:
    if claim not in judged:
        raise UserError(
            f"System '{system.name}' names the central claim '{claim}', which has no verdict. Correct "
            f"{TABLE.name}, or judge it: testbed evidence judge --write"
        )
    return str(judged[claim]["verdict"])
