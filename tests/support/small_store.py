"""A results folder of six one-cell packs, filled without any runner."""

from collections.abc import Sequence
from pathlib import Path

from support.fake_training import train

from testbed.config.pack import Pack
from testbed.config.run import Run, grid
from testbed.execution.packs import plan
from testbed.results.parquet import encode
from testbed.results.store import Store

CELLS = grid(Run(policy="hf", model="m"), lag=[0, 4], seed=range(3))
PACKS = plan(CELLS)


def content(pack: Pack) -> bytes:
    """Return the result file of a pack."""
    return encode(train(pack.cells), pack)


def filled(folder: Path, packs: Sequence[Pack] = PACKS) -> Store:
    """Return a store of the sweep in which these packs are finished."""
    store = Store.start(folder, PACKS)
    for pack in packs:
        assert store.commit(pack.id, content(pack), {})
    return store


def files(folder: Path) -> dict[str, bytes]:
    """Return the result files by name."""
    return {path.name: path.read_bytes() for path in sorted((folder / "packs").iterdir())}
