"""The results folder: whole files or none, nothing foreign, nothing damaged averaged in."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.fake_training import train

from testbed.config.pack import Pack
from testbed.config.run import Run, cell_id, grid
from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.results import fingerprint, manifest, store
from testbed.results.parquet import encode
from testbed.results.store import Failure, Store, folder_for, read, status

GOLDEN = Path(__file__).parents[2] / "golden" / "store_format_1"
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
    monkeypatch.setattr(manifest, "fingerprint", lambda: changed)
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


def test_status_and_failures_are_plain_data() -> None:
    failure = Failure("0" * 16, "oom", "m", ("cell",))
    now = store.Status(3, 1, 1, 1, (failure,))
    assert json.loads(json.dumps(dataclasses.asdict(now)))["failures"][0]["kind"] == "oom"
