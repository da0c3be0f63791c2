"""Merge results folders: every finished cell once, and the cells that are still to be run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.config.pack import Pack, packed
from testbed.errors import UserError
from testbed.results import atomic_files, manifest
from testbed.results.fingerprint import difference, fingerprint
from testbed.results.parquet import decode, encode
from testbed.results.store import Status, Store


@dataclass(frozen=True)
class Part:
    """A pack, or its cells missing from all earlier parts, and its source store."""

    whole: Pack
    pack: Pack
    store: Store
    done: bool

    @property
    def content(self) -> bytes:
        """Return the result file of these cells alone."""
        content = self.store.result(self.whole.id)
        if content is None:
            raise UserError(f"{self.store.folder}: the result of {self.whole} has disappeared. Merge again.")
        if self.pack.id == self.whole.id:
            return content
        columns = decode(content).to_pydict()
        kept = [row for row, cell in enumerate(columns["cell"]) if cell in self.pack.names]
        some: dict[str, list[Any]] = {name: [values[row] for row in kept] for name, values in columns.items()}
        return encode(some, self.pack)


def merge(folders: Sequence[str | Path], out: str | Path) -> Status:
    """Merge the cells of results folders into a new one, and return its counts; the folders stay unchanged.

    A finished cell comes from the first folder that has it, whole packs as the same bytes; a cell finished
    nowhere remains to be run. Repeating the merge changes nothing.

    Raises UserError for folders of other code, two results of one pack that differ, or an `out` that holds
    something else.
    """
    stores = [Store(folder) for folder in folders]
    for store in stores:
        if changed := difference(store.made_by, fingerprint()):
            raise UserError(f"{store.folder} was computed by other code: {changed}. Merge with that code.")
    parts = tuple(_parts(stores))
    merged = Store.start(out, [part.pack for part in parts])
    for part in parts:
        if part.done:
            merged.commit(part.pack.id, part.content, _provenance(part))
        elif failure := part.store.failure(part.pack.id):
            merged.fail(failure)
    return merged.status()


def _parts(stores: Sequence[Store]) -> Iterator[Part]:
    """Yield every folder's additions, finished packs of all folders first."""
    held: set[str] = set()
    known: dict[str, Store] = {}
    done = {id(store): store.done() for store in stores}
    for finished in (True, False):
        for store in stores:
            for pack in manifest.planned(store.folder):
                if (pack.id in done[id(store)]) != finished:
                    continue
                if finished and known.setdefault(pack.id, store).result(pack.id) != store.result(pack.id):
                    raise UserError(
                        f"{store.folder} has other numbers for {pack} than {known[pack.id].folder}; move one "
                        "of the two away."
                    )
                fresh = [index for index, name in enumerate(pack.names) if name not in held]
                held.update(pack.names)
                if fresh:
                    yield Part(pack, _some(pack, fresh), store, finished)


def _some(pack: Pack, places: Sequence[int]) -> Pack:
    if len(places) == len(pack.cells):
        return pack
    return packed(pack.index, [pack.cells[i] for i in places], [pack.names[i] for i in places])


def _provenance(part: Part) -> dict[str, Any]:
    """Return the known provenance of a result."""
    planned = {"planned": manifest.entry(part.pack)}
    return atomic_files.record(part.store.folder / "provenance" / f"{part.whole.id}.json") | planned
