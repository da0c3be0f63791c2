"""Names that the evidence adds to `testbed list` and `testbed show`: sweeps, experiments, claims, systems."""

from collections.abc import Mapping
from typing import Any

from analysis.experiment import EXPERIMENTS, sweep, sweeps
from analysis.planted_bugs import about
from testbed.cli.extensions import Kind

Rows = list[dict[str, Any]]


def _sweeps() -> Rows:
    return [_described(name, cells) for name, cells in sweeps().items()]


def _described(name: str, cells: tuple[Any, ...]) -> dict[str, Any]:
    axes = {axis: sorted({getattr(c, axis) for c in cells}) for axis in ("recipe", "lag", "seed")}
    what = "; ".join(f"{axis} {', '.join(map(str, values))}" for axis, values in axes.items())
    return {"name": name, "cells": len(cells), "task": cells[0].task, "axes": what}


def _sweep_names() -> list[str]:
    return [name for name in EXPERIMENTS if EXPERIMENTS[name].cells is not None]


def _experiments() -> Rows:
    return [
        {
            "area": area,
            "name": name,
            "cells": len(EXPERIMENTS[name].table_cells()),
            "table": "yes" if EXPERIMENTS[name].keys else "no",
            "claims": len(EXPERIMENTS[name].claims),
            "what": EXPERIMENTS[name].question,
        }
        for area, names in EXPERIMENTS.areas().items()
        for name in names
    ]


def experiment(name: str) -> dict[str, Any]:
    """Return an experiment's declaration as JSON-compatible values; undeclared parts are "" or []."""
    from analysis.pages.experiment_page import commands, figure_of, origin

    found = EXPERIMENTS[name]
    return {
        "name": found.name,
        "question": found.question,
        "source": found.source,
        "differs": found.differs,
        "made of": origin(found),
        "keys": list(found.keys),
        "metrics": list(found.metrics),
        "margins": dict(found.margins),
        "figure": figure_of(found),
        "claims": [
            {"name": name, "kind": entry.promises["kind"], "statement": entry.promises["statement"]}
            for name, entry in found.claims.items()
        ],
        "see": list(found.see),
        "systems": list(found.judges()),
        "commands": commands(found),
    }


def _claims() -> Rows:
    from analysis.judging.claims import CLAIMS, kind_of
    from analysis.judging.verdicts import by_claim

    judged = by_claim()
    return [
        {
            "name": name,
            "kind": kind_of(entry),
            "verdict": judged[name]["verdict"] if name in judged else "not judged",
            "what": entry.promises["statement"],
        }
        for name, entry in CLAIMS.items()
    ]


def _claim_names() -> list[str]:
    from analysis.judging.claims import CLAIMS

    return list(CLAIMS)


def claim(name: str) -> dict[str, Any]:
    """Return a claim's statement, evidence and committed verdict, and the tested code if it is exact."""
    from analysis.judging.claims import CLAIMS
    from analysis.judging.table_gates import NOT_RECORDED, excuse
    from analysis.judging.verdicts import by_claim

    said = {"name": name, "statement": CLAIMS[name].promises["statement"]}
    row = by_claim().get(name)
    if row is None:
        return {**said, "verdict": "not judged", "source": CLAIMS[name].source}
    return {
        **said,
        "effect": in_words(row).removesuffix(":"),
        "it is": row["note"],
        "verdict": row["verdict"],
        "failed": row["gates"],
        "gates held": "; ".join(x for x in row["checked"].split("; ") if NOT_RECORDED not in x),
        "not recorded": excuse(row),
        "evidence": _bets(row),
        "kind": row["kind"],
        "set": row["standing"],
        "systems": row["systems"],
        "source": CLAIMS[name].source,
        "code": ", ".join(about(name)),
    }


def in_words(row: Mapping[str, Any]) -> str:
    """Return the effect with its interval, the claim's margin, and the number of units."""
    from analysis.pages.experiment_page import effect

    if row["verdict"] == "not run":
        return str(row["note"])
    cells = f", {row['agree']:.0f} of {row['cells']:.0f} cells" if (row["cells"] or 0) > 1 else ""
    return f"{effect(row)} ({row['asks']}), n {row['n']:.0f}{cells}:"


def _bets(row: Mapping[str, Any]) -> str:
    if not row["e"]:
        return ""
    runs = f"; first run {row['e_first']:.3g}, fresh seeds {row['e_fresh']:.3g}" if row["e_fresh"] else ""
    return f'e-value {row["e"]:.3g} for "{row["leans"]}"{runs}'


def _systems() -> Rows:
    from analysis.judging.verdicts import by_claim
    from analysis.pages.systems_page import facts

    return facts(by_claim())


def _system_names() -> list[str]:
    from analysis.judging.system_list import systems

    return list(systems())


def _system_aliases(name: str) -> tuple[str, ...]:
    """Return a system's number and short names."""
    from analysis.judging.system_list import short_names, systems

    return str(systems()[name].n), *short_names(name)


def system(name: str) -> dict[str, Any]:
    """Return the source and its claim, the verdict on it, and all experiments about the system."""
    from analysis.judging.system_list import short_names, source
    from analysis.judging.verdicts import by_claim
    from analysis.pages.systems_page import facts
    from testbed.objectives import objective

    (row,) = facts(by_claim(), only=name)
    of_objective = next((objective[each].source for each in short_names(name) if each in objective), "")
    experiments = [
        {**each, "claims": [_said(each_claim) for each_claim in each["claims"]]}
        for each in row["experiments"]
    ]
    return {
        **row,
        "source": source(name) or of_objective,
        "central": [_said(each) for each in row["central"]],
        "experiments": experiments,
    }


def _said(row: Mapping[str, Any]) -> str:
    more = "".join(f" ({text})" for text in (row["gates"], row["needs"]) if text)
    return f"{row['statement']} {row['effect']} ({row['asks']}): {row['verdict']}{more}"


KINDS = {
    "sweeps": Kind(
        "sweeps that `testbed run NAME` runs",
        _sweeps,
        "analysis/experiments",
        r"^    (?:\w.*, )?cells=",
        names=_sweep_names,
        detail=lambda name: _described(name, sweep(name)),
        use="testbed run {} --dry-run",
    ),
    "experiments": Kind(
        "questions with runs, tables and claims",
        _experiments,
        names=EXPERIMENTS.names,
        detail=experiment,
        use="testbed evidence run {}",
    ),
    "claims": Kind(
        "sentences with verdicts",
        _claims,
        "analysis/verdicts.csv",
        r"^(?!experiment,)[a-z]",
        names=_claim_names,
        detail=claim,
        use="testbed evidence judge {}",
    ),
    "systems": Kind(
        "published systems, with the status of their central claims",
        _systems,
        "analysis/judging/systems.csv",
        r"^\d+,",
        shown=("n", "name", "kind", "status", "world"),
        names=_system_names,
        detail=system,
        aliases=_system_aliases,
    ),
}
