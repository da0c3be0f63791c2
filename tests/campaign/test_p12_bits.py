"""P12: bits do not depend on the number of workers, their order, the engine, the clock, or resuming."""

import dataclasses
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.runners import HERE, hashes, patience
from support.small_runs import LENGTHS, SMALL, TOY
from support.sweep_process import cells

from testbed.config.run import Run, grid
from testbed.execution.runner import run_sweep
from testbed.results import atomic_files

TRAIN = "support.fake_training:train"


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_workers(tmp_path, campaign):
    found = {}
    for workers in (0, 1, 3):
        folder = tmp_path / str(workers)
        now = run_sweep(cells(6), folder, workers=workers, function=TRAIN)
        assert (now.done, now.pending) == (6, 0)
        found[workers] = hashes(folder)
    assert found[0] == found[1] == found[3]
    assert len(found[0]) == 6
    campaign.tried("quick packs in this process, in 1 and in 3 workers", 3)


def trainings() -> tuple[Run, ...]:
    """Return cells of every kind of world, in packs of two."""
    runs = (dataclasses.replace(run, steps=2, log_every=1) for run in (SMALL, LENGTHS, TOY))
    return tuple(cell for run in runs for cell in grid(run, recipe=["grpo", "reinforce"]))


RUNS = """
import sys
sys.path.insert(0, {tests!r})
from test_p12_bits import trainings
from testbed.execution.runner import run_sweep
for shard in sys.argv[3:]:
    run_sweep(trainings(), sys.argv[1], workers=int(sys.argv[2]), shard=shard)
"""


@pytest.mark.slow
def test_trained_bits_do_not_depend_on_workers_order_hash_seed_or_resuming(tmp_path, campaign):
    settings = [
        ("2", {"PYTHONHASHSEED": "7", "TZ": "Pacific/Apia", "LANG": "C"}, ["3/3", "1/1"]),
        ("1", {"PYTHONHASHSEED": "1"}, ["2/2", "1/2"]),
        ("3", {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8"}, ["1/1", "1/1"]),
    ]
    chosen = settings if campaign.full else settings[:1]
    run_sweep(trainings(), tmp_path / "here", workers=0)
    found = [hashes(tmp_path / "here")]
    for number, (workers, variables, shards) in enumerate(chosen):
        script = RUNS.format(tests=str(Path(__file__).parent))
        command = [sys.executable, "-c", script, tmp_path / str(number), workers, *shards]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", str(HERE.parent))])
        subprocess.run(command, check=True, env=os.environ | variables | {"PYTHONPATH": path})
        found.append(hashes(tmp_path / str(number)))
    assert len(found[0]) == 3
    assert all(each == found[0] for each in found)
    campaign.tried("bandit, tree and transformer by workers, shards, hash seeds and locales", len(found))


def test_a_clock_that_jumps_changes_no_bit_and_loses_no_file(tmp_path, monkeypatch, campaign):
    trials = campaign.trials(short=3, full=40)
    run_sweep(cells(6), tmp_path / "whole", workers=0, function=TRAIN)
    dice = random.Random(12)
    true_time = time.time
    for trial in range(trials):
        folder = tmp_path / str(trial)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: true_time() + dice.uniform(-1e9, 1e9))
            run_sweep(cells(6)[:3], tmp_path / "other", workers=0, function=TRAIN)
            for shard in ("1/2", "2/2"):
                run_sweep(cells(6), folder, workers=0, shard=shard, function=TRAIN)
        assert hashes(folder) == hashes(tmp_path / "whole")
    campaign.tried("runs while the clock jumps by up to 30 years either way", trials)


@pytest.mark.parametrize("write", [atomic_files.create, atomic_files.replace])
def test_a_file_that_a_runner_with_a_fast_clock_sweeps_away_is_written_again(
    tmp_path, monkeypatch, write, campaign
):
    """The other runner takes a file that is just being written for one that was left hours ago."""
    swept = []
    real_aside = atomic_files._aside

    def aside(path: Path, content: bytes, *rest: bool) -> Path:
        made = real_aside(path, content, *rest)
        if not swept:
            os.utime(made, (0, 0))
            atomic_files.sweep_aside(tmp_path)
            swept.append(made)
        return made

    monkeypatch.setattr(atomic_files, "_aside", aside)
    write(tmp_path / "file", b"content")
    assert not swept[0].exists()
    assert (tmp_path / "file").read_bytes() == b"content"
    assert len(list(tmp_path.iterdir())) == 1
    campaign.tried(f"a fast clock elsewhere while {write.__name__}() writes", 1)


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
    engine = Ray(workers=2, timeout=limit, function=f"support.fake_training:{function}")
    engine.open()
    raylet = engine._ray._raylet
    found["listening"] = sorted(set(listening()))
    found["token"] = raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    found[function] = dataclasses.asdict(run_sweep(cells(9), f"{folder}/{function}", executor=engine))
    found["up"] = engine._ray.is_initialized()
print(json.dumps(found))
"""


@WITH_RAY
@pytest.mark.slow
def test_a_local_ray_gives_the_same_bytes_and_the_same_blame(tmp_path, campaign):
    command = [sys.executable, "-c", SCRIPT, tmp_path]
    ended = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, check=False, timeout=patience(240)
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])

    run_sweep(cells(9), tmp_path / "local", workers=2, function="support.fake_training:train")
    local = hashes(tmp_path / "local")
    for function, kind, attempts in (("poison", "died", 2), ("hang", "timeout", 1)):
        status = found[function]
        assert (status["done"], status["failed"]) == (8, 1), status["failures"]
        (failure,) = status["failures"]
        assert (failure["kind"], failure["attempts"]) == (kind, attempts)
        assert {name: local[name] for name in local if not name.startswith(failure["pack"])} == hashes(
            tmp_path / function
        )

    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert found["listening"], "Ray listens somewhere"
    assert set(found["listening"]) <= loopback
    assert found["token"] is True
    assert not found["up"], "a local Ray stops with the sweep"
    campaign.tried("Ray on loopback with a token: poison and hung packs, bytes, open ports", 2)
