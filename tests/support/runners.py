"""Runners in processes of their own: started, watched, and looked for after they should be gone."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from testbed.execution.threads import cores

HERE = Path(__file__).parents[1]
"""The folder of the tests, on the path of processes that import `support`."""

MORTAL = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\n"
"""Begins a script that must not outlive the test that started it, not even when that is killed."""


def patience(seconds: float) -> float:
    """Return how long what is quick on an idle machine may take here.

    So much for each waiting process, or for each second of the clock that a second of computing takes just
    now, whichever is more: the load is a mean over a minute, and says nothing of priorities.
    """
    return seconds * max(1.0, os.getloadavg()[0] / cores(), seconds_per_second())


def seconds_per_second() -> float:
    """Return the seconds of the clock that this process needs for one second of computing; 1 if idle."""
    start, spent = time.monotonic(), time.process_time()
    while time.process_time() - spent < 0.1:
        pass
    return (time.monotonic() - start) / (time.process_time() - spent)


def hashes(folder: Path) -> dict[str, str]:
    """Return the sha256 of every result file by name; unfinished files are passed over."""
    packs = folder / "packs"
    names = sorted(os.listdir(packs)) if packs.is_dir() else []
    found = {}
    for name in names:
        if not name.startswith("."):
            found[name] = hashlib.sha256((packs / name).read_bytes()).hexdigest()
    return found


def started(folder: Path, function: str, count: int, workers=2, limit: int = 0) -> subprocess.Popen[str]:
    """Start a runner in its own process; TRACES is the folder beside its results.

    limit: the largest file in bytes that the process may write; 0 sets none.
    """
    folder.parent.joinpath("traces").mkdir(exist_ok=True)
    script = (
        f"{MORTAL}import resource, sys; limit = int(sys.argv.pop(1))\n"
        "if limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "from support.sweep_process import main; sys.exit(main(*sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, str(limit), folder, function, str(count), str(workers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE,
        env=os.environ | {"TRACES": str(folder.parent / "traces")},
    )  # fmt: skip


def workers_of(folder: Path, count: int) -> list[int]:
    """Wait until `count` workers run a pack, and return their process ids."""
    deadline = time.monotonic() + patience(30)
    while time.monotonic() < deadline:
        found = [int(path.name.removeprefix("pid-")) for path in (folder.parent / "traces").glob("pid-*")]
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{count} workers did not start in time")


def children(process: int) -> list[int]:
    """Return the ids of a process's children."""
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def alive(process: int) -> bool:
    """Return whether a process runs."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_within(processes: list[int], seconds: float) -> bool:
    """Return whether none of the processes runs so many seconds from now."""
    deadline = time.monotonic() + seconds
    while any(map(alive, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
