"""A lost or damaged sweep.json locks nothing out: `testbed status --repair` makes it again."""

import shutil
from pathlib import Path

import pytest
from support.fake_training import train
from support.made_sweep import TOY
from support.small_store import PACKS, files, filled

from testbed.cli import main
from testbed.config.run import grid
from testbed.errors import UserError
from testbed.execution.runner import run_sweep
from testbed.results import manifest
from testbed.results.repair import repair
from testbed.results.store import Store, read, status

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
def test_a_plan_is_rebuilt_to_the_same_bytes_and_answers(tmp_path: Path, damage, both: bool) -> None:
    before, rows = ran(tmp_path / "s"), read(tmp_path / "s").to_pylist()
    plan, packs = (tmp_path / "s" / manifest.NAME).read_bytes(), manifest.planned(tmp_path / "s")
    for name in (manifest.NAME, manifest.SECOND)[: 1 + both]:
        damage(tmp_path / "s" / name)
    with pytest.raises(UserError, match=r"status \S+ --repair"):
        status(tmp_path / "s")
    with pytest.raises(UserError, match=r"status \S+ --repair"):
        ran(tmp_path / "s")
    said = repair(tmp_path / "s")
    assert ("results and provenance" if both else "second copy") in said
    assert manifest.planned(tmp_path / "s") == packs, "provenance holds the cells too"
    assert read(tmp_path / "s").to_pylist() == rows
    assert ran(tmp_path / "s") == before
    assert (tmp_path / "s" / manifest.NAME).read_bytes() == plan
    assert (tmp_path / "s" / manifest.SECOND).read_bytes() == plan
    assert "sound" in repair(tmp_path / "s")


def test_packs_without_a_trace_come_back_with_the_sweeps_command(tmp_path: Path) -> None:
    """Without copy and provenance the ids of cells are those of the results, and of failures."""
    filled(tmp_path / "s", PACKS[3:5])
    for name in (manifest.NAME, manifest.SECOND):
        (tmp_path / "s" / name).unlink()
    repair(tmp_path / "s")
    assert status(tmp_path / "s").planned == status(tmp_path / "s").done == 2
    with pytest.raises(UserError, match="holds another sweep"):
        Store.start(tmp_path / "s", PACKS[:4])
    store = Store.start(tmp_path / "s", PACKS)
    assert list(store.packs) == [pack.id for pack in PACKS]
    assert (store.status().planned, store.status().done) == (6, 2)


def test_provenance_edited_by_hand_cannot_put_cells_into_a_plan(tmp_path: Path) -> None:
    ran(tmp_path / "s")
    packs = Store(tmp_path / "s").packs
    for name in (manifest.NAME, manifest.SECOND):
        (tmp_path / "s" / name).unlink()
    texts = ['{"planned": {"cells": [{"id": "x", "run": {}}]}}', '{"planned": 3}', "[" * 100_000]
    for path, text in zip(sorted((tmp_path / "s" / "provenance").iterdir()), texts, strict=False):
        path.write_text(text)
    repair(tmp_path / "s")
    assert dict(Store(tmp_path / "s").packs) == dict(packs)


def lose_the_plan(runs, report=None):
    """Train, after somebody has deleted the plan."""
    for name in (manifest.NAME, manifest.SECOND):
        (Path(LOST["folder"]) / name).unlink(missing_ok=True)
    return train(runs, report)


LOST: dict[str, Path] = {}


def test_a_run_does_not_end_well_when_its_plan_went_missing(tmp_path: Path) -> None:
    LOST["folder"] = tmp_path / "s"
    with pytest.raises(UserError, match="has lost its sweep.json"):
        run_sweep(CELLS, tmp_path / "s", workers=0, function=f"{__name__}:lose_the_plan")
    repair(tmp_path / "s")
    assert status(tmp_path / "s").done == len(CELLS)


def test_the_command_repairs_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path / "s")
    (tmp_path / "s" / manifest.NAME).unlink()
    for words, code, told in (([], 2, "--repair"), (["--repair"], 0, "rebuilt from its second copy")):
        with pytest.raises(SystemExit) as ended:
            main(["status", str(tmp_path / "s"), *words])
        assert (ended.value.code, told in capsys.readouterr().err) == (code, True)
    shutil.rmtree(tmp_path / "s" / "packs")
    (tmp_path / "s" / manifest.NAME).unlink()
    (tmp_path / "s" / manifest.SECOND).unlink()
    with pytest.raises(UserError, match="no results"):
        repair(tmp_path / "s")
