"""The same packs as Ray tasks: same bytes, blame, limits; and nothing listens to the outside."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.sweep_process import cells

from testbed.errors import UserError
from testbed.execution.runner import run_sweep

HERE = Path(__file__).parents[2]
"""The folder of the tests, on the path of processes that import `support`."""
WITH_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra [ray]")

SCRIPT = """
import dataclasses, json, os, sys
from pathlib import Path
from support.sweep_process import cells
from testbed.execution.ray_executor import Ray
from testbed.execution.runner import run_sweep


def family(process):
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in children for one in family(int(child)))]


def listening():
    sockets = set()
    for process in family(os.getpid()):
        for name in os.listdir(f"/proc/{process}/fd"):
            try:
                sockets.add(os.readlink(f"/proc/{process}/fd/{name}"))
            except OSError:
                pass
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                yield words[1].split(":")[0]


folder = sys.argv[1]
found = {}
for function in ("poison", "hang"):
    limit = 5 if function == "hang" else None
    executor = Ray(workers=2, timeout=limit, function=f"support.fake_training:{function}")
    executor.open()
    raylet = executor._ray._raylet
    found["listening"] = sorted(set(listening()))
    found["token"] = raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    found[function] = dataclasses.asdict(run_sweep(cells(9), f"{folder}/{function}", executor=executor))
    found["up"] = executor._ray.is_initialized()
print(json.dumps(found))
"""


def files(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "packs").iterdir()}


@WITH_RAY
@pytest.mark.slow
def test_a_local_ray_gives_the_same_bytes_and_the_same_blame(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, tmp_path]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])

    run_sweep(cells(9), tmp_path / "local", workers=2, function="support.fake_training:train")
    local = files(tmp_path / "local")
    for function, kind, attempts in (("poison", "died", 2), ("hang", "timeout", 1)):
        status = found[function]
        assert (status["done"], status["failed"]) == (8, 1), status["failures"]
        (failure,) = status["failures"]
        assert (failure["kind"], failure["attempts"]) == (kind, attempts)
        assert {name: local[name] for name in local if not name.startswith(failure["pack"])} == files(
            tmp_path / function
        )

    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert found["listening"], "Ray listens somewhere"
    assert set(found["listening"]) <= loopback
    assert found["token"] is True
    assert not found["up"], "a local Ray stops with the sweep"


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.execution.ray_executor import LOOPBACK, Ray

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED", LOOPBACK):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        UserError, match=r"Ray is not installed. Install it: pip install 'off-policy-testbed\[ray\]'"
    ):
        Ray()
