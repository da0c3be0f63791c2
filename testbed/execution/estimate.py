"""How long a sweep takes: the first steps of one pack of each kind, timed, and the rest in proportion."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.config.pack import Pack
from testbed.config.run import Run
from testbed.execution.packs import STACKED

KINDS = 3
"""Kinds of packs that are timed; those beyond are taken to be like their mean."""
STEPS = 12
"""Steps that are timed: with a row every 10 steps, one of them is evaluated."""
LONGEST = 20.0
"""Seconds after the first step at which timing ends in any case."""

Train = Callable[[tuple[Run, ...], Callable[[int, int], None]], object]


@dataclass(frozen=True)
class Pace:
    """Seconds until a pack has made its first step (loading, compiling, warm start), and per step after."""

    start: float
    step: float

    def of(self, steps: int) -> float:
        """Return the seconds of a pack of so many steps."""
        return self.start + self.step * (steps - 1)


class _Enough(Exception):
    """Enough steps have been timed."""


def pace(pack: Pack, train: Train, clock: Callable[[], float] = time.monotonic) -> Pace:
    """Return a pack's pace from its first STEPS steps, or as many as LONGEST seconds hold."""
    began = clock()
    marks: list[float] = []

    def report(_done: int, _total: int) -> None:
        marks.append(clock())
        if len(marks) >= STEPS or marks[-1] - marks[0] > LONGEST:
            raise _Enough

    with contextlib.suppress(_Enough):
        train(pack.cells, report)
    later = len(marks) - 1
    return Pace(marks[0] - began, (marks[-1] - marks[0]) / later if later else 0.0)


def seconds(
    packs: Sequence[Pack], workers: int, train: Train, clock: Callable[[], float] = time.monotonic
) -> float:
    """Return about how long the packs take on so many workers, each on a core of its own.

    A pack is not cut: with fewer packs than workers some stand idle, which the estimate knows.
    """
    first: dict[tuple[object, ...], Pack] = {}
    for pack in packs:
        first.setdefault(_kind(pack), pack)
    timed = {kind: pace(pack, train, clock) for kind, pack in list(first.items())[:KINDS]}
    mean = Pace(*(sum(getattr(p, name) for p in timed.values()) / len(timed) for name in ("start", "step")))
    all_of_them = [timed.get(_kind(pack), mean).of(pack.cells[0].steps) for pack in packs]
    return max(sum(all_of_them) / workers, max(all_of_them))


def _kind(pack: Pack) -> tuple[object, ...]:
    """Return what decides the cost of a pack: its number of cells and the fields that they share."""
    names = (item.name for item in dataclasses.fields(Run) if item.name not in STACKED)
    return (len(pack.cells), *(getattr(pack.cells[0], name) for name in names))
