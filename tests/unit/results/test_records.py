"""The results folder: whole files or none, nothing foreign, nothing damaged averaged in.

Records that others wrote or damaged: nothing waits for a pipe, obeys an escape, or prints megabytes.
"""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.command_line import call
from support.fake_training import train
from support.refusals import refuses
from support.small_store import CELLS, PACKS, content, files, filled

from testbed.config.run import RUN_VERSION, Run, cell_id, grid
from testbed.errors import SHOWN, printable
from testbed.execution.packs import plan
from testbed.results import file_locks, manifest
from testbed.results.file_locks import Locks
from testbed.results.fingerprint import difference, fingerprint, version_of
from testbed.results.parquet import encode
from testbed.results.store import Failure, Store, made_on, read, status


def test_a_result_file_is_named_by_its_pack_and_its_content(tmp_path):
    filled(tmp_path / "s", PACKS[:1])
    ((name, data),) = files(tmp_path / "s").items()
    assert name == f"{PACKS[0].id}-{hashlib.sha256(data).hexdigest()}.parquet"


def test_results_are_read_in_plan_order_whatever_order_they_came_in(tmp_path):
    filled(tmp_path / "one")
    filled(tmp_path / "two", PACKS[::-1])
    assert files(tmp_path / "one") == files(tmp_path / "two")
    table = read(tmp_path / "two")
    assert table.equals(read(tmp_path / "one"))
    assert table["cell"].to_pylist()[::3] == [cell_id(cell) for cell in CELLS]


def test_a_pack_is_committed_once(tmp_path):
    store = filled(tmp_path / "s", PACKS[:1])
    before = files(tmp_path / "s")
    assert not store.commit(PACKS[0].id, content(PACKS[0]), {})
    assert not store.commit(PACKS[0].id, b"other numbers", {})
    assert files(tmp_path / "s") == before


def test_two_results_of_one_pack_are_refused_rather_than_chosen_from(tmp_path):
    store = filled(tmp_path / "s", PACKS[:1])
    columns = train(PACKS[0].cells)
    other = encode(columns | {"accuracy": columns["accuracy"] + 1}, PACKS[0])
    name = f"{PACKS[0].id}-{hashlib.sha256(other).hexdigest()}.parquet"
    (tmp_path / "s" / "packs" / name).write_bytes(other)
    refuses("holds two results of pack", store.status)


def test_folders_of_different_sweeps_code_or_numbers_are_not_merged(tmp_path):
    filled(tmp_path / "a")
    other = plan(grid(Run(policy="hf", model="m"), seed=range(3)))
    store = Store.start(tmp_path / "b", other)
    store.commit(other[0].id, content(other[0]), {})
    refuses("different sweeps", read, tmp_path / "a", tmp_path / "b")
    filled(tmp_path / "c", PACKS[1:])
    columns = train(PACKS[0].cells)
    changed = encode(columns | {"accuracy": columns["accuracy"] + 1}, PACKS[0])
    Store(tmp_path / "c").commit(PACKS[0].id, changed, {})
    refuses("other numbers for pack", read, tmp_path / "a", tmp_path / "c")


def test_a_folder_without_results_says_so(tmp_path):
    Store.start(tmp_path / "s", PACKS)
    refuses("No finished results yet", read, tmp_path / "s")


def test_a_failure_is_kept_apart_from_results_and_ends_with_success(tmp_path):
    store = filled(tmp_path / "s", PACKS[1:])
    failure = Failure(PACKS[0].id, "timeout", "too long", PACKS[0].names, 2, "trace")
    store.fail(failure)
    assert store.failure(PACKS[0].id) == failure
    now = status(tmp_path / "s")
    assert now.failures == (failure,)
    done, failed = len(CELLS) - len(PACKS[0].names), len(PACKS[0].names)
    assert (now.planned, now.done, now.failed, now.pending) == (len(CELLS), done, failed, 0)
    assert PACKS[0].names[0] not in read(tmp_path / "s")["cell"].to_pylist()
    for pack in PACKS[:0:-1]:
        store.fail(replace(failure, pack=pack.id))
    assert list(store.failures()) == [pack.id for pack in PACKS]  # in plan order, done since or not
    store.commit(PACKS[0].id, content(PACKS[0]), {})
    assert status(tmp_path / "s").failed == 0


def test_what_differs_between_two_codes_is_named_on_both_sides():
    theirs, ours = {"a": 1, "b": 2, "d": 4}, {"a": 1, "b": 3, "c": 5}
    assert difference(theirs, ours) == "b 2 instead of 3, c absent instead of 5, d 4 instead of absent"
    assert difference(ours, dict(reversed(ours.items()))) == ""
    packages = {name: version_of(name) for name in ("numpy", "torch", "numba")}
    assert dict(fingerprint()) == {"format": 1, "run_version": RUN_VERSION, **packages}
    assert (packages["numpy"], version_of("no-such-package")) == (np.__version__, "absent")


def test_a_lock_whose_file_another_runner_has_just_removed_is_not_held(tmp_path, monkeypatch):
    lock = file_locks._lock

    def after_removal(descriptor: int) -> bool:
        (tmp_path / "pack").unlink()
        (tmp_path / "pack").touch()
        return lock(descriptor)

    monkeypatch.setattr(file_locks, "_lock", after_removal)
    assert not Locks(tmp_path).take("pack")


def test_a_note_replaces_the_one_before(tmp_path):
    held = Locks(tmp_path)
    assert held.take("pack")
    for share in ("0.25", "0.50"):
        held.note("pack", share)
        assert Locks(tmp_path).noted("pack") == share
    held.close()
    (tmp_path / "pack").write_text("0.999999 of a killed holder")
    assert held.take("pack")
    assert Locks(tmp_path).noted("pack") == ""


def test_a_damaged_file_goes_to_quarantine_and_its_pack_is_pending(tmp_path):
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
    assert now.damaged == 1
    store.fail(Failure(pack.id, "failed", "again", pack.names))
    assert (store.status().damaged, store.status().failed) == (0, 1)
    store.commit(pack.id, content(pack), {})
    assert files(tmp_path / "s") == before
    assert (store.status().damaged, store.status().quarantined) == (0, 1)


def test_a_good_file_under_another_packs_name_or_behind_a_link_is_not_taken(tmp_path):
    store = filled(tmp_path / "s", PACKS[:1])
    ((name, _),) = files(tmp_path / "s").items()
    path = tmp_path / "s" / "packs" / name
    shutil.move(path, tmp_path / name)
    path.symlink_to(tmp_path / name)
    assert (store.done(), store.status().quarantined) == (set(), 1)
    shutil.move(tmp_path / name, path.with_name(name.replace(PACKS[0].id, PACKS[1].id)))
    assert (store.done(), store.status().quarantined) == (set(), 2)


def test_another_sweep_in_the_same_folder_is_refused(tmp_path):
    filled(tmp_path / "s", PACKS[:1])
    other = plan(grid(Run(policy="hf", model="m"), lag=[0], seed=range(4)))
    refuses("another sweep: 6 cells, 3 of them in this sweep of 4", Store.start, tmp_path / "s", other)
    refuses("another sweep", Store.start, tmp_path / "s", PACKS[::-1])


def test_the_plan_says_every_field_of_every_cell(tmp_path):
    """What the cells of a pack share is said once; True and 1 are equal in Python and are not shared."""
    start = Run(task_args=(("size", 4),))
    cells = [*grid(start, seed=range(2)), replace(start, recipe_args=(("on", True),))]
    cells.append(replace(start, recipe_args=(("on", 1),)))
    for chosen in ([cells[3], *cells[:3]], [cells[3], cells[2]]):
        Store.start(folder := tmp_path / str(len(chosen)), plan(chosen))
        data = json.loads((folder / "sweep.json").read_text())
        said = {cell["id"]: pack["shared"] | cell["run"] for pack in data["packs"] for cell in pack["cells"]}
        assert said == {cell_id(cell): json.loads(json.dumps(vars(cell))) for cell in chosen}
        assert repr(said[cell_id(cells[2])]["recipe_args"]) == "[['on', True]]"


def test_a_folder_with_anything_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    refuses(r"it holds thesis\.tex\. Choose another folder", Store.start, tmp_path, PACKS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    refuses("is a file, expected a folder", Store.start, tmp_path / "thesis.tex", PACKS)
    refuses(r"has no sweep\.json", status, tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '"text"', "{}", '{"fingerprint": {"format": 1}}',
     '{"fingerprint": {"format": "x"}, "packs": []}', '{"fingerprint": {"format": 1}, "packs": [3]}',
     '{"fingerprint": {"format": 1}, "packs": [{"id": "../../escape", "cells": []}]}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_or_hostile_plan_is_one_clear_error(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    again = f"Its results are kept; rebuild the plan: testbed status {tmp_path} --repair"
    for held, todo in ((False, "Choose another folder."), (True, again)):
        if held:
            (tmp_path / "packs").mkdir()
            (tmp_path / "packs" / "x.parquet").touch()
        told = refuses("", Store, tmp_path)
        assert told.startswith(f"{tmp_path}/sweep.json cannot be read as the plan of a sweep (")
        assert told.endswith(f"). {todo}")


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eevil\x00\x08"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    filled(tmp_path / "s", PACKS[:3])
    return tmp_path / "s"


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code, out, err = call(capsys, *words)
    return int(code or 0), out + err


def raw_failure(folder: Path, pack: str, **fields: object) -> None:
    """Write a record as old code, or somebody by hand, may have written it: whole, with its digest."""
    made = {
        "pack": pack, "kind": "failed", "message": "", "cells": ["c"], "attempts": 1, "trace": "",
    } | fields  # fmt: skip
    body = json.dumps(made, indent=1, sort_keys=True).encode()
    signed = made | {"sha256": hashlib.sha256(body).hexdigest()}
    (folder / "failures" / f"{pack}.json").write_text(json.dumps(signed, indent=1, sort_keys=True))


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_status_escapes_and_bounds_what_failures_say(folder, capsys, flags):
    raw_failure(folder, PACKS[3].id, message=HOSTILE)
    raw_failure(folder, PACKS[4].id, message="x" * 50_000_000 + "the end", trace=HOSTILE)
    code, said = said_by(["status", str(folder), *flags], capsys)
    assert (code, len(said) < 3 * SHOWN, "the end" in said, "evil" in said) == (0, True, True, True)
    assert not [c for c in said if not c.isprintable() and c != "\n"]


def test_a_failure_of_unknown_kind_and_a_lock_of_no_planned_pack_are_left_out(folder):
    raw_failure(folder, PACKS[3].id, kind="vanished")
    raw_failure(folder, PACKS[4].id, attempts="many")
    raw_failure(folder, PACKS[5].id, attempts=3)
    store = Store(folder)
    assert store.failures() == {PACKS[5].id: Failure(PACKS[5].id, "failed", "", ("c",), 3)}
    for pack in (PACKS[3].id, "of-another-sweep"):
        assert store.claim(pack)
        store.note_share(pack, 0.25)
    assert store.running() == {PACKS[3].id: 0.25}
    store.close()


def test_a_failure_is_kept_in_bounds(folder):
    store = Store(folder)
    store.fail(Failure(PACKS[3].id, "failed", HOSTILE + "y" * 10**7, ("c",), 1, "z" * 10**7))
    assert (folder / "failures" / f"{PACKS[3].id}.json").stat().st_size < 30_000
    kept = store.failure(PACKS[3].id)
    assert kept is not None
    assert kept.message == printable(HOSTILE + "y" * 10**7)


def test_printable_leaves_text_alone_and_escapes_what_terminals_obey():
    assert printable("π = 3,\n\tλ — “x” 漢") == "π = 3,\n\tλ — “x” 漢"
    assert printable("\x1b[2J\u202e\ud800\r\u2028") == r"\x1b[2J\u202e\ud800\r\u2028"
    assert printable("a" * 100 + "b" * 100, most=80) == "a" * 20 + " … 200 in all … " + "b" * 20
    for text in (HOSTILE * 100, "\x1b" * 1000, "\x1b" * 10**6):
        assert len(printable(text)) <= SHOWN
        assert printable(printable(text)) == printable(text)


NAMES = ("python", "numpy", "torch", "numba")
MACHINE = {
    "cpu": HOSTILE, "threads": {"OMP_NUM_THREADS": "9" * 10**6}, "versions": dict.fromkeys(NAMES, HOSTILE),
}  # fmt: skip
BODIES = ("[" * 200_000, "[]", "3", '{"versions": []}', '{"seconds": "x"}', json.dumps(MACHINE))


@pytest.mark.parametrize("body", BODIES)
def test_provenance_edited_by_hand_is_passed_over(folder, body):
    for path in (folder / "provenance").iterdir():
        path.write_text(body)
    found = str(made_on(folder))
    assert len(found) < 5000
    assert "\x1b" not in found
    assert len(set(read(folder)["cell"].to_pylist())) == 3


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("special", [pipe, loop, Path.mkdir])
def test_pipes_and_loops_of_links_are_never_waited_for(folder, capsys, special):
    result = next((folder / "packs").iterdir())
    result.unlink()
    special(result)
    special(folder / "failures" / f"{PACKS[3].id}.json")
    record = folder / "provenance" / f"{PACKS[0].id}.json"
    record.unlink()
    special(record)
    assert (Store(folder).status().done, made_on(folder)) == (2, [])
    (folder / ".locks").mkdir(exist_ok=True)
    special(folder / ".locks" / PACKS[3].id)
    assert Store(folder).running() == {}
    refuses(str(folder / ".locks"), Locks(folder / ".locks").take, PACKS[3].id)
    (folder / manifest.NAME).unlink()
    special(folder / manifest.NAME)
    code, said = said_by(["status", str(folder)], capsys)
    assert (code, said.count("\n"), manifest.NAME in said) == (2, 1, True)


@pytest.mark.parametrize("special", [pipe, loop])
def test_a_folder_that_is_none_is_one_message(tmp_path, capsys, special):
    special(tmp_path / "x")
    run = ["run", "bandit-grid", "seed=0", "steps=2", "--workers", "0", "--yes", "--quiet", "--out"]
    for words in (["status"], ["status", "--repair"], ["report"], ["watch"], run):
        code, said = said_by([*words, str(tmp_path / "x")], capsys)
        assert (code, said.startswith("error: "), "Traceback" in said) == (2, True, False), (words, said)


def test_packs_whose_columns_differ_make_one_table(tmp_path):
    store = Store.start(tmp_path, PACKS)
    owns = {"count": [0.5], "own": ["x"]}, {"count": [7], "own": ["x"]}, {}
    for pack, own in zip(PACKS[:3], owns, strict=True):
        columns = train(pack.cells)
        more = {name: np.repeat(value, len(columns["cell"])) for name, value in own.items()}
        store.commit(pack.id, encode(columns | more, pack), {})
    table = read(tmp_path)
    each = len(table) // 3
    assert table["count"].to_pylist() == [0.5] * each + [7.0] * each + [None] * each
    assert table["own"].to_pylist() == ["x"] * 2 * each + [None] * each
    assert (table["count"].type, table["count"].num_chunks) == ("double", 1)


@pytest.mark.parametrize("special", [pipe, loop])
def test_a_second_copy_that_is_no_file_is_made_anew(tmp_path, special):
    filled(tmp_path, PACKS[:1])
    (tmp_path / manifest.SECOND).unlink()
    special(tmp_path / manifest.SECOND)
    assert Store.start(tmp_path, PACKS).status().done == 1
    assert (tmp_path / manifest.SECOND).read_bytes() == (tmp_path / manifest.NAME).read_bytes()
