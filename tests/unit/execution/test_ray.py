"""A local Ray is private, and nothing of it outlives a kill; tests/campaign has more."""

import contextlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.results.store import Store

TESTS = Path(__file__).resolve().parents[2]


SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
from support.sweep_process import cells
from testbed.errors import UserError
from testbed.execution.ray_executor import Ray
from testbed.execution.runner import run_sweep

engine = Ray(workers=1, function="support.fake_training:hang")
engine.open()
node = engine._ray._private.worker._global_node
folder = Path(node.get_session_dir_path()).parents[1]
print(folder, oct(folder.stat().st_mode & 0o777), flush=True)
(raylet,) = node.all_processes["raylet"]
victim = os.getpid() if sys.argv[2] == "the driver" else raylet.process.pid
threading.Timer(5, os.kill, (victim, signal.SIGKILL)).start()
try:
    run_sweep(cells(9), sys.argv[1], executor=engine)
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra [ray]")
@pytest.mark.parametrize("victim", ["the driver", "the raylet"])
def test_a_local_ray_is_private_and_nothing_of_it_outlives_a_kill(tmp_path, victim):
    """A dead raylet is one stop with one message, not a failure of every cell that is left."""
    command = [sys.executable, "-c", SCRIPT, tmp_path / "s", victim]
    ended = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=240)
    folder, mode = ended.stdout.splitlines()[0].split()
    assert mode == "0o700"
    until = time.monotonic() + 30
    while time.monotonic() < until and (Path(folder).exists() or processes_of(folder)):
        time.sleep(0.2)
    assert not Path(folder).exists()
    assert processes_of(folder) == []
    if victim == "the raylet":
        ours = (
            "The local Ray has lost its raylet: stopped. Finished packs are kept; run the same command again."
        )
        assert ended.stdout.count(ours) == 1, ended.stdout + ended.stderr
        assert "(raylet)" not in ended.stdout + ended.stderr
        assert Store(tmp_path / "s").status().failed == 0


def processes_of(folder: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            logs = [str(link.readlink()) for link in path.parent.joinpath("fd").iterdir()]
            if folder in "\n".join([words, *logs]):  # agents have titles without the folder
                found.append(words)
    return found
