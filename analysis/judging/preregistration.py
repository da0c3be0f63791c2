"""What was fixed before a table was made: question, cells, margins, stopping rule and statements of claims.

`commit` writes it down beside the runs before the first of them; the table's manifest carries it, so that
anyone sees whether today's file still says the same.
"""

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from analysis.experiment import Experiment
from testbed.config.run import cell_id
from testbed.errors import UserError
from testbed.results import atomic_files

REWORDED = Path(__file__).with_name("reworded.csv")
"""What says the same in other words since its table was made, and the words before. A row of a claim
also has its effect and what it asks, for tests/experiments/test_rewording.py; others are questions."""
PRESET, UNCHANGED, CHANGED, PILOT = "pre-set", "unchanged", "changed since", "pilot"
"""Relation of a claim to its table, see `standing`."""


def digest(said: Any) -> str:
    """Return 16 hex digits that name a JSON-able value."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def design(experiment: Experiment, question: str = "") -> dict[str, Any]:
    """Return the digest of an experiment's design, and of the statement of each of its claims.

    The design is the question (or `question`), the cells without their seeds, these or the stopping rule, and
    the margins.
    """
    cells = experiment.first_cells()
    rule = experiment.stop.written() if experiment.stop else sorted({cell.seed for cell in cells})
    kinds = sorted({cell_id(replace(cell, seed=0)) for cell in cells})
    said = [question or experiment.question, kinds, rule, dict(experiment.margins), list(experiment.metrics)]
    claims = {name: digest(entry.promises["statement"]) for name, entry in experiment.claims.items()}
    return {"design": digest(said), "claims": claims}


@cache
def reworded() -> dict[str, dict[str, str]]:
    """Return the rows of reworded.csv by claim or experiment."""
    with REWORDED.open(newline="", encoding="utf-8") as file:
        return {row["claim"]: row for row in csv.DictReader(file)}


_LAST: list[tuple[Experiment, int, dict[str, Any]]] = []
"""The last design asked for, which all claims of an experiment share, and its number of claims."""


def commit(experiment: Experiment, root: Path) -> dict[str, Any]:
    """Write an experiment's design beside its runs, or return the one written earlier."""
    path = root / f"{experiment.name}.preset.json"
    if not path.exists():
        root.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, json.dumps(design(experiment), indent=1, sort_keys=True).encode())
    return read(experiment, root)


def read(experiment: Experiment, root: Path) -> dict[str, Any]:
    """Return the design written before the runs; {} if there is none."""
    path = root / f"{experiment.name}.preset.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}). It says what was fixed before the runs; "
            "without it they are a pilot: remove it, or the runs."
        ) from error
    return dict(found)


def _designs(experiment: Experiment) -> dict[str, Any]:
    if not (_LAST and _LAST[0][0] is experiment and _LAST[0][1] == len(experiment.claims)):
        _LAST[:] = [(experiment, len(experiment.claims), design(experiment))]
    return _LAST[0][2]


def standing(experiment: Experiment, claim: str, written: Mapping[str, Any]) -> str:
    """Return the relation of a claim to its table.

    "pre-set": the file still says what was written before the first run, or a row of `reworded` does in
    other words. "unchanged": the same for a table that is computed in one go, where nobody can tell whether
    it was looked at before. "changed since": the file says something else now. "pilot": nothing was written.
    written: from the table's manifest, or {}.
    """
    if claim not in written.get("claims", {}):
        return PILOT
    today = _designs(experiment)
    asked, said = {today["design"]}, {today["claims"][claim]}
    if experiment.name in reworded():
        asked.add(design(experiment, reworded()[experiment.name]["before"])["design"])
    if claim in reworded():
        said.add(digest(reworded()[claim]["before"]))
    if written["design"] not in asked or written["claims"][claim] not in said:
        return CHANGED
    return PRESET if experiment.compute is None else UNCHANGED
