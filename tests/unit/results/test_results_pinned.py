"""A results folder sound, damaged and merged, compared whole: tables, messages, files and commands."""

import json
import shutil

import numpy as np
import pytest
from support.command_line import call
from support.pins import outcome, pinned
from support.small_store import PACKS, filled

from testbed.config.run import cell_ids
from testbed.results import manifest, parquet, store
from testbed.results.fingerprint import difference, version_of
from testbed.results.merging import merge
from testbed.results.repair import repair
from testbed.results.store import Failure, Store


def spoilt(folder, how):
    """Damage a results folder of which four of six packs are done and one failed."""
    made = filled(folder, PACKS[:4])
    made.fail(Failure(PACKS[4].id, "ValueError", "x\ny", "trace\nback"))
    made.close()
    packs = sorted((folder / "packs").iterdir())
    name = manifest.NAME
    if how == "cut":
        packs[0].write_bytes(packs[0].read_bytes()[:-9])
    elif how == "swapped":
        packs[0].write_bytes(packs[1].read_bytes())
    elif how == "no manifest":
        (folder / name).unlink()
    elif how == "manifest cut":
        (folder / name).write_text((folder / name).read_text()[:-40])
    elif how == "manifest empty":
        (folder / name).write_text("")
    elif how.endswith("strangers"):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for letter in "dbac" if how == "strangers" else "dac":
            (folder / letter).touch()
        (folder / ".hidden").touch()
    return folder


@pytest.mark.parametrize("how", ["sound", "cut", "swapped", "no manifest", "manifest cut", "manifest empty",
    "strangers",
                                 "three strangers"])  # fmt: skip
def test_a_folder_is_told_mended_and_read_as_before(how, tmp_path, capsys):
    folder = spoilt(tmp_path / "s", how)
    first = outcome(store.status, folder)
    found = {
        "status": first, "table": outcome(lambda: store.read(folder).to_pandas().iloc[:, :6].tail(3)),
        "planned": outcome(lambda: [pack.id for pack in manifest.planned(folder)]),
        "command": call(capsys, "status", folder), "start": outcome(lambda: Store.start(folder,
        PACKS).status()),
        "other": outcome(lambda: Store.start(folder, PACKS[:2]).status()),
        "repair": outcome(repair, folder), "after": outcome(store.status, folder),
        "json": call(capsys, "status", folder, "--json")[:2], "files": len(list(folder.rglob("*"))),
        "merged": outcome(merge, [folder, filled(tmp_path / "t", PACKS[3:]).folder], tmp_path / "both"),
    }  # fmt: skip
    pinned("results", how, json.loads(json.dumps(_plain(found), default=str).replace(str(tmp_path), "…")))


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "to_dict"):
        return value.to_dict("list")
    if hasattr(value, "__dataclass_fields__"):
        return _plain(vars(value))
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def test_columns_of_every_kind_go_to_a_file_and_back():
    pack, rows = PACKS[0], 4
    n = np.arange(rows)
    columns = {
        "cell": np.repeat(list(cell_ids(pack.cells)), rows // len(pack.cells)), "step": n[::-1],
        "small": n.astype(np.uint8), "flag": n % 2 == 0, "single": n.astype(np.float32) / 3,
        "text": np.array(list("dcbe")),
        "lists": [np.arange(k) for k in (2, 0, 3, 1)], "lost": np.array([np.nan, np.inf, -np.inf, 0.0]),
        "wide": n.astype(np.uint64) + 2**60,
    }  # fmt: skip
    back = parquet.decode(parquet.encode(columns, pack))
    pinned(
        "results",
        "columns",
        {"schema": [f"{f.name} {f.type}" for f in back.schema], "rows": back.to_pydict()},
    )


def test_versions_are_compared_by_name():
    assert version_of("no-such-package-here") == "absent"
    ours = {"python": "3.11", "numpy": "2.0", "torch": "absent"}
    pairs = ({**ours, "torch": "2.1"}, {"python": "3.11"}, ours, {**ours, "os": "x"})
    pinned("results", "difference", [outcome(difference, theirs, ours) for theirs in pairs])
