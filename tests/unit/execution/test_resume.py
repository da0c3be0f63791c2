"""Kill, fill, damage or double a run: what is finished stays, and the end is the same bytes."""

import os
import signal
from pathlib import Path

import pytest
from support.fake_training import train
from support.runners import hashes
from support.sweep_process import cells

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.execution.progress import Progress
from testbed.execution.runner import PERIOD, _checkpoints_in, run_sweep
from testbed.results.checkpoint_files import CHECKPOINT, EVERY
from testbed.results.parquet import encode
from testbed.results.store import Failure, Store, read, status


class Heard(Progress):
    """Remembers what a run told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


TRAIN, TROUBLED = "support.fake_training:train", "support.fake_training:troubled"


def whole(folder: Path, count: int) -> dict[str, str]:
    """Return the result files of an uninterrupted run."""
    run_sweep(cells(count), folder, workers=0, function="support.fake_training:train")
    return hashes(folder)


def test_a_second_run_does_nothing_again(tmp_path, monkeypatch):
    traces = tmp_path / "traces"
    traces.mkdir()
    monkeypatch.setenv("TRACES", str(traces))
    for _ in range(2):
        run_sweep(cells(3), tmp_path / "s", workers=0, function="support.fake_training:noted")
    assert len(list(traces.iterdir())) == 3


def test_ctrl_c_while_the_last_pack_ends_lets_the_sweep_finish(tmp_path):
    class Early(Progress):
        def start(self, cells: int, done: int) -> None:
            super().start(cells, done)
            signal.raise_signal(signal.SIGINT)

    class Pressed(Progress):
        def finished(self, pack: str, cells: int, failed: bool = False) -> None:
            super().finished(pack, cells, failed)
            if self.done == 3:
                signal.raise_signal(signal.SIGINT)

    found = run_sweep(cells(3), tmp_path / "s", workers=0, progress=Pressed(), function=TRAIN)
    assert (found.done, found.pending) == (3, 0)
    with pytest.raises(KeyboardInterrupt, match="Stopped with 4 of 5 cells done"):
        run_sweep(cells(5), tmp_path / "t", workers=0, progress=Pressed(), function=TRAIN)
    assert run_sweep(cells(3), tmp_path / "s", workers=0, progress=Early(), function=TRAIN).done == 3


@pytest.mark.slow
def test_failed_packs_are_tried_again_by_the_next_run(tmp_path):
    heard = Heard()
    first = run_sweep(cells(7), tmp_path / "s", workers=2, function=TROUBLED, progress=heard)
    assert (first.done, first.failed) == (2, 5)
    assert len(heard.notes) == 5
    assert (heard.planned, heard.done, heard.failed) == (7, 2, 5)
    second = run_sweep(cells(7), tmp_path / "s", workers=2, function="support.fake_training:train")
    assert (second.done, second.failed, second.pending) == (7, 0, 0)
    assert hashes(tmp_path / "s") == whole(tmp_path / "whole", 7)


@pytest.mark.parametrize("count", [2, 3])
def test_shards_into_one_folder_or_many_make_the_whole(tmp_path, count):
    good = whole(tmp_path / "whole", 5)
    folders = [tmp_path / str(number) for number in range(count)]
    for number, folder in enumerate(folders, start=1):
        for target in (tmp_path / "one", folder):
            run_sweep(cells(5), target, workers=0, shard=f"{number}/{count}", function=TRAIN)
        assert status(folder).pending > 0, "a shard is a part"
    assert hashes(tmp_path / "one") == good
    assert {name: data for folder in folders for name, data in hashes(folder).items()} == good
    assert read(*folders).equals(read(tmp_path / "whole"))


def test_bad_cells_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match="lag is -1, expected at least 0"):
        run_sweep([Run(lag=-1)], tmp_path / "s", workers=0, function="support.fake_training:train")
    with pytest.raises(UserError, match="expected i/n"):
        run_sweep([Run()], tmp_path / "s", shard="3/2", workers=0, function="support.fake_training:train")
    for limit, expected in (
        ({"workers": -1}, "workers is -1, expected at least 0"),
        ({"threads": 0}, "threads is 0, expected at least 1"),
        ({"timeout": 0.0}, "timeout is 0 s, expected more than 0"),
    ):
        with pytest.raises(UserError, match=expected):
            run_sweep([Run()], tmp_path / "s", function="support.fake_training:train", **limit)  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_pack_that_another_runner_holds_is_left_to_it(tmp_path, monkeypatch, fails):
    """The other settles the pack while this one waits; its result or failure is taken, nothing is tried."""
    (traces := tmp_path / "traces").mkdir()
    monkeypatch.setenv("TRACES", str(traces))
    packs = plan(cells(3))
    other = Store.start(tmp_path / "s", packs)
    assert other.claim(packs[1].id)

    class Settler(Heard):
        def finished(self, pack: str, cells: int, failed: bool = False) -> None:
            super().finished(pack, cells, failed)
            if pack == packs[2].id:
                if fails:
                    other.fail(Failure(packs[1].id, "failed", "there", packs[1].names))
                else:
                    content = encode(train(packs[1].cells), packs[1])
                    other.commit(packs[1].id, content, {"engine": "the other"})
                other.release(packs[1].id)

    noted, heard = "support.fake_training:noted", Settler()
    now = run_sweep(cells(3), tmp_path / "s", workers=0, function=noted, progress=heard)
    assert (now.done, now.failed, heard.failed) == (3 - fails, fails, fails)
    assert len(list(traces.iterdir())) == 2
    if fails:
        assert now.failures[0].message == "there"
        assert run_sweep(cells(3), tmp_path / "s", workers=0, function=TRAIN).done == 3
    else:
        assert "the other" in (tmp_path / "s" / "provenance" / f"{packs[1].id}.json").read_text()


def test_a_run_leaves_the_variables_of_checkpoints_as_they_were(tmp_path, monkeypatch):
    for before in ("5s", None):
        monkeypatch.delenv(CHECKPOINT, raising=False)
        monkeypatch.setenv(EVERY, before) if before else monkeypatch.delenv(EVERY)
        run_sweep(cells(1), tmp_path / str(before), workers=0, function=TRAIN)
        with _checkpoints_in(tmp_path / "c"):
            assert (os.environ[EVERY], os.environ[CHECKPOINT]) == (before or PERIOD, str(tmp_path / "c"))
        assert (os.environ.get(EVERY), os.environ.get(CHECKPOINT)) == (before, None)
