"""Checkpoints: killed at any step, a pack goes on and ends with the same bits as if nothing had happened."""

import dataclasses
import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.refusals import refuses
from support.small_runs import CHAIN, LENGTHS, SMALL, TOY, differing, with_schedule

from testbed.config.pack import pack_id
from testbed.config.run import Run
from testbed.execution import runner
from testbed.execution.progress import Progress
from testbed.execution.runner import run_sweep
from testbed.results import checkpoint_files
from testbed.results.checkpoint_files import CHECKPOINT, EVERY, checkpoint_path, forget
from testbed.training import checkpoint
from testbed.training.checkpoint import Checkpoints
from testbed.training.loop import train, train_pack
from testbed.training.update import State

ARGUMENTS = {
    "latency": {"speed": 1.0}, "replay": {"share": 0.5}, "in-flight": {"tokens": 1}, "partial": {"tokens": 2},
}  # fmt: skip

BESIDE = {
    "critic": {"recipe": "ppo", "critic": "table", "critic_args": (("replay", 2),)},
    "teacher": {"recipe": "opd", "teacher": "noisy"}, "guide": {"guide": "own"},
    "prefixes": {"prefix": "stored", "prefix_args": (("ask", 16), ("attempts", 4), ("tokens", 2)),
                 "learning_rate": 9.0},
}  # fmt: skip
"""What stands beside the policy and remembers earlier steps, by name."""


FIXED = dataclasses.replace(LENGTHS, task_args=(("task", "running-sum"),))
"""Responses of fixed length."""


class Stop(Exception):
    pass


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(CHECKPOINT, str(tmp_path / "new" / "checkpoints"))
    monkeypatch.setenv(EVERY, "1")
    return tmp_path / "new" / "checkpoints"


def stopping(at: int):
    def report(done: int, total: int) -> None:
        if done == at:
            raise Stop

    return report


def interrupted(runs: tuple[Run, ...], stops: list[int]) -> dict:
    for at in stops:
        with pytest.raises(Stop):
            train_pack(runs, stopping(at))
    return train_pack(runs)


def settings() -> dict[str, Run]:
    lag3 = dataclasses.replace(LENGTHS, lag=3, steps=7)
    found = {
        "exact, chain": dataclasses.replace(CHAIN, lag=2, steps=7, optimizer="adam"),
        "toy, adam": dataclasses.replace(TOY, lag=1),
        "ewma": dataclasses.replace(lag3, recipe="decoupled", anchor="ewma"),
        "version": dataclasses.replace(lag3, recipe="decoupled", anchor="version", anchor_args=(("age", 2),)),
        "dropped": with_schedule(dataclasses.replace(LENGTHS, steps=7), "latency", 2, "truncate", speed=1.0),
        "discarded": with_schedule(dataclasses.replace(LENGTHS, steps=7), "latency", 2, "discard", speed=1.0),
    }
    for name in ("latency", "replay", "in-flight", "partial"):
        found[name] = with_schedule(dataclasses.replace(LENGTHS, steps=7), name, **ARGUMENTS[name])
    for name, fields in BESIDE.items():
        found[name] = dataclasses.replace(LENGTHS, steps=7, **fields)
    found["critic with heads"] = dataclasses.replace(
        TOY, steps=7, recipe="ppo", critic="head", critic_args=(("heads", 2), ("softness", 1.0))
    )
    found["windowed"] = with_schedule(dataclasses.replace(FIXED, steps=7), "windowed", tokens=2)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", settings())
def test_a_run_that_is_stopped_twice_ends_with_the_same_bits(name, folder, monkeypatch):
    run = settings()[name]
    resumed = interrupted((run,), [2, 5])
    monkeypatch.delenv(CHECKPOINT)
    assert differing(resumed, train(run)) == []


@pytest.mark.parametrize(("name", "stop"), [("remix", 51), ("r2vpo", 3), ("spear", 3)])
def test_what_recipes_remember_is_remembered(name, stop, folder, monkeypatch):
    """Replayed batches, a dual variable, baselines of earlier batches, and a recipe that has handed over."""
    made = TOY if name == "spear" else LENGTHS
    run = dataclasses.replace(made, recipe=name, steps=stop + 2, log_every=stop - 1)
    resumed = interrupted((run,), [stop])
    monkeypatch.delenv(CHECKPOINT)
    assert differing(resumed, train(run)) == []


def test_cells_that_run_stacked_resume_together(folder, monkeypatch):
    runs = tuple(dataclasses.replace(SMALL, seed=s, lag=lag, recipe=r) for s, lag, r in
                 [(0, 3, "ppo_clip"), (1, 0, "grpo"), (0, 1, "ppo_clip")])  # fmt: skip
    resumed = interrupted(runs, [4, 9])
    monkeypatch.delenv(CHECKPOINT)
    assert differing(resumed, train_pack(runs)) == []


def killed(run: Run, at: int) -> int:
    """Train in a process that kills itself in the middle of its step `at`; return the signal it died of."""
    child = os.fork()
    if not child:
        from testbed.training.update import Trainer

        moved, calls = Trainer.take_step, iter(range(at))

        def fatal(self, *args):
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return moved(self, *args)

        Trainer.take_step = fatal
        train(run)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_real_model_with_adapters_survives_kill_9_at_every_step(folder, tmp_path, monkeypatch):
    pytest.importorskip("peft")
    from envs.tokens.length import Length
    from testbed.policies.hf.tiny_model import save_random_model, save_tokenizer

    task = Length(digits=2, limit=5, modulus=2)
    save_tokenizer(tmp_path, task)
    save_random_model(tmp_path, task, 0, 16, 1)
    run = dataclasses.replace(
        TOY, policy="hf", policy_args=(("lora", 2), ("micro_tokens", 40)), model=str(tmp_path), lag=2, steps=4
    )
    # Each goes on where the one before left off, makes one step, and dies in the middle of the next.
    died = [killed(run, 1) for _ in range(3)]
    left = Checkpoints.of((run,)).path
    assert died == [signal.SIGKILL] * 3
    assert left.exists()
    resumed = train(run)
    monkeypatch.delenv(CHECKPOINT)
    assert differing(resumed, train(run)) == []


def test_timed_checkpoints_wait_twenty_times_what_one_costs_and_need_twice_their_room(folder, monkeypatch):
    """On a clock of a second a call, a checkpoint of nine seconds is due again after 180."""
    clock = iter(range(100_000))
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    slow = lambda *_: [next(clock) for _ in range(8)]  # noqa: E731
    monkeypatch.setattr(checkpoint, "write_checkpoint", slow)
    held = SimpleNamespace(live={}, world=SimpleNamespace(counts=dict))
    kept = Checkpoints(folder / "pack.safetensors", seconds=5.0, last=-5.0)
    kept.save(State.start(torch.zeros(1, 3)), held, 1)
    assert kept.cost == 9
    assert [kept._due(0) for _ in range(200)].index(True) == 179
    free = lambda size: lambda _: SimpleNamespace(free=size)  # noqa: E731
    for size, fits in ((24, True), (23, False)):
        monkeypatch.setattr(checkpoint.shutil, "disk_usage", free(size))
        assert checkpoint._fits(folder, [torch.zeros(3)]) is fits


@pytest.mark.parametrize(
    "damage", ["a flipped bit", "a cut", "nothing in it", "a loop of links", "a pipe", "no checkpoint at all"]
)
def test_a_damaged_checkpoint_heals_and_says_so_once(folder, capsys, damage):
    run = dataclasses.replace(SMALL, steps=4)
    with pytest.raises(Stop):
        train_pack((run,), stopping(2))
    (path,) = folder.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.unlink()
    if damage == "a loop of links":
        path.symlink_to(path.name)
    elif damage == "a pipe":
        os.mkfifo(path)
    else:
        kept = {"a flipped bit": content, "a cut": content[:100], "nothing in it": b""}
        path.write_bytes(kept.get(damage, b"\x80\x04cos\nsystem\n."))
    healed = train(run)
    said = capsys.readouterr().err
    assert said.count(f"The checkpoint {path} was damaged") == 1
    assert said.count("the pack starts again.") == 1
    forget(pack_id((run,)))
    assert differing(healed, train(run)) == []
    assert "damaged" not in capsys.readouterr().err


def test_unfinished_checkpoints_are_swept_when_their_pack_starts_and_when_it_is_kept(folder):
    """Those of other packs may be under way; those without a name of a pack are old code's."""
    run = dataclasses.replace(SMALL, steps=2)
    name = pack_id((run,))
    folder.mkdir(parents=True)
    for at in (lambda: train(run), lambda: forget(name)):
        mine, other, old = (folder / f".tmp-{start}" for start in (f"{name}-1", "0123-1", "abcd"))
        for path in (mine, other, old):
            path.write_bytes(b"half")
        os.utime(old, (0, 0))
        at()
        assert [path.exists() for path in (mine, other, old)] == [False, True, False]


def test_a_checkpoint_that_the_disk_refuses_leaves_nothing_behind(folder, monkeypatch):
    real = os.replace

    def full(source, target) -> None:
        if folder in Path(target).parents:  # numba stores what it compiles elsewhere
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    refuses("No space left on device", train, SMALL)
    assert list(folder.iterdir()) == []


def test_a_digest_tells_shapes_of_the_same_bytes_apart():
    one, other = ({"t0": torch.zeros(shape)} for shape in ((2, 3), (3, 2)))
    assert checkpoint_files._digest("", one) != checkpoint_files._digest("", other)


def test_twelve_tensors_come_back_in_order_with_their_tree(tmp_path):
    kinds = (torch.int64, torch.float64) * 6
    tensors = {f"t{n}": torch.arange(n, 2 * n + 1, dtype=kind) for n, kind in enumerate(kinds)}
    path = tmp_path / "new" / "x.ckpt"
    checkpoint_files.write_checkpoint(path, {"a": [1, None]}, tensors)
    tree, found = checkpoint_files.read_checkpoint(path)
    assert tree == {"a": [1, None], "fingerprint": dict(checkpoint_files.fingerprint())}
    assert list(found) == list(tensors)
    assert all(torch.equal(value, tensors[name]) for name, value in found.items())
    assert [each.name for each in path.parent.iterdir()] == ["x.ckpt"]
    refuses("^no file$", checkpoint_files.read_checkpoint, path.parent, error=checkpoint_files.Damaged)


def test_a_checkpoint_of_other_code_is_refused(folder, monkeypatch):
    run = dataclasses.replace(SMALL, steps=2)
    train(run)
    monkeypatch.setattr(checkpoint_files, "fingerprint", lambda: {"torch": "1.0"})
    refuses("written by other code", train, run)


def test_a_checkpoint_goes_when_its_results_are_kept(folder, tmp_path):
    from testbed.execution.runner import run_sweep

    seen = []
    write = checkpoint.write_checkpoint
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write_checkpoint", lambda *given: seen.append(given[0]) or write(*given))
        run_sweep([dataclasses.replace(SMALL, steps=3)], tmp_path / "out", workers=0)
    assert len(seen) == 3
    assert list(folder.iterdir()) == []


def test_no_folder_means_no_checkpoint_and_bad_intervals_are_refused(folder, monkeypatch):
    monkeypatch.setenv(EVERY, "often")
    refuses("is 'often', expected a number of steps", train, SMALL)
    monkeypatch.delenv(CHECKPOINT)
    assert checkpoint_path("pack") is None
    forget("pack")


def test_memory_that_two_tensors_share_is_written_for_each(tmp_path):
    writer, whole = checkpoint._Writer(), torch.arange(6.0)
    for value in (whole, whole.view(2, 3), whole[1:3]):
        writer.value(value)
    places = [tensor.data_ptr() for tensor in writer.tensors.values()]
    assert places[0] == whole.data_ptr()  # a copy only where it must be
    assert len(set(places)) == 3
    save_file(writer.tensors, tmp_path / "c.safetensors")  # which refuses shared memory


def test_records_that_occur_twice_are_one_again():
    one, two = (State.start(torch.full((1, 2), value)) for value in (1.0, 2.0))
    writer = checkpoint._Writer()
    tree = writer.value([one, two, one, two])
    found = checkpoint._Reader(writer.tensors, torch.device("cpu")).value(tree)
    assert found[0] is found[2]
    assert found[1] is found[3]
    assert [float(state.theta_RP[0, 0]) for state in found] == [1, 2, 1, 2]


def test_a_kind_that_nobody_has_decided_about_is_not_left_out_silently():
    with pytest.raises(TypeError, match="no rule for complex"):
        checkpoint._Writer().value([torch.ones(1), np.ones(1), 1j])


class Impatient(Progress):
    """Presses Ctrl-C a second time when a pack has come so far; counts the shares that it hears of."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at, self.heard = at, []

    def steps(self, pack, cells, share) -> None:
        self.heard.append(share)
        if share >= self.at:
            raise KeyboardInterrupt


def test_a_sweep_stopped_at_once_goes_on_inside_its_pack_and_ends_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.delenv(CHECKPOINT, raising=False)
    monkeypatch.setattr(runner, "PERIOD", "0s")
    run = dataclasses.replace(CHAIN, steps=8)
    with pytest.raises(KeyboardInterrupt):
        run_sweep([run], tmp_path / "a", workers=0, progress=Impatient(at=0.75))
    assert len(list((tmp_path / "a" / "checkpoints").iterdir())) == 1
    again = Impatient(at=2.0)
    assert run_sweep([run], tmp_path / "a", workers=0, progress=again).done == 1
    assert again.heard == [7 / 8, 1.0]
    run_sweep([run], tmp_path / "b", workers=0)
    assert [file.name for file in (tmp_path / "a" / "packs").iterdir()] == [
        file.name
        for file in (tmp_path / "b" / "packs").iterdir()  # names hold the digest
    ]
    assert not (tmp_path / "a" / "checkpoints").exists()
    assert CHECKPOINT not in os.environ


def test_short_packs_leave_no_checkpoint_where_they_are_written_by_the_minute(tmp_path, monkeypatch):
    monkeypatch.delenv(CHECKPOINT, raising=False)
    with pytest.raises(KeyboardInterrupt):
        run_sweep([CHAIN], tmp_path / "a", workers=0, progress=Impatient(at=0.5))
    assert not (tmp_path / "a" / "checkpoints").exists()


def test_checkpoints_by_the_minute_are_a_minute_apart(folder, monkeypatch):
    now, written = [float(int(time.monotonic()))], []
    monkeypatch.setenv(EVERY, "60s")
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(checkpoint, "write_checkpoint", lambda *_: written.append(now[0]))

    def half_a_minute(done: int, total: int) -> None:
        now[0] += 30

    train(dataclasses.replace(CHAIN, steps=8), half_a_minute)
    assert np.diff(written).tolist() == [60.0, 60.0]


def test_what_cannot_be_resumed_runs_without_checkpoints_unless_they_were_asked_for(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "FIXED", ())
    refuses("no rule for", train, CHAIN, error=TypeError)
    monkeypatch.setenv(EVERY, "0s")
    assert len(train(CHAIN)["step"])
    assert not list(folder.iterdir())
