"""P1: kill -9 anywhere: no finished pack is lost, none torn; resuming gives an undisturbed run's bytes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command_line import call
from support.runners import MORTAL, alive, children, gone_within, hashes, patience, started
from support.sweep_process import cells

from testbed.execution.runner import run_sweep
from testbed.results.store import status

SLOW = "support.fake_training:slow"
COUNT = 60


class Pair:
    """Two runners on one folder, started again when they are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runners: list[subprocess.Popen[str]] = []
        self.workers: set[int] = set()

    def complete(self) -> None:
        for runner in [runner for runner in self.runners if runner.poll() is not None]:
            _, told = runner.communicate()
            # Three workers struck in a row before they had a pack look like workers that cannot start.
            unlucky = runner.returncode == 2 and "Workers die before they start" in told
            assert unlucky or runner.returncode in (0, -signal.SIGKILL), told
            self.runners.remove(runner)
        while len(self.runners) < 2:
            self.runners.append(started(self.folder, "slow", COUNT, workers=1))

    def progress(self, finished: int) -> None:
        """Wait until so many packs are done, or the runners are: some kills shall fall between results."""
        packs = self.folder / "packs"
        while not packs.is_dir() or len(os.listdir(packs)) < finished:
            if all(runner.poll() is not None for runner in self.runners):
                return
            time.sleep(0.005)

    def strike(self, dice: random.Random) -> None:
        """SIGKILL a runner, or one of its workers when it has one by now."""
        victim = dice.choice(self.runners)
        workers = children(victim.pid)
        self.workers.update(workers)
        struck = dice.choice(workers) if workers and dice.random() < 0.5 else victim.pid
        try:
            os.kill(struck, signal.SIGKILL)
        except ProcessLookupError:
            return
        if struck == victim.pid:
            victim.wait()

    def end(self) -> None:
        for runner in self.runners:
            runner.kill()
            runner.communicate()
        assert gone_within(list(self.workers), patience(5)), "a worker outlived its runner"


@pytest.mark.slow
def test_kills_of_runners_and_workers_lose_and_tear_nothing(tmp_path, campaign):
    kills = campaign.trials(short=4, full=220)
    run_sweep(cells(COUNT), tmp_path / "whole", workers=0, function="support.fake_training:train")
    good = hashes(tmp_path / "whole")
    dice = random.Random(7)
    seen: dict[str, str] = {}
    pair = Pair(tmp_path / "s")
    resumed = 0
    try:
        for _ in range(kills):
            pair.complete()
            if dice.random() < 0.15:
                pair.progress(len(seen) + dice.randint(1, 9))
            time.sleep(dice.uniform(0, 0.8))
            pair.strike(dice)
            now = hashes(pair.folder)
            assert seen.items() <= now.items(), "no finished pack is lost"
            assert now.items() <= good.items(), "no finished pack is torn"
            seen = now
            if len(seen) == COUNT:  # the whole sweep is there: begin anew
                pair.end()
                shutil.rmtree(pair.folder)
                seen, pair, resumed = {}, Pair(tmp_path / f"s{resumed}"), resumed + 1
    finally:
        pair.end()
    now = run_sweep(cells(COUNT), pair.folder, workers=2, function=SLOW)
    assert (now.done, now.failed, now.pending) == (COUNT, 0, 0)
    assert hashes(pair.folder) == good
    assert os.listdir(pair.folder / "quarantine") == []
    campaign.tried("SIGKILL of a runner or a worker at a random moment, two runners on one folder", kills)


COMMAND = [sys.executable, "-c", f"{MORTAL}from testbed.cli import main; main()", "run", "ess-collapse"]
# The group size splits the sweep into three packs of about a second each.
FIELDS = ["group=2,3,4", "lag=0,8", "seed=0,1", "steps=200", "log_every=50", "--quiet"]


def training(folder: Path) -> subprocess.Popen[bytes]:
    command = [*COMMAND, *FIELDS, "--out", str(folder), "--workers", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)


@pytest.mark.slow
def test_a_killed_and_interrupted_training_ends_with_the_bytes_of_an_undisturbed_one(
    tmp_path, capsys, campaign
):
    kills = campaign.trials(short=1, full=8)
    assert call(capsys, "run", "ess-collapse", *FIELDS, "--out", tmp_path / "whole", "--workers", 0)[0] == 0
    clock = random.Random(0)
    for kill in range(kills):
        process = training(tmp_path / "killed")
        time.sleep(clock.uniform(0.5, 5.0))
        # Every second time the runner alone dies: its workers must not go on without it.
        (os.kill if kill % 2 else os.killpg)(process.pid, signal.SIGKILL)
        process.wait()
        assert not alive(process.pid)
    campaign.tried("SIGKILL of a training from the command line, by process and by group", kills)
    before = len(hashes(tmp_path / "killed"))
    process = training(tmp_path / "killed")
    deadline = time.monotonic() + patience(60)
    while len(hashes(tmp_path / "killed")) == before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) in {130, 0}  # 0 when the last packs were already running
    assert status(tmp_path / "killed").done, "an interrupted training keeps what is done"
    assert training(tmp_path / "killed").wait() == 0
    campaign.tried("Ctrl-C in a training from the command line, then the rest", 1)
    expected = hashes(tmp_path / "whole")
    assert len(expected) == 3
    assert hashes(tmp_path / "killed") == expected
