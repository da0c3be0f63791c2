"""One comparison of arms, as data that is its own check (see analysis.judging.sentences)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from analysis.judging.comparisons import Arm, arm, at_floor, happens_more_often, happens_mostly
from analysis.judging.evidence import MEAN, MEDIAN, Evidence, exceeds, stays_below, within
from analysis.judging.replication import difference, level, slopes

Outcome: TypeAlias = str | Callable[[pd.DataFrame], pd.Series]
"""A column, or what computes one from the table."""
Way: TypeAlias = Literal["above", "below", "equal", "happens", "spared"]
MEASURES = {"median": MEDIAN, "mean": MEAN}
DERIVED = "outcome"
"""Column that holds a computed outcome."""


@dataclass(frozen=True)
class Comparison:
    """One sentence about arms of a table, as data: it is its own check, and gates read its arms.

    way: what is asked. outcome: of what. first, second: arms; second None for a level.
    margin: in units of the outcome, of its logarithm where `log`. over: columns that both arms share.
    typical: "median", or "mean" of units that are about Gaussian. x: column over which a slope is taken.
    floor: value below which no arm can fall; arms both near it are no evidence of equality.
    off, rival: arms for which, in the first one's place, the sentence must not hold: the mechanism switched
        off, and what the source compares itself with.
    drift: KL per token of the first arm's data, in nats, between which the source speaks.
    """

    way: Way
    outcome: Outcome
    first: Arm
    second: Arm | None = None
    margin: float = 0.0
    over: Arm = field(default_factory=dict)
    typical: str = "median"
    log: bool = False
    x: str = ""
    floor: float | None = None
    off: Arm | None = None
    rival: Arm | None = None
    drift: tuple[float, float] | None = None

    def __call__(self, table: pd.DataFrame) -> Evidence:
        """Return the evidence of a table."""
        table, value = self._with_outcome(table)
        if self.way in ("happens", "spared"):
            return self._event(table, value)
        groups = self._groups(table, value)
        measure, note = MEASURES[self.typical], self._note(value)
        if self.way == "equal":
            return within(groups, self.margin, note, measure, self._floored(table, value))
        null = self.margin if self.second is None and not self.x else 0.0
        ask = exceeds if self.way == "above" else stays_below
        return ask(groups, self.margin, note, measure, null)

    def _with_outcome(self, table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
        if isinstance(self.outcome, str):
            return table, self.outcome
        return table.assign(**{DERIVED: self.outcome(table)}), DERIVED

    def _groups(self, table: pd.DataFrame, value: str) -> dict[str, Any]:
        if self.x:
            return slopes(table, self.x, value, {**self.first, **self.over})
        if self.second is None:
            table = table.assign(**{value: np.log(table[value])}) if self.log else table
            return level(table, value, {**self.first, **self.over})
        return difference(table, value, self.first, self.second, log=self.log, **self.over)

    def _event(self, table: pd.DataFrame, value: str) -> Evidence:
        first = arm(table, value, {**self.first, **self.over})
        if self.way == "spared":
            return happens_mostly(first <= 0.5, f"share of seeds without {value}{_at(self.first)}")
        if self.second is None:
            return happens_mostly(first > 0.5, f"share of seeds with {value}{_at(self.first)}")
        note = f"share of discordant seeds with {value}{_at(self.first)}, not{_at(self.second)}"
        return happens_more_often(first, arm(table, value, {**self.second, **self.over}), note)

    def _floored(self, table: pd.DataFrame, value: str) -> tuple[str, ...]:
        """Return the cells in which both arms are at the floor."""
        if self.floor is None or self.second is None:
            return ()
        both = [level(table, value, {**where, **self.over}) for where in (self.first, self.second)]
        same = [name for name in both[0] if name in both[1]]
        return tuple(
            name for name in same if at_floor([each[name] for each in both], self.margin, self.floor)
        )

    def _note(self, value: str) -> str:
        what = f"{self.typical} {'log ' if self.log else ''}{value}"
        if self.x:
            return f"{self.typical} slope of {value} over {self.x}{_at({**self.first, **self.over})}"
        if self.second is None:
            return f"{what}{_at({**self.first, **self.over})}"
        return f"{what}{_at(self.first)}, less that{_at(self.second)}{_at(self.over)}"


def _at(where: Arm) -> str:
    """Return " at learner IQL, steps 600"; the names of cells say what has several values."""
    said = ", ".join(
        f"{name} {x}" for name, x in where.items() if isinstance(x, str) or not isinstance(x, Collection)
    )
    return f" at {said}" if said else ""
