"""The results folder: whole files or none, nothing foreign, nothing damaged averaged in."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fake_training import train

from testbed import durable, fingerprint, records, sweep_file
from testbed.config import Run, cell_id, grid
from testbed.errors import UserError
from testbed.packs import Pack, plan
from testbed.records import Failure, Store, folder_for, read, status
from testbed.tables import decode, encode

GOLDEN = Path(__file__).parent / "golden" / "store_format_1"
CELLS = grid(Run(policy="hf", model="m"), lag=[0, 4], seed=range(3))
PACKS = plan(CELLS)


def content(pack: Pack) -> bytes:
    return encode(train(pack.cells), pack)


def filled(folder: Path, packs: Sequence[Pack] = PACKS) -> Store:
    """Return a store of the sweep in which these packs are finished."""
    store = Store.start(folder, PACKS)
    for pack in packs:
        assert store.commit(pack.id, content(pack), {})
    return store


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "packs").iterdir())}


def test_a_table_comes_back_as_it_was_written() -> None:
    (pack,) = plan(grid(Run(), seed=range(2)))
    columns = {
        "cell": np.repeat(pack.names, 2),
        "step": np.array([0, 10, 0, 10]),
        "recipe": np.repeat(["grpo"], 4),
        "accuracy": np.array([0.1, np.nan, -0.0, 1e300]),
        "diverged": np.array([False, True, False, False]),
        "histogram": [np.array([1, 2]), np.array([3, 4]), np.array([0, 0]), np.array([5, 6])],
    }
    table = decode(encode(columns, pack))
    assert [str(field.type) for field in table.schema] == [
        "string",
        "int64",
        "string",
        "double",
        "double",
        "list<element: int64>",
    ]
    assert table["accuracy"].to_numpy().tobytes() == np.array([0.1, np.nan, -0.0, 1e300]).tobytes()
    assert table["histogram"].to_pylist() == [[1, 2], [3, 4], [0, 0], [5, 6]]
    assert table["diverged"].to_pylist() == [0.0, 1.0, 0.0, 0.0]


def test_rows_are_put_in_order_of_the_pack_and_the_step() -> None:
    (pack,) = plan(grid(Run(), seed=[5, 1]))
    first, second = pack.names
    columns = {"cell": [second, first, second, first], "step": [1, 1, 0, 0], "x": [4.0, 2.0, 3.0, 1.0]}
    table = decode(encode(columns, pack))
    assert table["x"].to_pylist() == [1.0, 2.0, 3.0, 4.0]
    assert table["cell"].to_pylist() == [first, first, second, second]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.pop("step"), r"misses the columns \['step'\]"),
        (lambda c: c.update(accuracy=c["accuracy"][:-1]), "equal lengths"),
        (lambda c: c.update(cell=np.array(["other"] * 3)), "foreign cells"),
    ],
)
def test_a_malformed_result_is_refused(change: object, expected: str) -> None:
    columns = train(PACKS[0].cells)
    change(columns)  # type: ignore[operator]
    with pytest.raises(ValueError, match=expected):
        encode(columns, PACKS[0])


def test_a_result_that_says_nothing_of_one_cell_is_refused() -> None:
    (pack,) = plan(grid(Run(), seed=range(2)))
    with pytest.raises(ValueError, match="none of"):
        encode(train(pack.cells[:1]), pack)


def test_the_same_numbers_give_the_same_bytes_in_another_process() -> None:
    script = (
        "import sys, hashlib; from testbed.config import Run, grid; from testbed.packs import plan\n"
        "from testbed.tables import encode; from fake_training import train\n"
        "pack = plan(grid(Run(policy='hf', model='m'), lag=[0, 4], seed=range(3)))[0]\n"
        "print(hashlib.sha256(encode(train(pack.cells), pack)).hexdigest())"
    )
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    assert there.stdout.strip() == hashlib.sha256(content(PACKS[0])).hexdigest()


def test_a_result_file_is_named_by_its_pack_and_its_content(tmp_path: Path) -> None:
    filled(tmp_path / "s", PACKS[:1])
    ((name, data),) = files(tmp_path / "s").items()
    assert name == f"{PACKS[0].id}-{hashlib.sha256(data).hexdigest()}.parquet"


def test_results_are_read_in_plan_order_whatever_order_they_came_in(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    filled(tmp_path / "two", PACKS[::-1])
    assert files(tmp_path / "one") == files(tmp_path / "two")
    table = read(tmp_path / "two")
    assert table.equals(read(tmp_path / "one"))
    assert table["cell"].to_pylist()[::3] == [cell_id(cell) for cell in CELLS]


def test_a_pack_is_committed_once(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", PACKS[:1])
    before = files(tmp_path / "s")
    assert not store.commit(PACKS[0].id, content(PACKS[0]), {})
    assert not store.commit(PACKS[0].id, b"other numbers", {})
    assert files(tmp_path / "s") == before


def test_two_results_of_one_pack_are_refused_rather_than_chosen_from(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", PACKS[:1])
    columns = train(PACKS[0].cells)
    other = encode(columns | {"accuracy": columns["accuracy"] + 1}, PACKS[0])
    name = f"{PACKS[0].id}-{hashlib.sha256(other).hexdigest()}.parquet"
    (tmp_path / "s" / "packs" / name).write_bytes(other)
    with pytest.raises(UserError, match="holds two results of pack"):
        store.status()


def test_shards_in_many_folders_are_read_as_one_table(tmp_path: Path) -> None:
    filled(tmp_path / "whole")
    filled(tmp_path / "a", PACKS[0::2])
    filled(tmp_path / "b", PACKS[1::2])
    assert read(tmp_path / "b", tmp_path / "a").equals(read(tmp_path / "whole"))


def test_folders_of_different_sweeps_code_or_numbers_are_not_merged(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    other = plan(grid(Run(policy="hf", model="m"), seed=range(3)))
    store = Store.start(tmp_path / "b", other)
    store.commit(other[0].id, content(other[0]), {})
    with pytest.raises(UserError, match="different sweeps"):
        read(tmp_path / "a", tmp_path / "b")
    filled(tmp_path / "c", PACKS[1:])
    columns = train(PACKS[0].cells)
    changed = encode(columns | {"accuracy": columns["accuracy"] + 1}, PACKS[0])
    Store(tmp_path / "c").commit(PACKS[0].id, changed, {})
    with pytest.raises(UserError, match="other numbers for pack"):
        read(tmp_path / "a", tmp_path / "c")


def test_a_folder_without_results_says_so(tmp_path: Path) -> None:
    Store.start(tmp_path / "s", PACKS)
    with pytest.raises(UserError, match="No finished results yet"):
        read(tmp_path / "s")


def test_planned_is_done_and_failed_and_pending_after_every_event(tmp_path: Path) -> None:
    dice = random.Random(1)
    store = Store.start(tmp_path / "s", PACKS)
    done: set[str] = set()
    failed: set[str] = set()
    for _ in range(60):
        pack = dice.choice(PACKS)
        event = dice.choice(["commit", "commit", "fail", "damage", "delete"])
        here = [path for path in (tmp_path / "s" / "packs").iterdir() if path.name.startswith(pack.id)]
        if event == "commit":
            store.commit(pack.id, content(pack), {})
            done.add(pack.id)
        elif event == "fail":
            store.fail(Failure(pack.id, "died", "", pack.names))
            failed.add(pack.id)
        elif here and event == "damage":
            here[0].write_bytes(here[0].read_bytes()[:-1])
            done.discard(pack.id)
        elif here:
            here[0].unlink()
            done.discard(pack.id)
        now = status(tmp_path / "s")
        assert now.planned == now.done + now.failed + now.pending == len(CELLS)
        assert (now.done, now.failed) == (len(done), len(failed - done))


def test_a_failure_is_kept_apart_from_results_and_ends_with_success(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", PACKS[1:])
    failure = Failure(PACKS[0].id, "timeout", "too long", PACKS[0].names, 2, "trace")
    store.fail(failure)
    assert store.failure(PACKS[0].id) == failure
    assert status(tmp_path / "s").failures == (failure,)
    assert PACKS[0].names[0] not in read(tmp_path / "s")["cell"].to_pylist()
    store.commit(PACKS[0].id, content(PACKS[0]), {})
    assert status(tmp_path / "s").failed == 0


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path, damage: str) -> None:
    """2000 flips, 2000 lengths; a flip that sha256 misses would be the first ever seen."""
    store = filled(tmp_path / "s", PACKS[:1])
    ((name, good),) = files(tmp_path / "s").items()
    path = tmp_path / "s" / "packs" / name
    dice = random.Random(2)
    for _ in range(2000):
        bad = bytearray(good)
        if damage == "flip":
            bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        else:
            del bad[dice.randrange(len(bad)) :]
        path.unlink()  # cheaper than to write over it
        path.write_bytes(bad)
        assert store._content(path) is None
    path.write_bytes(good)
    assert store._content(path) == good


def test_a_damaged_file_goes_to_quarantine_and_its_pack_is_pending(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    before = files(tmp_path / "s")
    name = next(iter(before))
    path = tmp_path / "s" / "packs" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    cells = read(tmp_path / "s")["cell"].to_pylist()
    assert len(set(cells)) == len(CELLS) - 1
    now = store.status()
    assert (now.done, now.pending, now.quarantined) == (len(CELLS) - 1, 1, 1)
    (kept,) = (tmp_path / "s" / "quarantine").iterdir()
    assert kept.read_bytes().endswith(b"?")
    pack = next(pack for pack in PACKS if name.startswith(pack.id))
    store.commit(pack.id, content(pack), {})
    assert files(tmp_path / "s") == before


def test_a_good_file_under_another_packs_name_is_not_taken_for_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", PACKS[:1])
    ((name, _),) = files(tmp_path / "s").items()
    path = tmp_path / "s" / "packs" / name
    path.rename(path.with_name(name.replace(PACKS[0].id, PACKS[1].id)))
    assert store.done() == set()
    assert store.status().quarantined == 1


def test_a_reader_of_a_link_out_of_the_folder_does_not_follow_it(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", PACKS[:1])
    ((name, _),) = files(tmp_path / "s").items()
    path = tmp_path / "s" / "packs" / name
    shutil.move(path, tmp_path / name)
    path.symlink_to(tmp_path / name)
    assert store.done() == set()


def test_numbers_of_other_code_are_never_mixed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "s", PACKS[:1])
    changed = dict(fingerprint.fingerprint()) | {"numpy": "1.0"}
    monkeypatch.setattr(sweep_file, "fingerprint", lambda: changed)
    with pytest.raises(UserError, match=r"computed by other code: numpy .* instead of 1\.0\. Go on with"):
        Store.start(tmp_path / "s", PACKS)
    store = Store.start(tmp_path / "other", PACKS)
    for path in (tmp_path / "s" / "packs").iterdir():
        shutil.copy(path, tmp_path / "other" / "packs")
    assert store.done() == set()
    assert status(tmp_path / "s").done == 1, "the old folder stays readable"
    with pytest.raises(UserError, match=r"different code: numpy 1\.0 instead of"):
        read(tmp_path / "s", tmp_path / "other")


def test_another_sweep_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s", PACKS[:1])
    other = plan(grid(Run(policy="hf", model="m"), lag=[0], seed=range(4)))
    with pytest.raises(UserError, match="another sweep: 6 cells, of which this sweep of 4 has 3"):
        Store.start(tmp_path / "s", other)
    with pytest.raises(UserError, match="another sweep"):
        Store.start(tmp_path / "s", PACKS[::-1])


def test_a_folder_with_anything_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"it holds thesis\.tex\. Choose another folder"):
        Store.start(tmp_path, PACKS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file, expected a folder"):
        Store.start(tmp_path / "thesis.tex", PACKS)
    with pytest.raises(UserError, match=r"has no sweep\.json"):
        status(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '"text"',
        "{}",
        '{"fingerprint": {"format": 1}}',
        '{"fingerprint": {"format": "x"}, "packs": []}',
        '{"fingerprint": {"format": 1}, "packs": [3]}',
        '{"fingerprint": {"format": 1}, "packs": [{"id": "../../escape", "cells": []}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_or_hostile_plan_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(UserError, match="cannot be read as the plan of a sweep"):
        Store(tmp_path)


def test_a_newer_format_is_refused_politely(tmp_path: Path) -> None:
    plan_of_tomorrow = {"fingerprint": {"format": fingerprint.FORMAT + 1}, "packs": "in a way not yet known"}
    (tmp_path / "sweep.json").write_text(json.dumps(plan_of_tomorrow))
    with pytest.raises(UserError, match=r"has format 2, this testbed reads up to 1\. Install a newer"):
        read(tmp_path)


def test_a_folder_of_format_1_stays_readable() -> None:
    """The fixture was written once, by the first version of the store, and is never written again."""
    table = read(GOLDEN)
    cells = grid(Run(), lag=[0, 4], seed=range(2))
    expected = train(cells)
    assert table["accuracy"].to_pylist() == list(expected["accuracy"])
    assert table["rollout_corr/log_rho_sequence_histogram"].to_pylist()[0] == list(
        expected["rollout_corr/log_rho_sequence_histogram"][0]
    )
    now = status(GOLDEN)
    assert (now.planned, now.done, now.failed, now.pending) == (4, 4, 0, 0)


@pytest.mark.parametrize("part", ["packs", "failures", "provenance", "quarantine"])
def test_a_part_that_is_a_link_out_of_the_folder_is_refused(tmp_path: Path, part: str) -> None:
    filled(tmp_path / "s", [])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s" / part).rmdir()
    (tmp_path / "s" / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="must be a folder, not a link"):
        Store.start(tmp_path / "s", PACKS)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a\0b", "a\nb", "-rf", "x" * 101, "é"]
)
def test_a_name_cannot_leave_the_output_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot name a results folder"):
        folder_for(tmp_path, name)


def test_a_plain_name_is_a_folder_inside_the_root_and_a_link_is_refused(tmp_path: Path) -> None:
    assert folder_for(tmp_path, "staleness-2.1_b") == tmp_path / "staleness-2.1_b"
    (tmp_path / "link").symlink_to("/tmp")
    with pytest.raises(UserError, match="symbolic link"):
        folder_for(tmp_path, "link")


def test_a_task_named_like_a_path_does_not_leave_the_folder(tmp_path: Path) -> None:
    packs = plan([Run(task="../../../escape", recipe="/etc/x")])
    store = Store.start(tmp_path / "in" / "s", packs)
    store.commit(packs[0].id, content(packs[0]), {})
    store.fail(Failure(packs[0].id, "died", "", packs[0].names))
    found = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {("in", "s")}
    assert status(tmp_path / "in" / "s").done == 1


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
    assert files(tmp_path / "s") == before, "no torn file is left"
    assert store.commit(PACKS[2].id, content(PACKS[2]), {})


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take away the right to write, from root too: root acts as nobody inside."""
    mode = folder.stat().st_mode
    user = os.geteuid()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(mode if path.is_dir() else 0o644)


def test_a_read_only_folder_is_readable_and_writing_is_one_clear_error() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        packs = PACKS[:2]
        filled(folder / "s", packs)
        damaged = next(iter((folder / "s" / "packs").iterdir()))
        damaged.write_bytes(b"damaged")
        with read_only(folder):
            assert status(folder / "s").done == 1
            assert len(set(read(folder / "s")["cell"].to_pylist())) == 1
            with pytest.raises(UserError, match=r"Cannot write .*: Permission denied.*Make the folder writ"):
                Store(folder / "s").commit(PACKS[3].id, content(PACKS[3]), {})
            with pytest.raises(UserError, match=r"Cannot write .*new: Permission denied"):
                Store.start(folder / "new", PACKS)
        assert Store(folder / "s").commit(PACKS[3].id, content(PACKS[3]), {})


def test_an_unfinished_file_is_passed_over_and_swept_away_when_old(tmp_path: Path) -> None:
    filled(tmp_path / "s", PACKS[:1])
    old, new = (tmp_path / "s" / "packs" / f"{durable.ASIDE}{name}" for name in ("old", "new"))
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
    assert durable.create(tmp_path / "file", b"x")
    assert events == ["flush file", "name", "flush folder"]


def test_a_mount_without_hard_links_still_keeps_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    assert durable.create(tmp_path / "file", b"first")
    assert not durable.create(tmp_path / "file", b"second")
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


def test_reading_results_gives_arrow_and_runs_no_code(tmp_path: Path) -> None:
    """A pickled extension type in a file's metadata is data; arrow 14 and older would have run it."""
    marker = tmp_path / "ran"
    hostile = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    field = pa.field("x", pa.int64(), metadata={b"ARROW:extension:name": b"arrow.py_extension_type"})
    field = field.with_metadata({**field.metadata, b"ARROW:extension:metadata": hostile})
    sink = pa.BufferOutputStream()
    import pyarrow.parquet as pq

    pq.write_table(pa.table([pa.array([1])], schema=pa.schema([field])), sink)
    decode(sink.getvalue().to_pybytes())
    store = filled(tmp_path / "s", [])
    data = sink.getvalue().to_pybytes()
    name = f"{PACKS[0].id}-{hashlib.sha256(data).hexdigest()}.parquet"
    (tmp_path / "s" / "packs" / name).write_bytes(data)
    assert store.done() == set()
    assert not marker.exists()


def test_status_and_failures_are_plain_data() -> None:
    failure = Failure("0" * 16, "oom", "m", ("cell",))
    now = records.Status(3, 1, 1, 1, (failure,))
    assert json.loads(json.dumps(dataclasses.asdict(now)))["failures"][0]["kind"] == "oom"
