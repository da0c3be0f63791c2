"""Files and locks: whole or absent, on full and read-only disks too."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_store import PACKS, content, files, filled

from testbed.errors import UserError
from testbed.results import atomic_files
from testbed.results.store import Store, status


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_is_one_error_with_the_path_and_nothing_is_lost(tmp_path: Path) -> None:
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


def test_an_unfinished_file_is_passed_over_and_swept_away_when_old(tmp_path: Path) -> None:
    filled(tmp_path / "s", PACKS[:1])
    old, new = (tmp_path / "s" / "packs" / f"{atomic_files.ASIDE}{name}" for name in ("old", "new"))
    old.write_bytes(b"half a fi")
    new.write_bytes(b"half a fi")
    os.utime(old, (0, 0))
    assert status(tmp_path / "s").done == 1
    Store.start(tmp_path / "s", PACKS)
    assert (old.exists(), new.exists()) == (False, True)


def test_files_are_flushed_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_mount_without_hard_links_still_keeps_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    assert atomic_files.create(tmp_path / "file", b"first")
    assert not atomic_files.create(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_is_held_by_one_and_leaves_no_trace(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "s", []), Store(tmp_path / "s")
    name = PACKS[0].id
    assert one.claim(name)
    assert one.claim(name), "claiming again is harmless"
    assert not other.claim(name)
    one.release(name)
    assert other.claim(name)
    other.close()
    assert list((tmp_path / "s" / ".locks").iterdir()) == []
