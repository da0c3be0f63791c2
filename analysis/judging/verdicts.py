"""The table of verdicts, analysis/verdicts.csv: a row per claim, judged again only where something changed.

A row holds the evidence and the digests of its inputs. `leans` has the word that the evidence favors. The
verdict is that word if its e-value reaches the page's threshold (analysis.judging.rule) and no gate failed
(analysis.judging.gates); otherwise the word in `half`, on the same terms.
"""

from __future__ import annotations

import csv
import functools
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from analysis.experiment import EXPERIMENTS
from analysis.judging import digests, rule
from analysis.judging.claims import CLAIMS, examine, is_statistical, kind_of, matching
from analysis.judging.e_values import REFUTED, SUPPORTED, UNDECIDED, Evidence
from analysis.judging.gates import checked
from analysis.judging.preregistration import standing
from analysis.tables.committed import COMMITTED, Table, load_committed, manifest
from analysis.tables.condensed import load_tables
from testbed.errors import UserError
from testbed.results import atomic_files

TABLE = Path(__file__).parents[1] / "verdicts.csv"
COLUMNS = (
    *("experiment", "claim", "systems", "kind", "verdict", "effect", "low", "high", "asks", "leans"),
    *("e_first", "e_fresh", "e", "half", "e_half", "n", "cells", "agree", "tolerance"),
    *("gates", "checked", "standing", "note", "question", "table", "code"),
)
NUMBERS = ("effect", "low", "high", "e_first", "e_fresh", "e", "e_half", "n", "cells", "agree", "tolerance")
NOT_RUN = "not run"
"""Verdict on a claim whose table, or whose arms in it, were never made."""
INVALID = "invalid"
Row: TypeAlias = dict[str, Any]


@functools.cache
def stored(path: Path = TABLE) -> tuple[Row, ...]:
    """Return the committed rows, numbers as floats, empty as None; UserError for a wrong or missing file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. Write it with: testbed evidence judge --write"
        ) from error
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise UserError(
            f"{path} has columns {reader.fieldnames}. "
            "Write it again with: testbed evidence judge --write --all"
        )
    return tuple({**row, **{name: _number(row[name]) for name in NUMBERS}} for row in reader)


def by_claim(rows: Iterable[Row] | None = None) -> dict[str, Row]:
    """Return rows by their claim; the committed ones by default."""
    return {row["claim"]: row for row in (stored() if rows is None else rows)}


def write(rows: Sequence[Row], path: Path = TABLE) -> None:
    """Write the table, sorted by experiment and claim, five significant digits."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda row: (row["experiment"], row["claim"])):
        writer.writerow({name: _text(row[name]) for name in COLUMNS})
    atomic_files.replace(path, out.getvalue().encode())
    stored.cache_clear()


def changed(rows: Iterable[Row], tables: Mapping[str, str]) -> list[str]:
    """Return the experiments that have claims without a row, or other digests than today's.

    tables: digests of the committed tables by name.
    """
    known: dict[str, dict[str, Row]] = {}
    for row in rows:
        known.setdefault(row["experiment"], {})[row["claim"]] = row
    found = []
    for name, experiment in EXPERIMENTS.items():
        today = _digests(name, tables)
        there = known.get(name, {})
        same = all({key: row[key] for key in today} == today for row in there.values())
        if set(there) != set(experiment.claims) or not same:
            found.append(name)
    return found


def judge(
    experiments: Iterable[str] | None = None,
    tables: Mapping[str, Table] | None = None,
    only: Iterable[str] | None = None,
) -> list[Row]:
    """Return the rows of experiments' claims, judged now; verdicts by the rule come with `decide`.

    experiments: by default all. tables: in place of the committed ones. only: only these claims.

    Raises UserError for a committed table without a column of its experiment's design.
    """
    chosen = list(EXPERIMENTS) if experiments is None else list(experiments)
    wanted = None if only is None else set(only)
    rows = []
    for name in chosen:
        experiment = EXPERIMENTS[name]
        table = (tables or {}).get(name)
        if table is None and tables is None and name in manifest():
            table = load_committed([name])[name]
            _of_this_design(name, table)
        listed = {name: table.sha256} if table is not None else {}
        said = _digests(name, listed)
        for claim in experiment.claims:
            if wanted is None or claim in wanted:
                rows.append(_row(claim, table, said))
    return rows


def ask(
    pattern: str, data: Path | None = None, fresh: Mapping[str, Table] | None = None
) -> list[dict[str, Any]]:
    """Return the claims that match a shell pattern, judged now among the committed verdicts of all others.

    Keys: those of the table, and statement and source. data: folder of tables or results in place of the
    committed tables. fresh: tables that take the place of those of their names.

    Raises:
        UserError: no claim matches, or the tables of all matching claims are missing.
    """
    chosen = matching(pattern)
    experiments = list(dict.fromkeys(CLAIMS[name].promises["experiment"] for name in chosen))
    if data is None:
        tables = load_committed([name for name in experiments if name in manifest()])
    else:
        tables = load_tables(data)
    tables = {**tables, **(fresh or {})}
    rows = judge(experiments, tables, only=chosen)
    if all(row["verdict"] == NOT_RUN for row in rows):
        raise UserError(
            f"Claim '{chosen[0]}' needs table '{experiments[0]}', but {data or COMMITTED} gives only "
            f"{', '.join(sorted(tables)) or 'none'}. Run the sweep that fills it."
        )
    others = [row for row in stored() if row["claim"] not in chosen]
    decided = by_claim(decide([*others, *rows]))
    return [{**decided[name], **_said(name)} for name in chosen]


def _of_this_design(name: str, table: Table) -> None:
    experiment = EXPERIMENTS[name]
    lacks = {*experiment.keys, *experiment.metrics} - set(table.frame.columns)
    if lacks:
        raise UserError(
            f"The table of '{name}' lacks {', '.join(sorted(lacks))}, so another design made it. Make it "
            f"again: testbed evidence run {name} --write"
        )


def _said(claim: str) -> dict[str, str]:
    return {"statement": CLAIMS[claim].promises["statement"], "source": CLAIMS[claim].source}


def decide(rows: Iterable[Row]) -> list[Row]:
    """Return all rows with their verdicts by the one rule; rows must cover every claim."""
    found = list(rows)
    betting = [row for row in found if row["kind"] not in ("identity", "enumerated")]
    best = (max(row["e"] or 0.0, row["e_half"] or 0.0) for row in betting if not row["gates"])
    at = rule.threshold(best, len(betting))
    return [{**row, "verdict": _verdict(row, at)} for row in found]


def _verdict(row: Row, at: float) -> str:
    if row["verdict"] == NOT_RUN:
        return NOT_RUN
    if row["gates"]:
        return f"{INVALID}: {row['gates'].partition(':')[0]}"
    if row["kind"] in ("identity", "enumerated"):
        return str(row["leans"])
    return rule.verdict(at, (row["leans"], row["e"] or 0.0), (row["half"], row["e_half"] or 0.0))


def _digests(experiment: str, tables: Mapping[str, str]) -> dict[str, str]:
    computed = any(not is_statistical(entry) for entry in EXPERIMENTS[experiment].claims.values())
    return {
        "question": digests.of_question(experiment),
        "table": tables.get(experiment, "")[: digests.LENGTH],
        "code": digests.of_code(experiment, computed),
    }


def _row(claim: str, table: Table | None, known: Mapping[str, str]) -> Row:
    entry = CLAIMS[claim]
    wants = entry.promises["table"]
    start = {
        "experiment": entry.promises["experiment"],
        "claim": claim,
        "systems": "; ".join(_systems(claim)),
        "kind": kind_of(entry),
        "standing": _standing(claim, table),
        **known,
    }
    nothing = Evidence(math.nan, math.nan, math.nan, 0, f"no table '{wants}'")
    frame = table.frame if table is not None and wants else None
    seen = None if wants and table is None else examine(entry, frame)
    if seen is None or (is_statistical(entry) and not seen.evidence.n):
        row = {**start, **_evidence(nothing if seen is None else seen.evidence)}
        return {**row, "verdict": NOT_RUN, "leans": UNDECIDED, "gates": "", "checked": ""}
    said: dict[bool, list[str]] = {True: [], False: []}
    for answer in checked(entry, frame, seen):
        said[answer.holds].append(f"{answer.gate}: {answer.why}")
    gates = {"gates": "; ".join(said[False]), "checked": "; ".join(said[True])}
    return {**start, **_evidence(seen.evidence), "verdict": "", **gates}


def _evidence(found: Evidence) -> Row:
    word, e = (
        ((SUPPORTED if found.holds else REFUTED), None) if found.holds is not None else rule.leaning(found)
    )
    half, e_half = rule.half(found)
    first, fresh = (each.e.get(word) for each in found.runs) if found.runs else (None, None)
    return {
        **{name: getattr(found, name) for name in ("effect", "n", "note", "tolerance")},
        # A sequence may have excluded today's estimate; its end then moves to the estimate and keeps its
        # coverage.
        **{"low": min(found.low, found.effect), "high": max(found.high, found.effect)},
        "asks": found.asks if found.holds is None else f"<= {found.tolerance:g}",
        **{"leans": word, "e": e, "e_first": first, "e_fresh": fresh},
        **{"half": half, "e_half": e_half or None},
        "cells": len(found.cells) or None,
        "agree": sum(cell.agrees for cell in found.cells) if found.cells else None,
    }


def _systems(claim: str) -> list[str]:
    experiment = EXPERIMENTS[CLAIMS[claim].promises["experiment"]]
    return [name for name, part in experiment.judges().items() if claim in part.claims]


def _standing(claim: str, table: Table | None) -> str:
    """Return the relation of a claim to its table, see preregistration.standing; "" for a computation."""
    entry = CLAIMS[claim]
    if not is_statistical(entry):
        return ""
    written = table.made.get("preset", {}) if table is not None else {}
    return standing(EXPERIMENTS[entry.promises["experiment"]], claim, written)


def _number(text: str) -> float | None:
    return float(text) if text else None


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.5g}" if isinstance(value, (int, float)) else str(value)
