"""P6: a flipped bit or a cut file is noticed; nothing damaged is ever averaged in."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.small_store import CELLS, PACKS, content, filled

from testbed.errors import UserError
from testbed.results import manifest
from testbed.results.repair import repair
from testbed.results.store import Failure, Store, read

KINDS = ("packs", "failures", "sweep.json", "provenance", ".locks")


def made(folder: Path) -> Path:
    """Return a folder with a result, a failure with its record, and a lock file that was left behind."""
    store = filled(folder, PACKS[:2])
    store.fail(Failure(PACKS[2].id, "died", "The worker was killed.", PACKS[2].names, 2, "a trace"))
    (folder / ".locks").mkdir(exist_ok=True)
    (folder / ".locks" / PACKS[3].id).write_bytes(b"")
    return folder


def a_file_of(folder: Path, kind: str) -> Path:
    return folder / kind if kind == "sweep.json" else sorted((folder / kind).iterdir())[0]


def answer(folder: Path) -> tuple[Any, ...]:
    """Return everything that readers are told about a folder."""
    store = Store(folder)
    now = store.status()
    return (
        store.packs, dict(store.made_by), (now.planned, now.done, now.failed, now.pending), now.failures,
        read(folder).to_pylist(),
    )  # fmt: skip


def flips(good: bytes, trials: int, dice: random.Random) -> Iterator[bytes]:
    """A bit of the file; a lock is empty, and gets bytes that nobody wrote."""
    for _ in range(trials):
        bad = bytearray(good) or bytearray(dice.randbytes(dice.randrange(1, 65)))
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        yield bytes(bad)


def cuts(good: bytes, trials: int, dice: random.Random) -> Iterator[bytes]:
    """Every length, or so many of them."""
    lengths = range(len(good)) if trials >= len(good) else sorted(dice.sample(range(len(good)), trials))
    for length in lengths:
        yield good[:length]


def silent(folder: Path, kind: str, bad: bytes, good: tuple[Any, ...]) -> bool:
    """Return True when a damaged file goes unnoticed and changes an answer."""
    path = a_file_of(folder, kind)
    path.unlink()
    path.write_bytes(bad)
    try:
        found = answer(folder)
    except UserError:
        return False
    if found == good:
        return False  # a space for a space, or a file that no answer depends on
    packs, made_by, (planned, done, failed, pending), failures, rows = found
    noticed = ((packs, made_by, planned) == (good[0], good[1], len(CELLS))
               and done + failed + pending == planned and (done < good[2][1] or failed < good[2][2])
               and all(x in good[3] for x in failures) and all(x in good[4] for x in rows))  # fmt: skip
    return not noticed


@pytest.mark.parametrize(
    ("kind", "damage"),
    [(kind, damage) for kind in KINDS for damage in (flips, cuts) if (kind, damage) != (".locks", cuts)],
)
def test_damage_to_a_file_is_never_accepted_in_silence(tmp_path, campaign, kind, damage):
    whole = made(tmp_path / "whole")
    good = answer(whole)
    content_of = a_file_of(whole, kind).read_bytes()
    trials = campaign.trials(short=60, full=2000 if damage is flips else 20_000)
    folder = tmp_path / "s"
    shutil.copytree(whole, folder)
    tried, accepted = 0, []
    name = a_file_of(folder, kind)
    for bad in damage(content_of, trials, random.Random(11)):
        tried += 1
        if silent(folder, kind, bad, good):
            accepted.append(bad)
        for moved in (folder / "quarantine").iterdir():
            moved.unlink()
        name.unlink(missing_ok=True)
        name.write_bytes(content_of)
    assert tried
    assert not accepted, (kind, len(accepted), accepted[0])
    assert answer(folder) == good
    what = "a flipped bit" if damage is flips else "a cut"
    what = what if content_of else "bytes that nobody wrote"
    campaign.tried(f"{what} in {kind if '.' in kind else kind + '/'}", tried)


def test_a_damaged_or_lost_plan_is_rebuilt_with_every_result(tmp_path, campaign):
    """Flipped, cut or removed, with or without its second copy: what has left a file is in the new plan."""
    trials = campaign.trials(short=12, full=1000)
    dice = random.Random(4)
    whole = made(tmp_path / "whole")
    packs, made_by, _, failures, rows = answer(whole)
    left = {pack.id for pack in PACKS[:3]}  # two results and a failure
    content_of = {name: (whole / name).read_bytes() for name in (manifest.NAME, manifest.SECOND)}
    for trial in range(trials):
        folder = Path(shutil.copytree(whole, tmp_path / str(trial)))
        damage = dice.choice((flips, cuts, None)), dice.choice((flips, cuts, None, "sound"))
        for (name, good), how in zip(content_of.items(), damage, strict=True):
            if how is None:
                (folder / name).unlink()
            elif how != "sound":
                (folder / name).write_bytes(next(how(good, 1, dice)))
        repair(folder)
        found = answer(folder)
        in_order = sorted(found[4], key=lambda row: rows.index(row))  # a lost plan's order is lost too
        assert (found[1], found[3], in_order) == (made_by, failures, rows), damage
        assert found[0].keys() >= left, damage
        assert damage[1] != "sound" or found[0] == packs
        shutil.rmtree(folder)
    campaign.tried("sweep.json and its second copy damaged or lost, and rebuilt", trials)


def test_every_flip_and_every_cut_of_a_result_fails_its_digest(tmp_path, campaign):
    """Without the folder around it, so often that a digest of 16 bits would let some pass."""
    store = filled(tmp_path / "s", PACKS[:1])
    path = a_file_of(tmp_path / "s", "packs")
    good = path.read_bytes()
    dice = random.Random(2)
    trials = campaign.trials(short=500, full=20_000)
    for bad in (*flips(good, trials, dice), *cuts(good, trials, dice)):
        path.unlink()  # cheaper than to write over it
        path.write_bytes(bad)
        assert store._content(path) is None
    path.write_bytes(good)
    assert store._content(path) == good
    campaign.tried("flips and cuts of a result file against its digest", trials + min(trials, len(good)))


def test_a_quarantined_result_is_computed_again_to_the_same_bytes(tmp_path, campaign):
    trials = campaign.trials(short=3, full=100)
    dice = random.Random(3)
    for trial in range(trials):
        store = filled(tmp_path / str(trial))
        pack = dice.choice(PACKS)
        (path,) = (tmp_path / str(trial) / "packs").glob(f"{pack.id}-*")
        good = path.read_bytes()
        path.unlink()
        path.write_bytes(next(flips(good, 1, dice)))
        now = store.status()
        assert (now.done, now.pending, now.quarantined) == (len(CELLS) - 1, 1, 1)
        assert store.commit(pack.id, content(pack), {})
        assert path.read_bytes() == good
        shutil.rmtree(tmp_path / str(trial))
    campaign.tried("a flipped bit in a result, quarantine, and the same result anew", trials)
