"""Records that others wrote or damaged: nothing waits for a pipe, obeys an escape, or prints megabytes."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.small_store import PACKS, filled

from testbed.cli import main
from testbed.errors import SHOWN, UserError, printable
from testbed.results import manifest
from testbed.results.locks import Locks
from testbed.results.store import Failure, Store, made_on, read

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eevil\x00\x08"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    filled(tmp_path / "s", PACKS[:3])
    return tmp_path / "s"


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    heard = capsys.readouterr()
    return int(ended.value.code or 0), heard.out + heard.err


def raw_failure(folder: Path, pack: str, **fields: object) -> None:
    """Write a record as old code, or somebody by hand, may have written it: whole, with its digest."""
    made = {
        "pack": pack,
        "kind": "failed",
        "message": "",
        "cells": ["c"],
        "attempts": 1,
        "trace": "",
    } | fields
    body = json.dumps(made, indent=1, sort_keys=True).encode()
    signed = made | {"sha256": hashlib.sha256(body).hexdigest()}
    (folder / "failures" / f"{pack}.json").write_text(json.dumps(signed, indent=1, sort_keys=True))


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_status_escapes_and_bounds_what_failures_say(folder: Path, capsys, flags: list[str]) -> None:
    raw_failure(folder, PACKS[3].id, message=HOSTILE)
    raw_failure(folder, PACKS[4].id, message="x" * 50_000_000 + "the end", trace=HOSTILE)
    code, said = said_by(["status", str(folder), *flags], capsys)
    assert (code, len(said) < 3 * SHOWN, "the end" in said, "evil" in said) == (0, True, True, True)
    assert not [c for c in said if not c.isprintable() and c != "\n"]


def test_a_failure_is_kept_in_bounds(folder: Path) -> None:
    store = Store(folder)
    store.fail(Failure(PACKS[3].id, "failed", HOSTILE + "y" * 10**7, ("c",), 1, "z" * 10**7))
    assert (folder / "failures" / f"{PACKS[3].id}.json").stat().st_size < 30_000
    kept = store.failure(PACKS[3].id)
    assert kept is not None
    assert kept.message == printable(HOSTILE + "y" * 10**7)


def test_printable_leaves_text_alone_and_escapes_what_terminals_obey() -> None:
    assert printable("π = 3,\n\tλ — “x” 漢") == "π = 3,\n\tλ — “x” 漢"
    assert printable("\x1b[2J\u202e\ud800\r\u2028") == r"\x1b[2J\u202e\ud800\r\u2028"
    assert printable("a" * 100 + "b" * 100, most=80) == "a" * 20 + " … 200 in all … " + "b" * 20
    for text in (HOSTILE * 100, "\x1b" * 1000, "\x1b" * 10**6):
        assert len(printable(text)) <= SHOWN
        assert printable(printable(text)) == printable(text)


NAMES = ("python", "numpy", "torch", "numba")
MACHINE = {
    "cpu": HOSTILE,
    "threads": {"OMP_NUM_THREADS": "9" * 10**6},
    "versions": dict.fromkeys(NAMES, HOSTILE),
}
BODIES = ("[" * 200_000, "[]", "3", '{"versions": []}', '{"seconds": "x"}', json.dumps(MACHINE))


@pytest.mark.parametrize("body", BODIES)
def test_provenance_edited_by_hand_is_passed_over(folder: Path, body: str) -> None:
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
def test_pipes_and_loops_of_links_are_never_waited_for(
    folder: Path, capsys, special: Callable[[Path], None]
) -> None:
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
    with pytest.raises(UserError, match=str(folder / ".locks")):
        Locks(folder / ".locks").take(PACKS[3].id)
    (folder / manifest.NAME).unlink()
    special(folder / manifest.NAME)
    code, said = said_by(["status", str(folder)], capsys)
    assert (code, said.count("\n"), manifest.NAME in said) == (2, 1, True)


@pytest.mark.parametrize("special", [pipe, loop])
def test_a_folder_that_is_none_is_one_message(
    tmp_path: Path, capsys, special: Callable[[Path], None]
) -> None:
    special(tmp_path / "x")
    run = ["run", "bandit-grid", "seed=0", "steps=2", "--workers", "0", "--yes", "--quiet", "--out"]
    for words in (["status"], ["status", "--repair"], ["report"], ["watch"], run):
        code, said = said_by([*words, str(tmp_path / "x")], capsys)
        assert (code, said.startswith("error: "), "Traceback" in said) == (2, True, False), (words, said)
