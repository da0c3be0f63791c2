"""docs/claims.md: every claim with its verdict and effect, in one table per experiment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.judging.claims import CLAIMS
from analysis.planted_bugs import about

HEAD = """# Claims

Written by `testbed claims page`; do not edit. `testbed claims run` judges them again, `testbed claims show
NAME` prints one.

An exact claim is decided by computation. Its effect is the largest distance from what the statement says, or
the largest excess over a bound, and it holds when that is at most its tolerance; below 0 there is slack. A
statistical claim is decided by a two-sided test on a committed table, with p adjusted so that of all claims
that are decided at most 5% are expected to be decided wrongly; its effect is positive when the data say so
too, with its 95% interval. n counts independent units, which are seeds or replications, in the smallest arm,
or the relations of an exact claim; arms are tested one by one, and cells are the values in all of them.
"refuted" and "inconclusive" are results. An exact claim is about the functions named: a test plants a bug in
each (`analysis/planted_bugs/`), and the claim must then be refuted.

"pre-set": question, cells, margins, stopping rule and statement were written down before the first run, and
the table's manifest holds their digests, which are those of today's files. "changed since": they are others
today. "unchanged": the same of a table that is computed in one go, where nobody can tell whether it had been
looked at before. "pilot": nothing was written down before; such a claim may have been chosen on the very data
that it is judged on. Where two runs are shown, seeds were added in blocks until each of them was decided by
itself, the second on fresh seeds; "supported" and "refuted" then need both, and the effect is that of all
seeds together (`analysis/judging/sequential.py`).
"""

COLUMNS = (
    *("claim", "verdict", "fixed", "statement", "effect", "first run; again", "tolerance", "n", "arms"),
    *("cells", "what the effect is", "about", "source"),
)

ROUNDING = 1e-6
"""An exact claim's effect below this is printed as a bound: its digits are rounding."""


def page(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the page of the rows that `run_claims` returns, by experiment and name."""
    experiments: dict[str, list[Mapping[str, Any]]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        experiments.setdefault(CLAIMS[row["claim"]].promises["experiment"], []).append(row)
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    score = ", ".join(
        f"{counts[word]} {word}" for word in ("supported", "refuted", "inconclusive") if word in counts
    )
    parts = [HEAD, f"{sum(counts.values())} claims: {score}.\n"]
    for name in sorted(experiments):
        parts.append(f"## [{name}](experiments.md#{name})\n")
        parts.append("| " + " | ".join(COLUMNS) + " |")
        parts.append("|---" * len(COLUMNS) + "|")
        parts += [_line(row) for row in sorted(experiments[name], key=lambda row: row["claim"])]
        parts.append("")
    return "\n".join(parts)


def read(text: str) -> dict[str, dict[str, str]]:
    """Return the rows of a page of claims by claim: column to text, as `page` has written them."""
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[:1] == ["claim"]:
            columns = cells
        elif columns and cells and (name := re.fullmatch("`(.+)`", cells[0])):
            rows[name[1]] = {**dict(zip(columns, cells, strict=True)), "claim": name[1]}
    return rows


def effect(row: Mapping[str, Any]) -> str:
    """Return the effect as text: "0" for rounding, "value [low, high]" for a statistical claim."""
    value = row["effect"]
    if value is None:
        return "none"
    if row["kind"] == "exact":
        return "0" if abs(value) < ROUNDING else f"{value:.2g}"
    if row["low"] is None or row["high"] is None:
        return f"{value:.3g}"
    return f"{value:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def sizes(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return tolerance, n, arms and cells as text; a dash for what the kind of claim does not have."""
    if row["kind"] == "exact":
        return f"{row['tolerance']:g}", str(row["n"]), "–", "–"
    return "–", str(row["n"]), str(row["arms"]), str(row["cells"])


def _line(row: Mapping[str, Any]) -> str:
    cells = (
        f"`{row['claim']}`",
        row["verdict"],
        row["standing"] or "–",
        row["statement"],
        effect(row),
        "; ".join(f"{effect({**each, 'kind': 'statistical'})}, n {each['n']}" for each in row["runs"]) or "–",
        *sizes(row),
        row["note"],
        ", ".join(f"`{name}`" for name in about(row["claim"])) or "–",
        row["source"],
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
