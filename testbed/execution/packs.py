"""Packs: the cells that run stacked, the unit of work and of commit. The plan depends on the sweep alone."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from testbed.config.pack import Pack, largest, pack_id
from testbed.config.run import Run, cell_id
from testbed.errors import UserError

STACKED = ("recipe", "recipe_args", "lag", "seed", "learning_rate")
"""Fields in which the cells of one pack may differ."""


def plan(cells: Iterable[Run]) -> tuple[Pack, ...]:
    """Return the packs of a sweep, in the order in which their first cells appear.

    Cells equal in every field but STACKED, whose schedules cut a batch into equally many parts, share packs
    of near-equal size, at most `largest` of them.
    Raises UserError when there is no cell, or the same cell twice.
    """
    cells = tuple(cells)
    _refuse_duplicates(cells)
    chunks = [chunk for group in _groups(cells) for chunk in _split(group, largest(group[0]))]
    return tuple(Pack(pack_id(chunk), index, chunk) for index, chunk in enumerate(chunks))


def _refuse_duplicates(cells: Sequence[Run]) -> None:
    if not cells:
        raise UserError("The sweep has no cells, expected at least one Run.")
    name, count = Counter(map(cell_id, cells)).most_common(1)[0]
    if count > 1:
        raise UserError(
            f"The sweep holds cell {name} {count} times, expected each once; give them other seeds."
        )


def _groups(cells: Iterable[Run]) -> list[list[Run]]:
    alike = dict.fromkeys(STACKED)
    shape = attrgetter(*(f.name for f in dataclasses.fields(Run) if f.name not in alike))
    groups: dict[tuple[Any, ...], list[Run]] = {}
    slices: dict[tuple[Any, ...], int] = {}
    for cell in cells:
        key = (shape(cell), cell.lag)
        if key not in slices:
            slices[key] = _slices(cell)
        groups.setdefault((key[0], slices[key]), []).append(cell)
    return list(groups.values())


def _slices(cell: Run) -> int:
    """Return into how many parts the cell's schedule cuts a batch; it can depend on the lag."""
    if cell.staleness == "exact":  # the others need torch, which a plan of packs can do without
        return 1
    from testbed.staleness import plan_for

    return plan_for(cell).slices


def _split(cells: Sequence[Run], most: int) -> list[tuple[Run, ...]]:
    """Return the cells cut into the fewest pieces of at most `most`, of near-equal size."""
    pieces = -(-len(cells) // most)
    ends = [len(cells) * piece // pieces for piece in range(pieces + 1)]
    return [tuple(cells[start:end]) for start, end in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count` of a plan; packs are dealt round like cards. Written i/n, i from 1 to n."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that "2/8" names; raise UserError when it names none."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"Shard '{text}' does not exist, expected i/n with i from 1 to n, as 1/4.")
        return cls(int(match[1]), int(match[2]))

    def of(self, packs: Sequence[Pack]) -> tuple[Pack, ...]:
        """Return this shard's packs; the shards of one count are disjoint and together the whole."""
        return tuple(packs[self.number - 1 :: self.count])
