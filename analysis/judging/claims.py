"""Claims: a sentence, and the evidence for or against it.

An identity or an enumerated result is decided by computation: it holds within its tolerance or it does not. A
claim on a table is judged by bets (analysis.judging.e_values) on a first run and on a replication with fresh
seeds, and its word by one rule over all claims (analysis.judging.rule).
"""

from __future__ import annotations

import csv
import fnmatch
import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging import digests
from analysis.judging.comparisons import Read, reading
from analysis.judging.e_values import Evidence
from testbed.errors import unknown
from testbed.registry import Entry, Registry

REPLICATION = 1_000_000
"""Offset of the replication's seeds, so that no seed occurs in both runs."""


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

    def __getitem__(self, name: str) -> Entry:
        return self.alone(name) or super().__getitem__(name)

    def alone(self, name: str) -> Entry | None:
        """Return a claim of the committed table, and load only its experiment; None if all must be loaded."""
        there = committed().get(name, "")
        if self._experiments is None or there not in self._experiments:
            return None
        return self._experiments[there].claims.get(name)


CLAIMS = Claims(EXPERIMENTS)
VERDICTS = Path(__file__).parents[1] / "verdicts.csv"


@functools.cache
def committed() -> dict[str, str]:
    """Return the experiment of every claim in the committed table; empty without a table."""
    if not VERDICTS.is_file():
        return {}
    with VERDICTS.open(newline="", encoding="utf-8") as file:
        return {row["claim"]: row["experiment"] for row in csv.DictReader(file)}


def matching(pattern: str) -> list[str]:
    """Return the claims that match a shell pattern, or those of the experiment of that name.

    Raises UserError with the nearest name if none matches.
    """
    if CLAIMS.alone(pattern):
        return [pattern]
    if pattern in EXPERIMENTS and EXPERIMENTS[pattern].claims:
        return list(EXPERIMENTS[pattern].claims)
    found = [name for name in CLAIMS if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise unknown("claim", pattern, CLAIMS)
    return found


def is_statistical(entry: Entry) -> bool:
    """True if the claim is judged on replications or runs, not decided by a computation."""
    return bool(entry.promises["kind"] == "statistical")


def kind_of(entry: Entry) -> str:
    """Return the kind of evidence: identity, enumerated, small world, toy training or real model."""
    if not is_statistical(entry):
        return str(entry.promises["kind"])
    experiment = EXPERIMENTS[entry.promises["experiment"]]
    if id(experiment) not in _WORLDS:
        _WORLDS[id(experiment)] = _made_of(experiment)
    return _WORLDS[id(experiment)]


_WORLDS: dict[int, str] = {}


def _made_of(experiment: Experiment) -> str:
    source = EXPERIMENTS[experiment.runs] if experiment.runs else experiment
    policies = {cell.policy for cell in source.cells()} if source.cells is not None else set()
    if "hf" in policies or (source.cells is None and digests.loads_a_model(source.name)):
        return "real model"
    if "toy" in policies or (source.cells is None and digests.trains(source.name)):
        return "toy training"
    return "small world"


class Seen(NamedTuple):
    """A judged claim on a table: its evidence, the evidence of the whole table, and the arms compared.

    table: both runs as one, with distinct seeds; None for a claim without a table.
    """

    evidence: Evidence
    table: pd.DataFrame | None
    read: list[Read]


def look(entry: Entry, frame: pd.DataFrame | None) -> Evidence:
    """Return a claim's evidence, see `examine`."""
    return examine(entry, frame).evidence


def examine(entry: Entry, frame: pd.DataFrame | None) -> Seen:
    """Return a claim's evidence: from a computation, from a table, or from both runs in a table.

    The evidence of two runs is that of all their units in order: bets on the replication start with the
    wealth of those on the first run, so their e-values multiply. frame: the claim's table; None for a claim
    without one.
    """
    if frame is None:
        return Seen(entry.function(), None, [])
    parts, both = _split(entry, frame) if is_statistical(entry) else ((), frame)
    runs = tuple(entry.function(part) for part in parts)
    with reading() as read:
        evidence = entry.function(both)
    return Seen(replace(evidence, runs=runs) if runs else evidence, both, read)


_LAST: list[tuple[pd.DataFrame, int | None, tuple[pd.DataFrame, ...], pd.DataFrame]] = []
"""The table split last; all claims of an experiment read the same parts, which must not be changed."""


def _split(entry: Entry, frame: pd.DataFrame) -> tuple[tuple[pd.DataFrame, ...], pd.DataFrame]:
    """Return the two runs of a table, if it has them, and both as one."""
    fresh = entry.promises["fresh"]
    if not (_LAST and _LAST[0][0] is frame and _LAST[0][1] == fresh):
        _LAST[:] = [(frame, fresh, tuple(_runs(entry, frame)), _both(frame))]
    return _LAST[0][2:]


def _runs(entry: Entry, frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield rows of the first run and of the replication, if a table has both; seed -1 is in both."""
    if entry.promises["fresh"] is not None:
        unit = frame["seed" if "seed" in frame else "replica"]
        again, shared = unit >= entry.promises["fresh"], unit < 0
    elif "run" in frame and "seed" in frame:
        again = frame["run"] == "replication"
        # No row: this column gives every one its run.
        shared = ~again & again
    else:
        return
    if again.any() and not again.all():
        yield frame[~again]
        yield frame[again | shared]


def _both(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of both runs as one run, with distinct seeds."""
    if "run" not in frame:
        return frame
    again = frame["run"] == "replication"
    frame = frame.assign(run="both")
    if "seed" in frame and set(frame["seed"][again]) & set(frame["seed"][~again]):
        frame["seed"] = frame["seed"] + REPLICATION * again
    return frame
