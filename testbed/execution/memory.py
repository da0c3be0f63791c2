"""Estimate the memory of a pack before it starts: weights, versions, optimizer, activations.

All numbers are bytes. They count only what grows with the cells, so a refused pack could not run; Python,
torch and compilers need more.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from testbed.config.pack import Pack
from testbed.config.run import Run, cell_id
from testbed.errors import UserError
from testbed.execution.rank_processes import ranks_of

COPIES = 4
"""Copies of the weights that a step holds: theta, its gradient, the new weights and the reference."""


@dataclass(frozen=True)
class Room:
    """Usable memory, in total and for versions; disk: place for versions instead, None without one.

    host: the machine's memory next to a GPU's, for versions that the GPU has no room for.
    """

    memory: int
    disk: int | None = None
    host: int | None = None

    @classmethod
    def now(cls, device: str) -> "Room":
        """Return this machine's free memory; versions may use half of it unless a folder stores them."""
        import torch

        from testbed.staleness.storage import SPILL, available

        folder = os.environ.get(SPILL, "")
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("device 'cuda' was asked for, but torch sees no GPU; use device=cpu.")
        free = shutil.disk_usage(folder).free if folder and Path(folder).is_dir() else None
        host = available(torch.device("cpu")) if device == "cuda" else None
        return cls(available(torch.device(device)), free, host)

    @property
    def versions(self) -> int:
        """Most bytes of versions."""
        return max(self.memory, self.host or 0) // 2 if self.disk is None else self.disk


@dataclass(frozen=True)
class Need:
    """Memory of a pack: parameters per replica, bytes per weight, replicas, and versions over all of them.

    saved: bytes that versions save in the model's dtype. optimizer: stored weights per parameter.
    activations: an estimate for the largest batch.
    """

    parameters: int
    itemsize: int
    replicas: int
    versions: int
    optimizer: int
    activations: int
    saved: int = 0

    @property
    def kept(self) -> int:
        """Bytes of the versions."""
        return self.versions * self.one - self.saved

    @property
    def one(self) -> int:
        """Bytes of one replica's weights."""
        return self.parameters * self.itemsize

    @property
    def fixed(self) -> int:
        """Bytes besides the versions."""
        return self.replicas * (COPIES + self.optimizer) * self.one + self.activations

    def fits(self, room: Room) -> bool:
        """Return True if versions and the rest both fit into the room."""
        # Versions in a file or in the memory beside a GPU take nothing from the memory of the pack.
        inside = 0 if room.disk is not None or room.host is not None else self.kept
        return self.kept <= room.versions and self.fixed + inside <= room.memory

    def lines(self) -> str:
        """Return the parts as lines of text."""
        from testbed.staleness.storage import readable

        weights, optimizer = (self.replicas * n * self.one for n in (COPIES, self.optimizer))
        return (
            f"weights and gradients {readable(weights)} ({self.replicas} cells x {self.parameters:,} weights "
            f"of {self.itemsize} bytes), {self.versions} versions {readable(self.kept)}, "
            f"optimizer {readable(optimizer)}, activations about {readable(self.activations)}"
        )


def too_large(
    packs: Sequence[Pack], room_on: Callable[[str], Room], folder: str | Path | None = None
) -> Iterator[str]:
    """Yield one line for every distinct need above this machine's memory, with the largest lag that fits.

    Packs with results in the folder need nothing. Raises nothing: other checks report invalid cells.
    """
    rooms: dict[str, Room] = {}
    done: set[str] | None = None
    told: set[Need] = set()
    for pack in packs:
        device = pack.cells[0].device
        try:
            if device not in rooms:
                rooms[device] = room_on(device)
            need = needed(pack)
        except UserError as error:
            yield str(error)
            continue
        if need.fits(rooms[device]) or need in told:
            continue
        done = done_in(folder) if done is None else done
        if pack.id not in done:
            told.add(need)
            yield _refusal(pack, need, rooms[device])


def needed(pack: Pack) -> Need:
    """Return the memory of a pack; raise UserError for invalid cells."""
    first = pack.cells[0]
    parameters, itemsize, activations = _size(
        replace(first, seed=0, learning_rate=0.0, lag=0, recipe="grpo", recipe_args=(), staleness="exact",
                staleness_args=(), age_limit=-1, too_old="drop", anchor="recipe", anchor_args=(),
                critic="none", critic_args=())
    )  # fmt: skip
    kept: dict[tuple[object, ...], tuple[int, int]] = {}
    versions = saved = 0
    narrow = _narrow(first)
    for cell in pack.cells:
        key = (cell.lag, cell.recipe, cell.recipe_args)
        if key not in kept:
            kept[key] = _versions(replace(cell, seed=0, learning_rate=0.0))
        versions += sum(kept[key])
        saved += kept[key][0] * parameters * (itemsize - (narrow or itemsize))
    moments = 2 if first.optimizer == "adam" else 0
    # Each of several processes holds weights and versions; on GPUs, each on a separate one.
    copies = ranks_of(pack.cells) if first.device == "cpu" else 1
    replicas = len(pack.cells)
    return Need(
        parameters, itemsize, replicas * copies, versions * copies, moments, replicas * activations,
        saved * copies,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _size(run: Run) -> tuple[int, int, int]:
    """Return parameters, bytes per weight and bytes of activations of one cell."""
    from testbed.worlds.build_world import policy_size

    return policy_size(run)


@lru_cache(maxsize=4096)
def _versions(run: Run) -> tuple[int, int]:
    """Return the number of versions that a cell's schedule keeps, and its anchor."""
    from testbed.anchors import build_anchor
    from testbed.recipes import recipe
    from testbed.staleness import plan_for
    from testbed.worlds.task_registry import longest_response

    made = recipe[run.recipe].bind(**dict(run.recipe_args))()
    anchored = build_anchor(made, run.anchor, run.anchor_args).versions
    return plan_for(run).versions(run, longest_response(run)), anchored


def _narrow(run: Run) -> int:
    """Return the bytes per weight of a version, 0 for those of the weights."""
    if run.policy != "hf":
        return 0
    from testbed.worlds.generation import narrow_versions

    dtype = narrow_versions(run)
    return 0 if dtype is None else dtype.itemsize


def _refusal(pack: Pack, need: Need, room: Room) -> str:
    from testbed.staleness.storage import SPILL, readable

    name = cell_id(pack.cells[0])
    more = f" and {len(pack.cells) - 1} more" if len(pack.cells) > 1 else ""
    may = f"{readable(room.memory)} are free" + (
        f", and {readable(room.disk)} in {SPILL}" if room.disk is not None else ", half of it for versions"
    )
    may += f" or half of the machine's {readable(room.host)}" if room.host is not None else ""
    largest = largest_lag(pack, room)
    lag = "" if largest is None else f" The largest lag that would fit is {largest}."
    spill = "" if room.disk is not None else f" set {SPILL}=FOLDER to keep versions in a file,"
    return (
        f"The pack of {name}{more} cannot fit: {need.lines()}; {may}.{lag} Take a smaller lag,{spill} or run "
        "fewer cells at a time."
    )


def largest_lag(pack: Pack, room: Room) -> int | None:
    """Return the largest lag at which the pack would fit if all its cells had it; None if no lag fits.

    Cells of a smaller lag keep theirs.
    """
    lags = [cell.lag for cell in pack.cells]
    low, high = -1, max(lags)
    while high - low > 1:
        lag = (low + high) // 2
        cells = tuple(replace(cell, lag=min(cell.lag, lag)) for cell in pack.cells)
        try:
            fits = needed(replace(pack, cells=cells)).fits(room)
        except UserError:  # an invalid lag for this schedule
            return None
        low, high = (lag, high) if fits else (low, lag)
    return low if low >= 0 else None


def done_in(folder: str | Path | None) -> set[str]:
    """Return the packs with results in a folder; none if there is no such folder."""
    from testbed.results.store import Store

    try:
        return set() if folder is None else Store(folder).done()
    except UserError:  # no results folder yet
        return set()
