"""One comparison of arms, as data that is its own check (see analysis.judging.sentences)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from analysis.judging.comparisons import (
    Arm,
    Read,
    arm,
    at_floor,
    happens_more_often,
    happens_mostly,
    reading,
    sooner,
)
from analysis.judging.e_values import MEAN, MEDIAN, Evidence, exceeds, stays_below, within
from analysis.judging.replication import difference, level, slopes

Outcome: TypeAlias = str | Callable[[pd.DataFrame], Any]
"""A column or a function of the table; without an arm, a function that returns a number per unit."""
Way: TypeAlias = Literal["above", "below", "equal", "happens", "spared", "alone", "sooner"]
MEASURES = {"median": MEDIAN, "mean": MEAN}
DERIVED = "outcome"
"""Column that holds a computed outcome."""


@dataclass(frozen=True)
class Comparison:
    """One sentence about arms of a table, as data: it evaluates itself, and gates read its arms.

    way: what is asked. outcome: of what. first, second: arms; second None for a level, first None where the
    outcome is a number per unit, or {cell: numbers}.
    margin: in units of the outcome, of its logarithm where `log`, a factor where `sooner`. null: the value of
    no effect; by default the margin of a level, else 0. over: columns that both arms share.
    typical: "median", or "mean" of units that are about Gaussian. x: column over which a slope is taken.
    floor: value below which no arm can fall; arms both near it are no evidence of equality.
    off, rival: arms for which, in the first one's place, the sentence must not hold: the mechanism switched
        off, and what the source compares itself with.
    """

    way: Way
    outcome: Outcome
    first: Arm | None = None
    second: Arm | None = None
    margin: float = 0.0
    over: Arm = field(default_factory=dict)
    typical: str = "median"
    log: bool = False
    x: str = ""
    floor: float | None = None
    off: Arm | None = None
    rival: Arm | None = None
    null: float | None = None

    def __call__(self, table: pd.DataFrame) -> Evidence:
        if self.first is None:
            found = self._computed()(table)
            computed: Any = self._computed()
            name = getattr(computed, "func", computed).__name__.strip("_").replace("_", " ")
            what = "" if name == "<lambda>" else f" {name}"
            if self.way in ("happens", "spared"):
                wanted = np.asarray(found, dtype=np.float64) > 0.5
                return happens_mostly(wanted == (self.way == "happens"), f"share of units{what}")
            groups = found if isinstance(found, Mapping) else {"": found}
            return self._asked(groups, f"{self.typical}{what}")
        table, value = self._with_outcome(table)
        if self.way in ("happens", "spared", "alone", "sooner"):
            return self._event(table, value, self.first)
        with reading() as read:
            groups = self._groups(table, value, self.first)
        return self._asked(groups, self._note(value, self.first, read), self._floored(table, value))

    def _asked(self, groups: Mapping[str, Any], note: str, floored: tuple[str, ...] = ()) -> Evidence:
        measure = MEASURES[self.typical]
        if self.way == "equal":
            return within(groups, self.margin, note, measure, floored)
        level = self.first is not None and self.second is None and not self.x
        null = self.null if self.null is not None else self.margin if level else 0.0
        ask = exceeds if self.way == "above" else stays_below
        return ask(groups, self.margin, note, measure, null)

    def _computed(self) -> Callable[[pd.DataFrame], Any]:
        assert callable(self.outcome)
        return self.outcome

    def _with_outcome(self, table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
        if isinstance(self.outcome, str):
            return table, self.outcome
        return table.assign(**{DERIVED: self.outcome(table)}), DERIVED

    def _groups(self, table: pd.DataFrame, value: str, first: Arm) -> dict[str, Any]:
        if self.x:
            return slopes(table, self.x, value, {**first, **self.over})
        if self.second is None:
            table = table.assign(**{value: np.log(table[value])}) if self.log else table
            return level(table, value, {**first, **self.over})
        return difference(table, value, first, self.second, log=self.log, **self.over)

    def _event(self, table: pd.DataFrame, value: str, where: Arm) -> Evidence:
        where = {**where, **self.over}
        if self.way == "sooner":
            return sooner(value, where, {**(self.second or {}), **self.over}, self.margin)(table)
        first = arm(table, value, where)
        if self.way == "spared":
            return happens_mostly(first <= 0.5, f"share of seeds without {value}{_at(where)}")
        if self.second is None:
            return happens_mostly(first > 0.5, f"share of seeds with {value}{_at(where)}")
        second, kind = arm(table, value, {**self.second, **self.over}), "seeds"
        if self.way == "happens":
            kind = "discordant seeds"
        note = f"share of {kind} with {value}{_at(where)}, not{_at(self.second)}"
        if self.way == "happens":
            return happens_more_often(first, second, note)
        both = pd.DataFrame({"first": first, "second": second}).dropna() > 0.5
        return happens_mostly(both["first"] & ~both["second"], note)

    def _floored(self, table: pd.DataFrame, value: str) -> tuple[str, ...]:
        """Return the cells in which both arms are at the floor."""
        if self.floor is None or self.second is None or self.first is None:
            return ()
        both = [level(table, value, {**where, **self.over}) for where in (self.first, self.second)]
        same = [name for name in both[0] if name in both[1]]
        return tuple(
            name for name in same if at_floor([each[name] for each in both], self.margin, self.floor)
        )

    def _note(self, value: str, first: Arm, read: Collection[Read]) -> str:
        what = f"{self.typical} {'log ' if self.log else ''}{value}"
        if self.x:
            return f"{self.typical} slope of {value} over {self.x}{_at({**first, **self.over})}"
        if self.second is None:
            return f"{what}{_at({**first, **self.over})}"
        said = f"{what}{_at(first)}, less that{_at(self.second)}{_at(self.over)}"
        if len(read) != 2:
            return said
        typical = np.nanmedian if self.typical == "median" else np.nanmean
        one, other = (typical(each.values) for each in read)
        return f"{said}; {one:.3g} and {other:.3g}"


def _at(where: Arm) -> str:
    """Return " at learner IQL, steps 600"; where a value varies, the names of cells have it."""
    said = ", ".join(
        f"{name} {x}" for name, x in where.items() if isinstance(x, str) or not isinstance(x, Collection)
    )
    return f" at {said}" if said else ""
