"""kill -9 at ten random moments of a real sweep: the result files end up as those of an undisturbed run."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from testbed.cli import main; main()", "run", "ess-collapse"]
# The group size splits the sweep into six packs of about a second each.
FIELDS = ["group=2,3,4,5,6,7", "lag=0,8", "seed=0,1", "steps=250", "log_every=50"]


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [*COMMAND, *FIELDS, "--out", str(folder), "--quiet", "--workers", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)


def digests(folder: Path) -> dict[str, str]:
    files = sorted((folder / "packs").iterdir())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_results_are_the_same_bytes_after_ten_kills(tmp_path):
    undisturbed = start(tmp_path / "whole")
    assert undisturbed.wait() == 0
    clock = random.Random(0)
    for kill in range(10):
        process = start(tmp_path / "killed")
        time.sleep(clock.uniform(0.5, 5.0))
        # Every second time the runner alone dies: its workers must not go on without it.
        (os.kill if kill % 2 else os.killpg)(process.pid, signal.SIGKILL)
        process.wait()
    assert start(tmp_path / "killed").wait() == 0
    expected = digests(tmp_path / "whole")
    assert len(expected) == 6
    assert digests(tmp_path / "killed") == expected


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_keeps_what_is_done(tmp_path):
    process = start(tmp_path / "s")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "s").glob("packs/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) in {130, 0}  # 0 when the last packs were already running
    assert digests(tmp_path / "s")
    assert start(tmp_path / "s").wait() == 0
    assert len(digests(tmp_path / "s")) == 6
