"""P3: a hung pack ends at its limit; Ctrl-C drains, a second one stops in 2 s; nothing is orphaned."""

import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.runners import gone_within, hashes, patience, started, workers_of
from support.sweep_process import cells

from testbed.execution.runner import run_sweep

pytestmark = pytest.mark.slow


def test_a_hung_pack_ends_at_its_limit_and_the_others_go_on(tmp_path, campaign):
    trials = campaign.trials(short=1, full=3)
    for trial in range(trials):
        start = time.monotonic()
        function = "support.fake_training:hang"
        now = run_sweep(cells(12), tmp_path / f"s{trial}", workers=2, timeout=3, function=function)
        assert (now.done, now.failed, now.pending) == (11, 1, 0)
        assert (now.failures[0].kind, now.failures[0].message) == (
            "timeout",
            "The pack ran longer than its limit of 3 s.",
        )
        assert time.monotonic() - start < patience(30)
    campaign.tried("a cell of 12 that never ends, under a limit of 3 s", trials)


def interrupted(parent: Path, kind: str, cells: int) -> tuple[Path, subprocess.Popen[str], list[int]]:
    """Start a sweep and send it Ctrl-C once two packs run; return its folder, its process and its workers."""
    folder = parent / "s"
    folder.parent.mkdir()
    runner = started(folder, kind, cells)
    workers = workers_of(folder, 2)
    runner.send_signal(signal.SIGINT)
    return folder, runner, workers


def test_ctrl_c_lets_the_running_packs_end_and_keeps_them(tmp_path, campaign):
    trials = campaign.trials(short=1, full=3)
    for trial in range(trials):
        folder, runner, workers = interrupted(tmp_path / str(trial), "patient", 20)
        _, told = runner.communicate(timeout=300)
        assert runner.returncode == 130
        assert "Press Ctrl-C again to stop at once" in told
        assert "Stopped with 2 of 20 cells done. Run the same command again to go on." in told
        assert "Traceback" not in told
        assert len(hashes(folder)) == 2
        assert gone_within(workers, patience(2))
    campaign.tried("Ctrl-C once while two packs run", trials)


def test_a_second_ctrl_c_stops_within_two_seconds_and_leaves_no_process(tmp_path, campaign):
    trials = campaign.trials(short=1, full=5)
    for trial in range(trials):
        _, runner, workers = interrupted(tmp_path / str(trial), "endless", 4)
        time.sleep(0.5)
        assert runner.poll() is None, "the first one waits"
        runner.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, told = runner.communicate(timeout=300)
        assert time.monotonic() - start < patience(2)
        assert runner.returncode == 130
        assert "Traceback" not in told
        assert gone_within(workers, patience(2))
    campaign.tried("Ctrl-C twice while two packs compute for ever", trials)


def test_workers_end_when_their_parent_is_killed(tmp_path, campaign):
    trials = campaign.trials(short=1, full=5)
    for trial in range(trials):
        folder = tmp_path / str(trial) / "s"
        folder.parent.mkdir()
        runner = started(folder, "endless", 4)
        workers = workers_of(folder, 2)
        runner.kill()
        assert gone_within(workers, patience(5))
        runner.communicate()
    campaign.tried("SIGKILL of the parent while its two workers compute for ever", trials)
