"""P15: old result folders stay readable and can be gone on with; newer formats are refused politely."""

import json
import shutil
from pathlib import Path

import pytest
from support.fake_training import train
from support.refusals import refuses
from support.small_store import CELLS, PACKS, content, filled

from testbed.config.run import Run, grid
from testbed.execution.packs import plan
from testbed.results import fingerprint
from testbed.results.store import Failure, Store, read, status

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("name", ["store_format_1", "store_format_1_digest"])
def test_a_folder_of_every_layout_stays_readable(name, campaign):
    """The fixtures were written once: by the first store, and by the first whose plan has a digest."""
    table = read(GOLDEN / name)
    cells = grid(Run(), lag=[0, 4], seed=range(2))
    expected = train(cells)
    assert table["accuracy"].to_pylist() == list(expected["accuracy"])
    histogram = "rollout_corr/log_rho_sequence_histogram"
    assert table[histogram].to_pylist() == [list(row) for row in expected[histogram]]
    now = status(GOLDEN / name)
    assert (now.planned, now.done, now.failed, now.pending) == (4, 4, 0, 0)
    assert dict(Store(GOLDEN / name).packs) == {pack.id: pack.names for pack in plan(cells)}
    campaign.tried(f"reading tests/golden/{name}", 1)


def as_before(folder: Path) -> None:
    """Write the plan and the failures of a folder as the first version of the store did."""
    packs = [{"id": pack.id,
              "cells": [{"id": name, "run": vars(cell)}
                        for name, cell in zip(pack.names, pack.cells, strict=True)]}
             for pack in PACKS]  # fmt: skip
    data = {"fingerprint": dict(fingerprint.fingerprint()), "packs": packs}
    (folder / "sweep.json").write_text(json.dumps(data, indent=1, sort_keys=True))
    for path in (folder / "failures").iterdir():
        record = json.loads(path.read_text())
        del record["sha256"]
        path.write_text(json.dumps(record, indent=1, sort_keys=True))


def test_a_folder_of_the_first_layout_is_gone_on_with(tmp_path, campaign):
    store = filled(tmp_path / "s", PACKS[:3])
    failure = Failure(PACKS[3].id, "oom", "too much", PACKS[3].names)
    store.fail(failure)
    as_before(tmp_path / "s")
    again = Store.start(tmp_path / "s", PACKS)
    assert again.status().failures == (failure,)
    for pack in PACKS[3:]:
        again.commit(pack.id, content(pack), {})
    now = again.status()
    assert (now.done, now.failed) == (len(CELLS), 0)
    shutil.rmtree(tmp_path / "s" / "provenance")
    assert read(tmp_path / "s").equals(read_of(tmp_path / "t"))
    campaign.tried("resuming a folder of the first layout", 1)


def read_of(folder: Path):
    filled(folder)
    return read(folder)


def test_a_first_layout_with_a_changed_id_is_refused(tmp_path, campaign):
    filled(tmp_path / "s")
    as_before(tmp_path / "s")
    good = (tmp_path / "s" / "sweep.json").read_text()
    for old in (PACKS[1].id, PACKS[1].names[0]):
        (tmp_path / "s" / "sweep.json").write_text(good.replace(old, old[:-1] + "ab"[old[-1] == "a"]))
        refuses("has other cells than its id says", status, tmp_path / "s")
    campaign.tried("a changed id in a plan of the first layout", 2)


def test_a_newer_format_is_refused_politely(tmp_path, campaign):
    for newer in (1, 2, 10**6):
        tomorrow = {"fingerprint": {"format": fingerprint.FORMAT + newer}, "packs": "in a way not yet known"}
        (tmp_path / "sweep.json").write_text(json.dumps(tomorrow))
        refuses(r"has format \d+, this testbed reads up to 1\. Install a newer", read, tmp_path)
    campaign.tried("newer formats", 3)
