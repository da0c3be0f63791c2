"""Packs: cells that run stacked, the unit of work and of commit. The plan depends only on the sweep."""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_, itemgetter
from pathlib import Path
from typing import Any

from testbed.config.pack import Pack, largest, packed
from testbed.config.run import Run, cell_ids
from testbed.errors import UserError
from testbed.results import manifest

STACKED = ("recipe", "recipe_args", "lag", "seed", "learning_rate")
"""Fields in which the cells of one pack may differ."""


def plan(cells: Iterable[Run]) -> tuple[Pack, ...]:
    """Return the packs of a sweep, ordered by their first cells.

    Cells equal in every field but STACKED, with schedules that cut a batch into equally many parts, share
    packs of near-equal size, at most `largest` each. Time and memory grow linearly with the cells. Raises
    UserError if there is no cell, or the same cell twice.
    """
    cells = tuple(cells)
    names = list(cell_ids(cells))
    _refuse_duplicates(names)
    chunks = [chunk for group in _groups(cells) for chunk in _split(group, largest(cells[group[0]]))]
    return tuple(packed(i, [cells[j] for j in c], [names[j] for j in c]) for i, c in enumerate(chunks))


def plan_into(cells: Sequence[Run], folder: str | Path | None, extend: bool = False) -> tuple[Pack, ...]:
    """Return the packs of a sweep, as the results folder has them if it does.

    A folder with exactly these cells keeps its packs, however they were made. With `extend` it keeps the
    packs of all its cells, and new cells follow in separate packs.
    """
    packs = plan(cells)
    there = manifest.planned(Path(folder)) if folder and _differs(Path(folder), packs) else ()
    held = {name for pack in there for name in pack.names}
    ours = {name: cell for pack in packs for name, cell in zip(pack.names, pack.cells, strict=True)}
    if not there or not (extend or held == ours.keys()):
        return packs  # of another sweep, which the store refuses
    fresh = [cell for name, cell in ours.items() if name not in held]
    added = plan(fresh) if fresh else ()
    return there + tuple(packed(len(there) + p.index, p.cells, p.names) for p in added)


def _differs(folder: Path, packs: Sequence[Pack]) -> bool:
    """Return True if a folder has a plan that differs from these packs."""
    return (folder / manifest.NAME).exists() and list(manifest.load(folder).packs) != [p.id for p in packs]


def _refuse_duplicates(names: Sequence[str]) -> None:
    if not names:
        raise UserError("The sweep has no cells, expected at least one Run.")
    if len(set(names)) == len(names):
        return
    name, count = Counter(names).most_common(1)[0]
    raise UserError(f"The sweep holds cell {name} {count} times, expected each once; give them other seeds.")


def _groups(cells: Sequence[Run]) -> list[list[int]]:
    """Return the indices of cells that may share packs, group by group."""
    shape = itemgetter(*(f.name for f in dataclasses.fields(Run) if f.name not in STACKED))
    groups: dict[tuple[Any, ...], list[int]] = {}
    before: tuple[Any, ...] = ()
    group: list[int] = []
    slices: dict[str, int] = {}
    for index, cell in enumerate(cells):
        kind = shape(vars(cell))
        key = (*kind, _slices(cell, kind, slices))
        if before and all(map(is_, key, before)):
            group.append(index)  # a neighbor in a grid: no values to compare
            continue
        before, group = key, groups.setdefault(key, [])
        group.append(index)
    return list(groups.values())


def _slices(cell: Run, kind: tuple[Any, ...], known: dict[str, int]) -> int:
    """Return the number of parts into which such a cell's schedule cuts a batch; the lag can matter."""
    if cell.staleness == "exact":  # the others need torch, which planning can avoid
        return 1
    from testbed.staleness import plan_for

    settings = repr((*kind, cell.lag))
    if settings not in known:
        known[settings] = plan_for(cell).slices
    return known[settings]


def _split(places: Sequence[int], most: int) -> list[Sequence[int]]:
    """Split the indices into the fewest pieces of at most `most`, of near-equal size."""
    pieces = -(-len(places) // most)
    ends = [len(places) * piece // pieces for piece in range(pieces + 1)]
    return [places[start:end] for start, end in itertools.pairwise(ends)]


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count` of a plan; packs are dealt in turn. Written i/n, i from 1 to n."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Return the shard named by "2/8"; raise UserError for anything else."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"Shard '{text}' does not exist, expected i/n with i from 1 to n, as 1/4.")
        return cls(int(match[1]), int(match[2]))

    def of(self, packs: Sequence[Pack]) -> tuple[Pack, ...]:
        """Return this shard's packs; shards of one count are disjoint and cover the plan."""
        return tuple(packs[self.number - 1 :: self.count])
