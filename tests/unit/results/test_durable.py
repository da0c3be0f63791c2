"""Files and locks: whole or absent, on full and read-only disks too.

A lost or damaged sweep.json locks nothing out: `testbed status --repair` makes it again.
"""

import contextlib
import errno
import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import call
from support.fake_training import train
from support.made_sweep import TOY
from support.refusals import refuses
from support.small_store import PACKS, content, files, filled

from analysis.tables.committed import load_results
from testbed.config.run import grid
from testbed.errors import UserError
from testbed.execution.runner import run_sweep
from testbed.results import atomic_files, manifest
from testbed.results.checkpoint_files import CHECKPOINT, checkpoint_path, forget
from testbed.results.repair import repair
from testbed.results.store import Store, read, status


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_is_one_error_with_the_path_and_nothing_is_lost(tmp_path):
    store = filled(tmp_path / "s", PACKS[:2])
    before = files(tmp_path / "s")
    with file_size_limit(1000), pytest.raises(UserError) as caught:
        store.commit(PACKS[2].id, content(PACKS[2]), {})
    message = str(caught.value)
    assert f"Cannot write {tmp_path}/s/packs/{PACKS[2].id}-" in message
    assert "Results so far are kept. Free some space and run the same command again." in message
    with file_size_limit(10), pytest.raises(UserError, match=r"File too large\. Free some space"):
        Store.start(tmp_path / "new", PACKS)  # there are no results yet to speak of
    assert files(tmp_path / "s") == before, "no torn file is left"
    assert store.commit(PACKS[2].id, content(PACKS[2]), {})


@pytest.mark.parametrize(
    ("error", "reason", "todo"),
    [(OSError(errno.ENOSPC, "No space"), "No space", "Free some space"),
     (OSError(errno.EDQUOT, "Quota"), "Quota", "Free some space"),
     (OSError(errno.EACCES, "Denied"), "Denied", "Make the folder writable"),
     (OSError("odd"), "odd", "Make the folder writable"),
     (FileNotFoundError(errno.ENOENT, "Nowhere"), "Nowhere", "Make its folder"),
     (NotADirectoryError(errno.ENOTDIR, "A file"), "A file", "Move away what stands in its place")],
)  # fmt: skip
def test_what_the_system_refuses_is_said_with_what_to_do(error, reason, todo, tmp_path):
    path = tmp_path / "packs" / "x"
    for kept in ("", "", "Results so far are kept. "):
        with pytest.raises(UserError) as told, atomic_files.mended(path):
            raise error
        said = f"Cannot write {path}: {reason}. {kept}{todo} and run the same command again."
        assert str(told.value) == said
        (path.parent.mkdir() if not path.parent.exists() else (path.parent / "a.parquet").touch())


def test_an_unfinished_file_is_passed_over_and_swept_away_when_old(tmp_path):
    filled(tmp_path / "s", PACKS[:1])
    old, new = (tmp_path / "s" / "packs" / f"{atomic_files.ASIDE}{name}" for name in ("old", "new"))
    old.write_bytes(b"half a fi")
    new.write_bytes(b"half a fi")
    os.utime(old, (0, 0))
    assert status(tmp_path / "s").done == 1
    Store.start(tmp_path / "s", PACKS)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_finished_pack_forgets_its_checkpoint_and_what_was_half_written_of_it(tmp_path, monkeypatch):
    monkeypatch.delenv(CHECKPOINT, raising=False)
    forget("a")  # no folder is set
    assert checkpoint_path("a") is None
    monkeypatch.setenv(CHECKPOINT, str(tmp_path / "c"))
    names = ["a.safetensors", "b.safetensors", ".tmp-a-1", ".tmp-b-1", ".tmp-old"]
    assert checkpoint_path("a") == tmp_path / "c" / names[0]
    for name in names:
        (tmp_path / "c" / name).touch()
    os.utime(tmp_path / "c" / ".tmp-old", (0, 0))
    for _ in range(2):
        forget("a")
        assert sorted(os.listdir(tmp_path / "c")) == [".tmp-b-1", "b.safetensors"]


def test_files_are_flushed_before_they_get_their_name(tmp_path, monkeypatch):
    events: list[str] = []
    kinds = {True: "flush folder", False: "flush file"}
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        events.append(kinds[os.path.isdir(f"/proc/self/fd/{descriptor}")])
        real_sync(descriptor)

    def link(source: Path, target: Path) -> None:
        events.append("name")
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    assert atomic_files.create(tmp_path / "file", b"x")
    assert events == ["flush file", "name", "flush folder"]


def test_a_mount_without_hard_links_still_keeps_the_first_file(tmp_path, monkeypatch):
    def no_link(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    assert atomic_files.create(tmp_path / "file", b"first")
    assert not atomic_files.create(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_is_held_by_one_and_leaves_no_trace(tmp_path):
    one, other = filled(tmp_path / "s", []), Store(tmp_path / "s")
    name = PACKS[0].id
    assert one.claim(name)
    assert one.claim(name), "claiming again is harmless"
    assert not other.claim(name)
    one.release(name)
    assert other.claim(name)
    other.close()
    assert list((tmp_path / "s" / ".locks").iterdir()) == []


FAKE = "support.fake_training:train"
CELLS = grid(TOY, recipe=["grpo", "m2po"], steps=[1, 2], seed=range(2))


def ran(folder: Path, cells=CELLS) -> dict[str, bytes]:
    run_sweep(cells, folder, workers=0, function=FAKE)
    return files(folder)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["a flipped bit", "deleted"])
@pytest.mark.parametrize("both", [False, True], ids=["one copy", "both copies"])
def test_a_plan_is_rebuilt_to_the_same_bytes_and_answers(tmp_path, damage, both):
    before, rows = ran(tmp_path / "s"), read(tmp_path / "s").to_pylist()
    plan, packs = (tmp_path / "s" / manifest.NAME).read_bytes(), manifest.planned(tmp_path / "s")
    for name in (manifest.NAME, manifest.SECOND)[: 1 + both]:
        damage(tmp_path / "s" / name)
    refuses(r"status \S+ --repair", status, tmp_path / "s")
    refuses(r"status \S+ --repair", ran, tmp_path / "s")
    said = repair(tmp_path / "s")
    assert ("results and provenance" if both else "second copy") in said
    assert manifest.planned(tmp_path / "s") == packs, "provenance holds the cells too"
    assert read(tmp_path / "s").to_pylist() == rows
    assert ran(tmp_path / "s") == before
    assert (tmp_path / "s" / manifest.NAME).read_bytes() == plan
    assert (tmp_path / "s" / manifest.SECOND).read_bytes() == plan
    (tmp_path / "s" / manifest.SECOND).unlink()
    assert repair(tmp_path / "s") == "sweep.json is sound; nothing to repair."
    assert (tmp_path / "s" / manifest.SECOND).read_bytes() == plan


def test_packs_without_a_trace_come_back_with_the_sweeps_command(tmp_path):
    """Without copy and provenance the ids of cells are those of the results, and of failures."""
    filled(tmp_path / "s", PACKS[3:5])
    damaged = tmp_path / "s" / "packs" / f"{PACKS[0].id}-{'0' * 64}.parquet"
    damaged.write_bytes(content(PACKS[0]))  # not the content that its name tells
    for name in (manifest.NAME, manifest.SECOND):
        (tmp_path / "s" / name).unlink()
    repair(tmp_path / "s")
    assert status(tmp_path / "s").planned == status(tmp_path / "s").done == 2
    refuses("holds another sweep", Store.start, tmp_path / "s", PACKS[:4])
    store = Store.start(tmp_path / "s", PACKS)
    assert list(store.packs) == [pack.id for pack in PACKS]
    assert (store.status().planned, store.status().done) == (6, 2)


def test_provenance_edited_by_hand_cannot_put_cells_into_a_plan(tmp_path):
    ran(tmp_path / "s")
    packs = Store(tmp_path / "s").packs
    path = min((tmp_path / "s" / "provenance").iterdir())
    more = json.loads(path.read_text())
    more["planned"]["cells"][0]["note"] = "by hand"
    texts = ['{"planned": {"cells": [{"id": "x", "run": {}}]}}', '{"planned": 3}', "[" * 100_000]
    for text in (*texts, json.dumps(more)):
        path.write_text(text)
        for name in (manifest.NAME, manifest.SECOND):
            (tmp_path / "s" / name).unlink()
        repair(tmp_path / "s")
        assert dict(Store(tmp_path / "s").packs) == dict(packs)
    assert "by hand" not in (tmp_path / "s" / manifest.NAME).read_text()


def lose_the_plan(runs, report=None):
    """Train, after somebody has deleted the plan."""
    for name in (manifest.NAME, manifest.SECOND):
        (Path(LOST["folder"]) / name).unlink(missing_ok=True)
    return train(runs, report)


LOST: dict[str, Path] = {}


def test_a_run_does_not_end_well_when_its_plan_went_missing(tmp_path):
    LOST["folder"] = tmp_path / "s"
    with pytest.raises(UserError, match="has lost its sweep.json"):
        run_sweep(CELLS, tmp_path / "s", workers=0, function=f"{__name__}:lose_the_plan")
    refuses("--repair", load_results, tmp_path / "s")
    repair(tmp_path / "s")
    assert status(tmp_path / "s").done == len(CELLS)


def test_the_command_repairs_and_counts(tmp_path, capsys):
    ran(tmp_path / "s")
    (tmp_path / "s" / manifest.NAME).unlink()
    for words, code, told in (([], 2, "--repair"), (["--repair"], 0, "rebuilt from its second copy")):
        ended, _, err = call(capsys, "status", tmp_path / "s", *words)
        assert (ended, told in err) == (code, True)
    shutil.rmtree(tmp_path / "s" / "packs")
    (tmp_path / "s" / manifest.NAME).unlink()
    (tmp_path / "s" / manifest.SECOND).unlink()
    refuses("no results", repair, tmp_path / "s")


def test_results_of_several_versions_of_the_code_are_no_plan(tmp_path):
    from testbed.results.repair import _one_fingerprint

    found = {"a": ({"run_version": "1"}, b""), "b": ({"run_version": "2"}, b"")}
    refuses("results of several versions of the code", _one_fingerprint, tmp_path, found)
    assert _one_fingerprint(tmp_path, {"a": found["a"]}) == found["a"][0]
