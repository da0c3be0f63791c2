"""Worker processes: what one does wrong costs only its pack, and none outlives its parent."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sweep_process import cells

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution import threads
from testbed.execution.executors import Local
from testbed.execution.runner import run_sweep
from testbed.results.store import read

HERE = Path(__file__).parents[2]
"""The folder of the tests, on the path of processes that import `support`."""


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "packs").iterdir()}


def started(folder: Path, function: str, count: int, workers: int = 2) -> subprocess.Popen[str]:
    """Start a runner in its own process; TRACES is the folder beside its results."""
    folder.parent.joinpath("traces").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "support.sweep_process", folder, function, str(count), str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=HERE,
        env=os.environ | {"TRACES": str(folder.parent / "traces")},
    )


def workers_of(folder: Path, count: int) -> list[int]:
    """Wait until `count` workers run a pack, and return their process ids."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [int(path.name.removeprefix("pid-")) for path in (folder.parent / "traces").glob("pid-*")]
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{count} workers did not start within 30 s")


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_within(processes: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_bits_do_not_depend_on_the_number_of_workers_or_the_executor(tmp_path: Path) -> None:
    found = {}
    for workers in (0, 1, 3):
        folder = tmp_path / str(workers)
        status = run_sweep(cells(6), folder, workers=workers, function="support.fake_training:train")
        assert (status.done, status.pending) == (6, 0)
        found[workers] = hashes(folder)
    assert found[0] == found[1] == found[3]
    assert len(found[0]) == 6


def test_a_pack_that_kills_its_worker_costs_and_blames_itself_alone(tmp_path: Path) -> None:
    status = run_sweep(cells(50), tmp_path / "s", workers=2, function="support.fake_training:poison")
    assert (status.done, status.failed, status.pending) == (49, 1, 0)
    (failure,) = status.failures
    assert (failure.kind, failure.attempts) == ("died", 2)
    assert failure.message == "The worker process was killed by SIGKILL. Memory may have run out."
    assert failure.cells[0].startswith("bandit/grpo/lag0/seed7-")


def test_a_pack_whose_worker_dies_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACES", str(tmp_path))
    status = run_sweep(cells(9), tmp_path / "s", workers=2, function="support.fake_training:crash_once")
    assert (status.done, status.failed) == (9, 0)
    assert (tmp_path / "crashed").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_kind_of_trouble_is_recorded_as_what_it_is(tmp_path: Path, workers: int) -> None:
    skipped = {4} if workers == 0 else set()  # seed 4 ends its process, which would be this one
    sweep = [cell for cell in cells(7) if cell.seed not in skipped]
    status = run_sweep(sweep, tmp_path / "s", workers=workers, function="support.fake_training:troubled")
    found = {failure.cells[0].split("seed")[1][0]: failure for failure in status.failures}
    assert {seed: failure.kind for seed, failure in found.items() if seed != "4"} == {
        "0": "failed",
        "1": "oom",
        "2": "failed",
        "3": "failed",
    }
    assert found["0"].message == "ZeroDivisionError: seed 0 divides by zero"
    assert "fake_training.py" in found["0"].trace
    assert (found["2"].message, found["2"].trace) == ("seed 2 is bad input", "")
    if workers:
        assert (found["4"].kind, found["4"].message) == (
            "died",
            "The worker process ended with exit code 3.",
        )
    assert status.done == 2


@pytest.mark.slow
def test_a_hung_pack_ends_at_its_limit_and_the_others_go_on(tmp_path: Path) -> None:
    start = time.monotonic()
    status = run_sweep(cells(12), tmp_path / "s", workers=2, timeout=3, function="support.fake_training:hang")
    assert (status.done, status.failed, status.pending) == (11, 1, 0)
    assert (status.failures[0].kind, status.failures[0].message) == (
        "timeout",
        "The pack ran longer than its limit of 3 s.",
    )
    assert time.monotonic() - start < 30


def test_what_a_pack_prints_does_not_garble_its_result(tmp_path: Path) -> None:
    status = run_sweep(cells(3), tmp_path / "s", workers=1, function="support.fake_training:chatty")
    assert (status.done, status.failed) == (3, 0)


def test_thread_limits_are_set_before_a_worker_starts(tmp_path: Path) -> None:
    run_sweep(cells(2), tmp_path / "s", workers=2, function="support.fake_training:threads")
    table = read(tmp_path / "s")
    assert set(table["limit/OMP_NUM_THREADS"].to_pylist()) == {1}
    assert set(table["limit/NUMBA_NUM_THREADS"].to_pylist()) == {max(1, threads.cores() // 2)}


def test_numba_gets_the_cores_that_are_left_and_blas_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 16)
    limits = threads.environment(workers=3)
    assert (limits["NUMBA_NUM_THREADS"], limits["OMP_NUM_THREADS"], limits["MKL_NUM_THREADS"]) == (
        "5",
        "1",
        "1",
    )
    assert threads.environment(workers=100)["NUMBA_NUM_THREADS"] == "1"


def test_more_threads_than_cores_are_warned_of_with_the_measured_factor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 4)
    assert threads.advice(4, 1) == ""
    assert "4 workers x 2 threads on 4 cores" in threads.advice(4, 2)
    assert "50 times slower" in threads.advice(4, 2)


def test_workers_that_cannot_start_are_one_error_not_a_failure_per_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.execution.executors.START", "raise SystemExit('no interpreter here')")
    with pytest.raises(UserError, match=r"Workers die before they start:\nno interpreter here"):
        run_sweep(cells(3), tmp_path / "s", workers=1, function="support.fake_training:train")


def test_a_worker_with_other_code_than_the_sweep_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.execution.worker.fingerprint", lambda: {"format": 1, "numpy": "0.9"})
    status = run_sweep(cells(1), tmp_path / "s", executor=Local(1, function="support.fake_training:train"))
    assert "The worker has other code than the sweep" in status.failures[0].message


def test_a_stacked_sweep_runs_in_packs_and_gives_every_cell(tmp_path: Path) -> None:
    sweep = grid(Run(), lag=[0, 4], seed=range(100))
    status = run_sweep(sweep, tmp_path / "s", workers=2, function="support.fake_training:train")
    assert status.done == 200
    assert len(hashes(tmp_path / "s")) == 2
    assert read(tmp_path / "s").num_rows == 600


def test_a_worker_needs_nothing_that_a_bare_gpu_image_lacks_and_does_not_even_ask() -> None:
    script = (
        "import sys\n"
        "asked = set()\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        asked.add(name)\n"
        "        if name in 'gymnasium numba pandas pydantic ray rich scipy threadpoolctl typer'.split():\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Bare())\n"
        "from testbed.config.run import Run\n"
        "from testbed.execution.packs import plan\n"
        "from testbed.execution.worker import execute, order\n"
        "print(execute(order(plan([Run()])[0], 'support.fake_training:train')).kind, 'pandas' in asked)"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert ended.stdout == "done False\n", ended.stderr


@pytest.mark.slow
def test_ctrl_c_lets_the_running_packs_end_and_keeps_them(tmp_path: Path) -> None:
    runner = started(tmp_path / "s", "patient", 20)
    workers = workers_of(tmp_path / "s", 2)
    runner.send_signal(signal.SIGINT)
    _, told = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert "press Ctrl-C again to stop at once" in told
    assert "Stopped with 2 of 20 cells done. Run the same command again to go on." in told
    assert "Traceback" not in told
    assert len(hashes(tmp_path / "s")) == 2
    assert gone_within(workers, 2)


@pytest.mark.slow
def test_a_second_ctrl_c_stops_within_two_seconds_and_leaves_no_process(tmp_path: Path) -> None:
    runner = started(tmp_path / "s", "endless", 4)
    workers = workers_of(tmp_path / "s", 2)
    runner.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert runner.poll() is None, "the first one waits"
    runner.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, told = runner.communicate(timeout=30)
    assert time.monotonic() - start < 2
    assert runner.returncode == 130
    assert "Traceback" not in told
    assert gone_within(workers, 2)


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    runner = started(tmp_path / "s", "endless", 4)
    workers = workers_of(tmp_path / "s", 2)
    runner.kill()
    assert gone_within(workers, 5)
    runner.communicate()
