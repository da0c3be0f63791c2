"""Worker processes: what one does wrong costs only its pack, and none outlives its parent.

Without Ray, the error says what to install; tests/campaign tries it where it is installed.
Which cells run stacked, and how packs are dealt to shards and travel to workers.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.refusals import refuses
from support.runners import HERE, hashes
from support.sweep_process import cells

from testbed.config.pack import LARGEST, pack_id, restore
from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution import threads, worker
from testbed.execution.executors import Inline, Local
from testbed.execution.packs import STACKED, Shard, plan
from testbed.execution.preflight import prepare
from testbed.execution.ray_executor import LOOPBACK, Ray
from testbed.execution.runner import run_sweep
from testbed.execution.worker import order
from testbed.results import user_cache
from testbed.results.store import read


def test_a_pack_whose_worker_dies_once_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACES", str(tmp_path))
    status = run_sweep(cells(9), tmp_path / "s", workers=2, function="support.fake_training:crash_once")
    assert (status.done, status.failed) == (9, 0)
    assert (tmp_path / "crashed").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_each_kind_of_trouble_is_recorded_as_what_it_is(tmp_path, workers):
    skipped = {4} if workers == 0 else set()  # seed 4 ends its process, which would be this one
    sweep = [cell for cell in cells(7) if cell.seed not in skipped]
    status = run_sweep(sweep, tmp_path / "s", workers=workers, function="support.fake_training:troubled")
    found = {failure.cells[0].split("seed")[1][0]: failure for failure in status.failures}
    assert {seed: failure.kind for seed, failure in found.items() if seed != "4"} == {
        "0": "failed", "1": "oom", "2": "failed", "3": "failed",
    }  # fmt: skip
    assert found["0"].message == "ZeroDivisionError: seed 0 divides by zero"
    assert "fake_training.py" in found["0"].trace
    assert (found["2"].message, found["2"].trace) == ("seed 2 is bad input", "")
    if workers:
        assert (found["4"].kind, found["4"].message) == ("died", "The worker process ended with exit code 3.")
        assert found["4"].attempts == 2
        assert {found[seed].attempts for seed in "0123"} == {1}, "only a dead worker gets a second try"
    assert status.done == 2


def test_what_a_pack_prints_does_not_garble_its_result(tmp_path):
    status = run_sweep(cells(3), tmp_path / "s", workers=1, function="support.fake_training:chatty")
    assert (status.done, status.failed) == (3, 0)


def test_thread_limits_are_set_before_a_worker_starts(tmp_path):
    run_sweep(cells(2), tmp_path / "s", workers=2, function="support.fake_training:threads")
    table = read(tmp_path / "s")
    assert set(table["limit/OMP_NUM_THREADS"].to_pylist()) == {1}
    assert set(table["limit/NUMBA_NUM_THREADS"].to_pylist()) == {max(1, threads.cores() // 2)}


def test_what_torch_compiles_lies_in_a_folder_of_the_users_own(tmp_path, monkeypatch):
    monkeypatch.delenv(threads.COMPILED, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = Path(threads.environment(workers=1)[threads.COMPILED])
    assert place.is_relative_to(tmp_path)
    assert place.stat().st_mode & 0o077 == 0
    assert (user_cache.private("deep/er") == user_cache.place("deep/er")
            == tmp_path / "off-policy-testbed/deep/er")  # fmt: skip
    assert user_cache.private("deep/er").stat().st_mode & 0o777 == 0o700
    (tmp_path / "off-policy-testbed" / "file").touch()
    assert user_cache.private("file/in-it") is None
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert user_cache.place("compiled") is None
    monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name/cache")
    assert user_cache.place("compiled") is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache.place("compiled") == Path.home() / ".cache" / "off-policy-testbed" / "compiled"
    monkeypatch.setenv(threads.COMPILED, "elsewhere")
    assert threads.COMPILED not in threads.environment(workers=1)


def test_workers_that_cannot_start_are_one_error_not_a_failure_per_pack(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.execution.executors.START", "raise SystemExit('no interpreter here')")
    with pytest.raises(UserError, match=r"Workers die before they start:\nno interpreter here"):
        run_sweep(cells(3), tmp_path / "s", workers=1, function="support.fake_training:train")


def test_an_executor_elsewhere_brings_its_function_and_is_reached_before_anything_is_written(
    tmp_path, monkeypatch
):
    seen = []

    class Elsewhere(Inline):
        here = False

        def open(self):
            seen.append((tmp_path / "s").exists())

    def noted(*given, trains, here, **named):
        seen.append((trains, here))
        return prepare(*given, trains=trains, here=here, **named)

    monkeypatch.setattr("testbed.execution.runner.prepare", noted)
    status = run_sweep(cells(1), tmp_path / "s", executor=Elsewhere("support.fake_training:train"))
    assert (seen, status.done) == ([(False, False), False], 1)


def test_a_worker_with_other_code_than_the_sweep_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr("testbed.execution.worker.fingerprint", lambda: {"format": 1, "numpy": "0.9"})
    status = run_sweep(cells(1), tmp_path / "s", executor=Local(1, function="support.fake_training:train"))
    message = status.failures[0].message
    assert "The worker runs different code from the sweep: " in message
    assert " instead of 0.9, " in message, "what the sweep has comes last"


def test_a_stacked_sweep_runs_in_packs_and_gives_every_cell(tmp_path):
    sweep = grid(Run(), lag=[0, 4], seed=range(100))
    status = run_sweep(sweep, tmp_path / "s", workers=2, function="support.fake_training:train")
    assert status.done == 200
    assert len(hashes(tmp_path / "s")) == 2
    assert read(tmp_path / "s").num_rows == 600


def test_a_worker_needs_nothing_that_a_bare_gpu_image_lacks_and_does_not_even_ask():
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


def test_without_ray_the_error_names_the_extra(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED", LOOPBACK):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "ray", None)
    refuses(r"Ray is not installed. Install it: pip install 'off-policy-testbed\[ray\]'", Ray)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr("testbed.execution.ray_executor.cores", lambda: 5)
    for given, workers in ((None, 5), (2, 2)):
        made = Ray("auto", given, 3, 2.5, "m:f")
        assert (made.workers, made.function, made._given) == (workers, "m:f", given)
        assert (made._address, made._threads, made._timeout, made._running) == ("auto", 3, 2.5, {})


def test_rays_folder_lies_in_one_that_only_its_user_enters_and_that_goes_with_the_process():
    engine = object.__new__(Ray)
    folder = Path(engine._private_folder())
    assert (folder.exists(), folder.parent.stat().st_mode & 0o777) == (False, 0o700)
    assert engine._sweeper is not None
    engine._sweeper.communicate(timeout=60)
    assert not folder.parent.exists()


def test_a_worker_tells_its_steps_no_more_often_than_at_intervals(monkeypatch):
    now, told = [10.0], []
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(worker, "_send", lambda _, fields: told.append((now[0], fields)))
    report = worker._Reporter(sink=None)  # type: ignore[arg-type]
    for step in range(100):
        report(step, 100)
        now[0] += 0.0625
    assert [at for at, _ in told] == [10 + 0.25 * n for n in range(25)]
    assert told[3][1] == {"kind": "steps", "done": 12, "total": 100}


STALENESS = grid(Run(), recipe=["grpo", "m2po"], lag=[0, 4, 16], seed=range(50))


@pytest.mark.parametrize(
    ("policy", "model", "cells", "sizes"),
    [("tabular", "", 128, [128]), ("tabular", "", 129, [64, 65]), ("tabular", "", 300, [100, 100, 100]),
     ("toy", "", 70, [23, 23, 24]), ("hf", "m", 3, [1, 1, 1])],
)  # fmt: skip
def test_packs_are_few_near_equal_and_never_too_large(policy, model, cells, sizes):
    start = Run(policy=policy, model=model)  # type: ignore[arg-type]
    packs = plan(grid(start, seed=range(cells)))
    assert [len(pack.cells) for pack in packs] == sizes
    assert max(sizes) <= LARGEST[policy]


def test_every_cell_is_in_one_pack_and_the_sweep_keeps_its_order():
    packs = plan(STALENESS)
    assert [cell for pack in packs for cell in pack.cells] == list(STALENESS)
    assert [pack.index for pack in packs] == list(range(len(packs)))


@pytest.mark.parametrize("field", ["task", "steps", "group", "prompts", "policy_args", "log_every", "device"])
def test_cells_of_unequal_shape_never_share_a_pack(field):
    values = {"task": ["bandit", "chain"], "policy_args": [(), (("width", 8),)], "device": ["cpu", "cuda"]}
    packs = plan(grid(Run(), seed=range(2), **{field: values.get(field, [3, 4])}))
    assert len(packs) == 2
    assert all(len({getattr(cell, field) for cell in pack.cells}) == 1 for pack in packs)


@pytest.mark.parametrize("field", STACKED)
def test_cells_that_differ_in_replica_fields_share_a_pack(field):
    values = {"recipe": ["grpo", "m2po"], "recipe_args": [(), (("eps", 0.1),)], "learning_rate": [0.1, 0.2]}
    assert len(plan(grid(Run(), **{field: values.get(field, [3, 4])}))) == 1


def test_a_sweep_with_a_cell_twice_is_refused_by_name():
    refuses(r"holds cell bandit/grpo/lag0/seed1-\w+ 2 times", plan, grid(Run(), seed=[0, 1, 1]))
    refuses("no cells", plan, [])


def test_a_pack_is_named_by_its_cells_and_their_order():
    cells = grid(Run(), seed=range(3))
    assert pack_id(cells) == "6e810e5be741d175"
    assert len({pack_id(cells), pack_id(cells[::-1]), pack_id(cells[:2])}) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_shards_are_disjoint_and_together_the_whole(count):
    packs = plan(grid(Run(policy="hf", model="m"), seed=range(10)))
    shards = [Shard.parse(f"{number}/{count}").of(packs) for number in range(1, count + 1)]
    dealt = [[pack.index for pack in shard] for shard in shards]
    assert dealt == [list(range(first, 10, count)) for first in range(count)]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "4", "1/4/2", "-1/4", "a/b", "", "1/1e3"])
def test_a_shard_that_does_not_exist_is_refused(text):
    refuses("expected i/n with i from 1 to n", Shard.parse, text)


def test_a_pack_survives_its_journey_as_json():
    start = Run(task_args=(("size", 4), ("name", "x")), recipe_args=(("cap", float("inf")), ("on", True)))
    (pack,) = plan(grid(start, lag=[0, 4]))
    travelled = json.loads(order(pack))
    assert tuple(map(restore, travelled["cells"])) == pack.cells
    assert (travelled["pack"], travelled["index"]) == (pack.id, 0)
