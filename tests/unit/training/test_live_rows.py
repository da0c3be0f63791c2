"""What is heard of a run while it trains, and that no number depends on who listens."""

import dataclasses
import sys
import types

import numpy as np
import pytest
from support.small_runs import SMALL, differing

from testbed.config.run import cell_id
from testbed.errors import UserError
from testbed.execution.executors import Local
from testbed.execution.progress import Progress
from testbed.execution.runner import run_sweep
from testbed.training import live
from testbed.training.loop import train

RUN = dataclasses.replace(SMALL, steps=5, log_every=2, lag=1)


class Listener:
    """A report that hears lines too."""

    def __init__(self):
        self.steps, self.lines = [], []

    def __call__(self, done, total):
        self.steps.append((done, total))

    def line(self, text):
        self.lines.append(text)


@pytest.fixture
def real(tmp_path):
    from support import tiny_models

    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    small = {"task_args": (("digits", 2), ("modulus", 2)), "evaluation_prompts": 4, "learning_rate": 1e-3}
    return dataclasses.replace(RUN, task="running-sum", policy="hf", model=str(folder), **small)


def test_a_real_model_tells_a_line_per_logged_row(real):
    listener = Listener()
    table = train(real, listener)
    assert len(listener.lines) == len(table["step"]) == 3
    for text, step, reward in zip(listener.lines, table["step"], table["reward/mean"], strict=True):
        assert text.startswith(f"grpo, lag 1, seed 0: step {step + 1} of 5, reward {reward:.3g}, accuracy ")
        for part in (", ESS ", ", KL ", " tokens/s, ", "iB"):
            assert part in text
    assert " left" not in listener.lines[0]
    assert listener.lines[1].endswith(" left")
    assert listener.lines[2].endswith(", 0:00 left")
    assert differing(table, train(real)) == []


def test_packs_of_other_policies_tell_no_lines():
    listener = Listener()
    train(RUN, listener)
    assert listener.lines == []
    assert listener.steps[-1] == (5, 5)


def test_lines_reach_the_display_from_a_worker(tmp_path):
    heard = []

    class Display(Progress):
        def line(self, text):
            heard.append(text)

    for executor in (None, Local(1, function="support.fake_training:talking")):
        if executor is None:
            run_sweep(
                [RUN], tmp_path / "a", workers=0, progress=Display(), function="support.fake_training:talking"
            )
        else:
            run_sweep([RUN], tmp_path / "b", executor=executor, progress=Display())
    assert heard == ["half of it", "half of it"]


def test_time_left_is_told_at_the_pace_of_the_steps_so_far(monkeypatch):
    now = iter([0.0, 10.0, 16.0, 25.0])
    monkeypatch.setattr(live.time, "monotonic", lambda: next(now))
    run = dataclasses.replace(RUN, steps=11, policy="hf", model="m")
    said = []
    rows = live.LiveRows([run], said.append, [])
    rows.tokens = 50
    rows.add(0, {"reward/mean": np.array([0.5])})
    rows.tokens = 120
    rows.add(4, {"reward/mean": np.array([np.nan])})
    rows.add(10, {})
    assert "step 1 of 11, reward 0.5, 5 tokens/s" in said[0]
    assert "step 5 of 11, 20 tokens/s" in said[1]
    assert said[1].endswith("0:09 left")


class FakeWriter:
    made: list = []  # noqa: RUF012

    def __init__(self, folder):
        self.folder, self.scalars, self.closed = folder, [], False
        FakeWriter.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        self.closed = True


class FakeWandb:
    def __init__(self):
        self.given, self.rows, self.finished = None, [], False

    def init(self, **given):
        self.given = given
        return self

    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


def test_loggers_hear_every_number_of_every_row(monkeypatch, tmp_path):
    FakeWriter.made = []
    wandb = FakeWandb()
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=FakeWriter)
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv(live.TENSORBOARD, str(tmp_path))
    monkeypatch.setenv(live.WANDB, "staleness")
    table = train(RUN)
    (writer,) = FakeWriter.made
    assert writer.folder == str(tmp_path / cell_id(RUN))
    assert writer.closed
    assert wandb.finished
    found = {step: value for name, value, step in writer.scalars if name == "reward/mean"}
    assert found == dict(zip(table["step"].tolist(), table["reward/mean"].tolist(), strict=True))
    assert (wandb.given["project"], wandb.given["name"]) == ("staleness", cell_id(RUN))
    assert wandb.given["config"]["lag"] == 1
    assert [step for step, _ in wandb.rows] == [0, 2, 4]
    assert wandb.rows[1][1]["live/tokens_per_second"] > 0
    for name in ("actor/grad_norm", "rollout_corr/ess_kish_sequence_raw"):
        assert [row[name] for _, row in wandb.rows] == table[name].tolist()
    for name in (live.TENSORBOARD, live.WANDB):
        monkeypatch.delenv(name)
    assert differing(table, train(RUN)) == []


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [(live.TENSORBOARD, "torch.utils.tensorboard", "tensorboard"), (live.WANDB, "wandb", "wandb")],
)
def test_a_logger_that_is_not_installed_is_named_before_anything_trains(monkeypatch, name, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv(name, "x")
    with pytest.raises(UserError, match=f"{name} is set, but {package} is not installed"):
        train(RUN)


def test_of_several_processes_only_the_first_speaks(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv(live.WANDB, "x")
    hf = dataclasses.replace(RUN, policy="hf", model="m")
    assert not live.LiveRows.of([hf], Listener()).heard
