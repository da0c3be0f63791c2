"""Gates: what must hold before a comparison may have a verdict. A failed gate makes the claim invalid.

    headroom      neither arm piles up at floor or ceiling; the margin can be reached and missed
    tuned         every arm's rate, and the one knob that its paper tunes, lies inside its grid
    long enough   outcomes are compared after each arm's plateau, or per unit of a stated budget
    acts          what the method adds did something
    off-switch    with the mechanism switched off the same claim is not supported
    rival         the paper's rival is an arm, at its best
    worlds        a claim on random worlds has at least 20 of them, seeds nested inside
    drift         a lag is given with the drift that it caused, beside that of which the source speaks

objections.csv holds what a review against the source found: such a gate counts as failed until the claim is
asked again in an experiment that passes it. A claim may declare checks of its own (`gates=`); what a
table answers by itself is in analysis.judging.table_gates, with its declaration in
analysis.judging.design_gates. A gate that does not apply says nothing.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pandas as pd

from analysis.experiment import EXPERIMENTS, GATES
from analysis.judging.claims import Seen, examine, is_statistical
from analysis.judging.design_gates import design_answers
from analysis.judging.table_gates import Answer, answers
from testbed.errors import UserError, unknown
from testbed.registry import Entry

OBJECTIONS = Path(__file__).with_name("objections.csv")


@cache
def objections(path: Path = OBJECTIONS) -> dict[str, tuple[str, str]]:
    """Return (gate, why) by claim, as a review found them.

    Raises UserError for an unknown gate and for two lines about one claim.
    """
    found: dict[str, tuple[str, str]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gate"] not in GATES:
                raise unknown(f"gate in {path.name}:", row["gate"], GATES)
            if row["claim"] in found:
                raise UserError(f"{path.name} has two lines about '{row['claim']}'; keep one.")
            found[row["claim"]] = row["gate"], row["why"]
    return found


def checked(entry: Entry, frame: pd.DataFrame | None, seen: Seen | None = None) -> list[Answer]:
    """Return the result of every gate that applies to a claim: objections, declared checks, and its table.

    seen: what judging it met, if it was judged already.
    """
    found = []
    if entry.name in objections():
        gate, why = objections()[entry.name]
        found.append(Answer(gate, False, why))
    if frame is None:
        return found
    for name, check in entry.promises["gates"].items():
        why = check(frame)
        found.append(Answer(name, not why, why or "as the claim's check says"))
    if is_statistical(entry):
        evidence, table, read = seen or examine(entry, frame)
        assert table is not None
        name = entry.promises["experiment"]
        budget = EXPERIMENTS[name].budget if name in EXPERIMENTS else ""
        found += answers(entry.function, table, read, evidence, name, budget)
        found += design_answers(entry, table, read, evidence)
    return found
