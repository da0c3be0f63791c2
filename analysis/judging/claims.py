"""Claims: a sentence, the evidence for or against it, and a verdict that may be "refuted" or "inconclusive".

An exact claim is decided by computation: it holds within its tolerance or it does not. A statistical claim is
decided by a two-sided test on a committed table, its p adjusted over all statistical claims there are,
whichever of them are looked at; picking claims afterwards therefore buys no significance. One whose
experiment has a stopping rule must come out twice, see `replicated`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.stats import false_discovery_control

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging.intervals import clopper_pearson_interval, student_interval
from testbed.errors import UserError, unknown
from testbed.registry import Entry, Registry

if TYPE_CHECKING:
    import pandas as pd

    from analysis.tables.committed import Table

ALPHA = 0.05
"""Expected share, over all statistical claims, of false ones among those "supported" or "refuted"."""


class Claims(Registry):
    """The claims of all experiments, by name."""

    def __init__(self, experiments: Mapping[str, Experiment]) -> None:
        super().__init__("claim")
        self._experiments: Mapping[str, Experiment] | None = experiments

    def _load(self) -> dict[str, Entry]:
        if self._experiments is not None:
            every = [entry for each in self._experiments.values() for entry in each.claims.values()]
            self._experiments = None
            for entry in every:
                self.add(entry)
        return self._entries


CLAIMS = Claims(EXPERIMENTS)


@dataclass(frozen=True)
class Evidence:
    """What was found, and how surely.

    effect: oriented so that a statistical claim says effect > 0, an exact one effect <= tolerance.
    low, high: its 95% interval, unadjusted; equal to effect for an exact claim.
    p: two-sided, unadjusted; NaN for an exact claim. holds, tolerance: only for an exact claim.
    n: independent units (seeds, replications) of the smallest arm, or relations checked.
    note: what effect measures, and anything a reader must know, such as rows left out.
    arms: groups that were tested one by one, on the same units or others. cells: values in all of them.
    runs: of a claim that is decided by its first run and a replication on fresh seeds, the evidence of both.
    """

    effect: float
    low: float
    high: float
    p: float
    n: int
    note: str
    holds: bool | None = None
    tolerance: float | None = None
    arms: int = 1
    cells: int = 0
    runs: tuple[Evidence, ...] = ()


def exact(gap_C: ArrayLike, tolerance: float, note: str) -> Evidence:
    """Return evidence that every gap is at most `tolerance`; effect is the largest. NaN does not hold."""
    gaps_C = np.atleast_1d(np.asarray(gap_C, dtype=np.float64)).ravel()
    worst = float(gaps_C.max())
    holds = bool(worst <= tolerance)
    return Evidence(worst, worst, worst, math.nan, gaps_C.size, note, holds, tolerance, cells=gaps_C.size)


def mean_above_zero(x_N: ArrayLike, note: str) -> Evidence:
    """Return evidence about mean(x) > 0 from independent units: Student's t test, two-sided.

    Fewer than two units, or units that are all equal, cannot be tested so: p = 1.
    """
    values_N = np.asarray(x_N, dtype=np.float64).ravel()
    n = values_N.size
    if n == 0:
        return Evidence(math.nan, -math.inf, math.inf, 1.0, 0, note)
    found = student_interval(values_N)
    spread = float(values_N.std(ddof=1)) if n > 1 else 0.0
    if spread <= 1e-12 * abs(found.center):  # equal up to rounding
        return Evidence(found.center, -math.inf, math.inf, 1.0, n, note, cells=n)
    t = found.center / (spread / math.sqrt(n))
    p = float(2 * special.stdtr(n - 1, -abs(t)))
    return Evidence(found.center, found.low, found.high, p, n, note, cells=n)


def everywhere(
    groups: Mapping[Any, ArrayLike],
    note: str,
    test: Callable[[ArrayLike, str], Evidence] = mean_above_zero,
) -> Evidence:
    """Return evidence that the mean is above zero in every group of independent units.

    All means above zero: every test must reject, so the largest p stands, and there is nothing to correct
    for. One below: its p times the number of groups. Effect, interval and p are those of the worst group.
    Units of different groups need not be independent. test: of one group; by default Student's. Source:
    intersection-union test, Berger (1982).
    """
    tests = {name: test(x_N, note) for name, x_N in groups.items()}
    if not tests:
        return mean_above_zero([], f"{note}; no rows")
    above = all(found.effect > 0 for found in tests.values())
    worst = max(tests, key=lambda n: tests[n].p) if above else min(tests, key=lambda n: tests[n].effect)
    p = tests[worst].p if above else min(1.0, len(tests) * tests[worst].p)
    # A group without units is no agreement: nothing is decided.
    if missing := [name for name, found in tests.items() if math.isnan(found.effect)]:
        worst, p = missing[0], 1.0
    found = tests[worst]
    means = ", ".join(f"{tests[name].effect:+.4f} at {name}" for name in tests)
    return replace(
        found,
        p=p,
        n=min(t.n for t in tests.values()),
        arms=len(tests),
        cells=sum(t.n for t in tests.values()),
        note=f"{note}: {means}; worst: {worst}",
    )


def more_often(first_N: Sequence[bool], second_N: Sequence[bool], note: str) -> Evidence:
    """Return evidence that the first event is more frequent than the second, in n pairs: exact McNemar test.

    Only pairs in which exactly one of the two happened say anything. effect = (b - c) / (b + c) with b pairs
    for the first and c for the second; interval from Clopper-Pearson for b / (b + c). Where the second event
    never happens alone, no number of pairs can refute: ask `on_most` too. Source: McNemar (1947).
    """
    pairs = list(zip(first_N, second_N, strict=True))
    b = sum(1 for x, y in pairs if x and not y)
    c = sum(1 for x, y in pairs if y and not x)
    note += f"; p >= {2.0 ** (1 - len(pairs)):.2g} by design" if pairs else ""
    if c == 0:
        note += ", and not to be refuted while the second never happens alone"
    if b + c == 0:
        return Evidence(0.0, -1.0, 1.0, 1.0, len(pairs), note, cells=2 * len(pairs))
    found = clopper_pearson_interval(b, b + c)
    p = min(1.0, 2 * float(special.bdtr(min(b, c), b + c, 0.5)))
    share, low, high = (2 * each - 1 for each in (found.center, found.low, found.high))
    return Evidence(share, low, high, p, len(pairs), note, cells=2 * len(pairs))


def on_most(event_N: Sequence[bool], note: str) -> Evidence:
    """Return evidence that an event has a chance above 1/2, from n independent units: exact binomial test.

    effect = share - 1/2, interval from Clopper-Pearson. It can be refuted, as `more_often` cannot where one
    of two events never happens: none of n has p = 2^(1-n), as all of n have.
    """
    n, happened = len(event_N), sum(map(bool, event_N))
    if n == 0:
        return Evidence(math.nan, -math.inf, math.inf, 1.0, 0, note)
    found = clopper_pearson_interval(happened, n)
    p = min(1.0, 2 * float(special.bdtr(min(happened, n - happened), n, 0.5)))
    note += f"; p >= {2.0 ** (1 - n):.2g} by design"
    return Evidence(found.center - 0.5, found.low - 0.5, found.high - 0.5, p, n, note, cells=n)


def replicated(first: Evidence, again: Evidence, pooled: Evidence, level: float) -> Evidence:
    """Return the evidence of a first run and of its replication on fresh seeds, with the pooled interval.

    p = max(p_first, p_again)^2 where both are decided at the level, and the same way, else 1: of two
    independent p-values, both are below t with chance t^2 at most. So nothing is decided that does not come
    out twice.
    """
    agree = first.effect * again.effect > 0
    larger = max(first.p, again.p)
    p = larger**2 if agree and pooled.effect * first.effect > 0 and larger <= level else 1.0
    return replace(pooled, p=p, n=first.n + again.n, runs=(first, again))


def false_discovery(p: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted for a false discovery rate: min over j >= i of p_(j) m (1 + ... + 1/m) / j.

    Decide what is at most alpha, and the expected share of false verdicts among those decided is at most
    alpha, however the claims hang together; many share a table. Source: Benjamini and Yekutieli (2001),
    theorem 1.3.
    """
    if not p:
        return {}
    return dict(zip(p, map(float, false_discovery_control(list(p.values()), method="by")), strict=True))


def verdict(evidence: Evidence, p_adjusted: float, alpha: float = ALPHA) -> str:
    """Return supported, refuted or inconclusive.

    Exact claims are never inconclusive. A statistical claim is decided when its adjusted two-sided p is at
    most alpha, and then by the sign of its effect.
    """
    if evidence.holds is not None:
        return "supported" if evidence.holds else "refuted"
    if not p_adjusted <= alpha or math.isnan(evidence.effect):
        return "inconclusive"
    return "supported" if evidence.effect > 0 else "refuted"


NO_TABLE = "no table"
"""In place of a verdict, where the data do not hold what a claim is judged on."""


def run_claims(
    pattern: str = "*",
    data: Path | None = None,
    alpha: float = ALPHA,
    fresh: Mapping[str, Table] | None = None,
) -> list[dict[str, Any]]:
    """Return one JSON-able row per claim whose name matches the shell pattern, in order of names.

    Keys: claim, verdict, statement, kind, effect, low, high, p, p_adjusted, tolerance, n, arms, cells, runs,
    note, source, standing; a number that is not finite, or does not apply, is None. Where the data lack a
    claim's table, its verdict is "no table". data: as in
    analysis.tables.condensed.load_tables; None takes the committed tables. fresh: tables that take the place
    of those of their names.

    Raises:
        UserError: no claim matches, or the tables of all matching claims are missing.
    """
    from analysis.tables.condensed import load_tables

    chosen = [name for name in CLAIMS if fnmatch.fnmatchcase(name, pattern)]
    if not chosen:
        raise unknown("claim", pattern, CLAIMS)
    statistical = {name for name in CLAIMS if CLAIMS[name].promises["kind"] == "statistical"}
    # A statistical claim drags its whole family along, for the correction of p.
    judged = sorted(set(chosen) | (statistical if statistical & set(chosen) else set()))
    needs_tables = any(CLAIMS[name].promises["table"] for name in judged)
    tables = {**(load_tables(data) if needs_tables else {}), **(fresh or {})}
    frames = {name: table.frame for name, table in tables.items()}
    evidence: dict[str, Evidence] = {}
    for name in judged:
        table = CLAIMS[name].promises["table"]
        if table is None:
            evidence[name] = CLAIMS[name].function()
        elif table in frames:
            evidence[name] = look(CLAIMS[name], frames[table])
    if not set(chosen) & set(evidence):
        table = CLAIMS[chosen[0]].promises["table"]
        raise UserError(
            f"Claim '{chosen[0]}' needs table '{table}', but {data or 'the committed data'} gives only "
            f"{', '.join(sorted(frames)) or 'none'}. Run the sweep that fills it."
        )
    # A claim of the family that could not be looked at counts with p = 1: it makes the others stricter.
    adjusted = false_discovery(
        {name: evidence[name].p if name in evidence else 1.0 for name in sorted(statistical & set(judged))}
    )
    return [
        _row(
            CLAIMS[name], evidence[name], adjusted.get(name, math.nan), alpha, _standing(CLAIMS[name], tables)
        )
        if name in evidence
        else _no_table(CLAIMS[name], alpha)
        for name in chosen
    ]


def _no_table(entry: Entry, alpha: float) -> dict[str, Any]:
    """Return the row of a claim whose table is not there."""
    nothing = Evidence(math.nan, math.nan, math.nan, math.nan, 0, f"no table '{entry.promises['table']}'")
    return {**_row(entry, nothing, math.nan, alpha, ""), "verdict": NO_TABLE}


def _standing(entry: Entry, tables: Mapping[str, Table]) -> str:
    """Return pre-set, changed since or pilot, see preset.standing; "" for an exact claim."""
    from analysis.experiment import EXPERIMENTS
    from analysis.judging.preregistration import standing

    if entry.promises["kind"] == "exact":
        return ""
    written = tables[entry.promises["table"]].made.get("preset", {}) if entry.promises["table"] else {}
    return standing(EXPERIMENTS[entry.promises["experiment"]], entry.name, written)


def look(entry: Entry, frame: pd.DataFrame) -> Evidence:
    """Return a claim's evidence in its table: of the whole, or of its first run and of its replication."""
    stop = entry.promises["stop"]
    if stop is None or entry.promises["kind"] == "exact":
        return entry.function(frame)
    again = frame["seed"] >= stop.fresh
    first, second, pooled = (entry.function(rows) for rows in (frame[~again], frame[again], frame))
    return replicated(first, second, pooled, stop.level)


def _row(entry: Entry, evidence: Evidence, p_adjusted: float, alpha: float, standing: str) -> dict[str, Any]:
    numbers = {name: getattr(evidence, name) for name in ("effect", "low", "high", "p")} | {
        "p_adjusted": p_adjusted
    }
    return {
        "claim": entry.name,
        "verdict": verdict(evidence, p_adjusted, alpha),
        "statement": entry.promises["statement"],
        "kind": entry.promises["kind"],
        **{name: float(value) if math.isfinite(value) else None for name, value in numbers.items()},
        "tolerance": evidence.tolerance,
        "n": evidence.n,
        "arms": evidence.arms,
        "cells": evidence.cells,
        "runs": [_run(each, entry.promises["stop"].level) for each in evidence.runs],
        "note": evidence.note,
        "source": entry.source,
        "standing": standing,
    }


def _run(evidence: Evidence, level: float) -> dict[str, Any]:
    """Return what one of two runs says by itself."""
    numbers = {name: getattr(evidence, name) for name in ("effect", "low", "high", "p")}
    finite = {name: float(value) if math.isfinite(value) else None for name, value in numbers.items()}
    return {"verdict": verdict(evidence, evidence.p, level), **finite, "n": evidence.n}
