"""What is heard of a run while it trains, and that no number depends on who listens.

What a recorder counts and lays out, on rows that are made by hand.
A run's own record holds what its loss read, and changes nothing.
examples/minimal_loop.py: the story of a step with public functions is the step of the big loop.
"""

import dataclasses
import importlib.util
import sys
import types
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.small_runs import SMALL, differing

from testbed.config.run import Run, cell_id
from testbed.data.batch import EXPERT, REPLAY
from testbed.errors import UserError
from testbed.execution.executors import Local
from testbed.execution.progress import Progress
from testbed.execution.runner import run_sweep
from testbed.logs.log_tensors import tensors
from testbed.logs.measure import age_rows, ratio_numbers
from testbed.logs.readers import read
from testbed.logs.record import RECORD
from testbed.staleness.schedule_plan import Generated
from testbed.training import loop
from testbed.training.loop import train, train_pack
from testbed.training.recorder import Recorder, age_metrics, blanks, sequence_tails
from testbed.training.update import State, Trainer
from testbed.worlds.build_world import build_world

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
    assert 2**26 < loop.peak() < 2**36  # bytes


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
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(loop, "peak", lambda: 3 * 2**29)
    run = dataclasses.replace(RUN, steps=71, policy="hf", model="m")
    said = []
    rows = loop.LiveRows([run], said.append, [])
    rows.tokens = 50
    rows.add(0, {"reward/mean": np.array([0.5])})
    rows.tokens = 120
    rows.add(4, {"reward/mean": np.array([np.nan])})
    told = {"accuracy": 0.25, "rollout_corr/ess_kish_sequence_raw": 0.98765, "rollout_corr/kl_mu_pi_k3": 1e-6}
    rows.tokens = 20_000
    rows.add(10, {name: np.array([value]) for name, value in told.items()} | {"histogram": np.ones((1, 3))})
    assert said == [
        "grpo, lag 1, seed 0: step 1 of 71, reward 0.5, 5 tokens/s, 1.5 GiB",
        "grpo, lag 1, seed 0: step 5 of 71, 20 tokens/s, 1.5 GiB, 1:39 left",
        "grpo, lag 1, seed 0: step 11 of 71, accuracy 0.25, ESS 0.988, KL 1e-06, 2,222 tokens/s, 1.5 GiB, "
        "1:30 left",
    ]


def test_every_cell_s_loggers_hear_its_own_numbers_and_the_shared_speed(monkeypatch):
    now = iter([0.0, 10.0, 12.0, 12.0, 12.0])
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(loop, "peak", lambda: 7)
    rounds, told = [0, 1, 2], [[], [], []]
    loggers = [[SimpleNamespace(add=lambda step, row, r=r: told[r].append((step, row)))] for r in rounds]
    loggers[1] *= 2
    rows = loop.LiveRows([replace(RUN, seed=r) for r in rounds], None, loggers)
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    for step, counted in ((0, 10), (2, 1), (4, 0)):
        for _ in range(counted):
            rows.count(SimpleNamespace(mask_RBT=mask))
        rows.add(step, {"x": np.arange(3) + step, "histogram": np.ones((3, 2))})
    speeds = ((0, 3.0), (2, 1.5), (4, 0.0))
    for r, heard in enumerate(told):
        wanted = [
            (step, {"x": float(r + step), "live/tokens_per_second": speed, "live/memory_bytes": 7})
            for step, speed in speeds
        ]
        assert heard == ([one for one in wanted for _ in range(2)] if r == 1 else wanted)
    quiet = loop.LiveRows([RUN], None, [[]])
    quiet.count(SimpleNamespace(mask_RBT=mask))
    quiet.add(0, {"x": np.ones(1)})  # reads no clock, which has no time left
    assert (quiet.tokens, quiet.first, quiet.heard) == (0, None, False)


class FakeWriter:
    made: list = []  # noqa: RUF012

    def __init__(self, folder):
        self.folder, self.scalars, self.closed = folder, [], False
        FakeWriter.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        self.flushed = len(self.scalars)

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
    monkeypatch.setenv(loop.TENSORBOARD, str(tmp_path))
    monkeypatch.setenv(loop.WANDB, "staleness")
    table = train(RUN)
    (writer,) = FakeWriter.made
    assert writer.folder == str(tmp_path / cell_id(RUN))
    assert writer.closed
    assert writer.flushed == len(writer.scalars)
    assert wandb.finished
    assert writer.scalars == [(name, x, step) for step, row in wandb.rows for name, x in row.items()]
    assert (wandb.given["project"], wandb.given["name"]) == ("staleness", cell_id(RUN))
    assert (wandb.given["config"]["lag"], wandb.given["config"]["recipe_args"]) == (1, {})
    assert [step for step, _ in wandb.rows] == [0, 2, 4]
    assert wandb.rows[1][1]["live/tokens_per_second"] > 0
    for name in ("actor/grad_norm", "reward/mean", "rollout_corr/ess_kish_sequence_raw"):
        assert [row[name] for _, row in wandb.rows] == table[name].tolist()
    for name in (loop.TENSORBOARD, loop.WANDB):
        monkeypatch.delenv(name)
    assert differing(table, train(RUN)) == []


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [(loop.TENSORBOARD, "torch.utils.tensorboard", "tensorboard"), (loop.WANDB, "wandb", "wandb")],
)
def test_a_logger_that_is_not_installed_is_named_before_anything_trains(monkeypatch, name, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv(name, "x")
    told = f"{name} is set, but {package} is not installed: pip install {package}, or unset it."
    assert refuses("", train, RUN) == told


def test_a_logger_that_cannot_be_imported_is_named_with_the_cause(monkeypatch, tmp_path):
    (tmp_path / "a_broken_logger.py").write_text("raise ImportError('libgone.so')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="MINE is set, but mine is not installed") as told:
        loop._imported("a_broken_logger", "MINE", "mine")
    assert str(told.value.__cause__) == "libgone.so"


def test_of_several_processes_only_the_first_speaks(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv(loop.WANDB, "x")
    hf = dataclasses.replace(RUN, policy="hf", model="m")
    assert not loop.LiveRows.of([hf], Listener()).heard


BANDIT = Run(task="bandit", steps=6, prompts=4, group=4, learning_rate=0.5, log_every=2)


def made(run: Run = BANDIT):
    """Return a recorder, the state at the start, a batch and its gradient."""
    world = build_world((run,))
    theta = world.initial()
    trainer = Trainer.of((run,), world, theta)
    rollout = world.generate(theta, 0)
    recorder = Recorder((run,), [0], world, trainer.learners, theta)
    update = trainer.first_pass(theta, rollout, 0)
    return recorder, State.start(theta), Generated(rollout, None, {}), update


def test_a_replica_that_loses_its_gradient_at_a_step_has_diverged_at_that_step():
    recorder, state, generated, update = made()
    for finite in (True, False):
        lost = dataclasses.replace(update, finite_R=torch.tensor([finite]))
        recorder.add(0, state, generated, generated.rollout, lost)
        assert recorder.rows[-1]["diverged"].tolist() == [float(not finite)]


def test_empty_batches_count_their_rollouts_logged_or_not():
    recorder, state, generated, _ = made()
    for step in range(3):
        recorder.add_empty(step, state, generated)
    assert [row["rollouts"].tolist() for row in recorder.rows] == [[16.0], [48.0]]
    half = dataclasses.replace(generated, counts={"staleness/replayed_share": np.array([0.5])})
    assert recorder._generated(half).tolist() == [8.0]


def test_ages_are_those_of_tokens_under_the_mask():
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    version = torch.tensor([[[5, 6, 0], [3, 0, 9]]])
    batch = SimpleNamespace(mask_RBT=mask, version_RBT=version, logp_mu_RBT=mask.double())
    found = age_metrics(batch, 7)
    assert {name: value.tolist() for name, value in found.items()} == {
        "staleness/age_mean_token": [(2 + 1 + 4) / 3],
        "staleness/age_max_token": [4.0],
    }


def test_tails_leave_out_ratios_without_an_end():
    log_w = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 200)))
    more = torch.cat([log_w, torch.tensor([[torch.inf, torch.nan]])], dim=1)
    plain = sequence_tails(log_w)
    assert all(np.isfinite(value).all() for value in plain.values())
    for name, value in sequence_tails(more).items():
        np.testing.assert_array_equal(value, plain[name])
    some = log_w[0, :20].numpy()  # where most weights are 0, the threshold is the least that is not
    found = sequence_tails(torch.where(torch.arange(200) < 20, log_w, -torch.inf))
    assert found["rollout_corr/tail_hill_sequence"] == pytest.approx((some - some.min()).sum() / 19)


def test_what_a_row_lacks_is_nan_or_no_count():
    rows = [{"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(2), "histogram": np.ones((2, 3), dtype=int)}]
    found = blanks(rows)
    assert list(found) == ["a", "b", "histogram"]
    assert np.isnan(found["b"]).all()
    assert found["histogram"].tolist() == [[0, 0, 0]] * 2


def test_the_last_of_two_passes_has_a_clip_share_of_its_own():
    run = dataclasses.replace(BANDIT, recipe="sfpo", recipe_args=(("fast", 1),), learning_rate=20.0)
    table = train(run)
    assert table["actor/clip_share"][0] == 0
    assert table["actor/clip_share_last_pass"][0] > 0


TOY = Run(task="running-sum", policy="toy", recipe="grpo", lag=2, steps=5, prompts=3, group=4,
learning_rate=3e-3,
          log_every=2, evaluation_prompts=4)  # fmt: skip


@pytest.mark.slow
def test_the_record_gives_the_metrics_that_the_run_logged_and_the_run_is_the_same(tmp_path, monkeypatch):
    other = replace(TOY, recipe="m2po", seed=3)
    plain = train_pack((TOY, other))
    monkeypatch.setenv(RECORD, str(tmp_path))
    told = train_pack((TOY, other))
    for name, column in plain.items():
        np.testing.assert_array_equal(np.asarray(column), np.asarray(told[name]))
    for cell in (TOY, other):
        log = read([tmp_path / cell_id(cell)])
        assert log.steps == [0, 2, 4]
        for step in log.steps:
            row = (np.asarray(told["cell"]) == cell_id(cell)) & (np.asarray(told["step"]) == step)
            found = ratio_numbers(tensors(log.at(step)))
            for name in (
                "ess_kish_sequence_raw", "ess_max_token_clamped", "kl_mu_pi_k3", "log_rho_sequence_p99",
            ):  # fmt: skip
                full = f"rollout_corr/{name}"
                assert found[full] == pytest.approx(np.asarray(told[full])[row][0], rel=1e-4, abs=1e-7), name
            rewards = np.mean([one.reward for one in log.at(step).sequences])
            assert rewards == pytest.approx(float(np.asarray(told["reward/mean"])[row][0]))
        assert [row["age"] for row in age_rows(tensors(log.at(4)))] == [2.0]
        assert {len({o.group for o in log.at(s).sequences}) for s in log.steps} == {TOY.prompts}


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.delenv(RECORD, raising=False)
    monkeypatch.chdir(tmp_path)
    train(replace(TOY, steps=1))
    assert list(tmp_path.iterdir()) == []


def test_a_cells_record_has_its_own_numbers_and_the_prompts_of_its_groups(tmp_path, monkeypatch):
    monkeypatch.setenv(RECORD, str(tmp_path))
    cell = replace(TOY, steps=1, group=2)
    cells = (cell, replace(cell, recipe="m2po", seed=3))
    train_pack(cells)
    for one in cells:
        log = read([tmp_path / cell_id(one)])
        by_group = {}
        for sequence in log.sequences:
            by_group.setdefault(sequence.group, []).append(tuple(sequence.prompt))
            # At the first step the weights that learn are those that sampled.
            np.testing.assert_allclose(sequence.logp_pi, sequence.logp_mu, rtol=0, atol=1e-4)
        assert [len(prompts) for prompts in by_group.values()] == [2, 2, 2]
        assert all(len(set(prompts)) == 1 for prompts in by_group.values())


def test_a_record_ends_with_the_last_token_and_leaves_demonstrations_out():
    mask = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
    real = lambda start: start + torch.arange(12.0).reshape(1, 4, 3)  # noqa: E731
    one = SimpleNamespace(
        token_RBT=real(0).long(), version_RBT=real(40).long(), prompt_RNQ=torch.tensor([[[7, 8], [9, 5]]]),
        reward_RB=torch.tensor([[0.5, 1.0, 0.25, 2.0]]), origin_RB=torch.tensor([[0, REPLAY, 0, EXPERT]]),
        group=2,
    )  # fmt: skip
    # The replica is the second of its learner's batch.
    both = lambda value: torch.cat([torch.full_like(value, -1), value])  # noqa: E731
    batch = SimpleNamespace(
        mask_BT=both(mask[None].int()).bool(), logp_mu_BT=both(-real(0)), adv_BT=both(real(20)[..., :1]),
        group_B=both(torch.tensor([[0, 0, 1, 1]])), logp_anchor_BT=both(-real(0)),
    )  # fmt: skip
    found = loop._sequences(6, one, -real(60)[0], batch, 1)
    assert [(x.sample, x.group, x.reward, x.step, x.trainer_version, x.prompt.tolist()) for x in found] == [
        ("6/0", "6/0", 0.5, 6, 6, [7, 8]), ("6/1", "6/0", 1.0, 6, 6, [7, 8]),
        ("6/2", "6/1", 0.25, 6, 6, [9, 5]),
    ]  # fmt: skip
    second = found[1]
    assert [*map(len, (found[0].token, second.token, found[2].token))] == [2, 3, 0]
    lists = (second.mask, second.token, second.logp_mu, second.logp_pi, second.advantage, second.version)
    assert [x.tolist() for x in lists] == [
        [True, False, True], [3, 4, 5], [-3, -4, -5], [-63, -64, -65], [23, 23, 23], [43, 44, 45],
    ]  # fmt: skip
    assert second.logp_anchor is None
    batch.logp_anchor_BT, one.version_RBT, one.origin_RB = both(-real(80)), None, None
    *_, last = loop._sequences(6, one, -real(60)[0], batch, 1)
    assert (last.sample, last.logp_anchor.tolist(), last.version) == ("6/3", [-89, -90, -91], None)


PATH = Path(__file__).parents[3] / "examples" / "minimal_loop.py"


def example():
    spec = importlib.util.spec_from_file_location("minimal_loop", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_is_what_the_loop_does_bit_for_bit():
    story = example()
    story.RUN = replace(story.RUN, warm_start_steps=5)
    rewards = story.main(steps=8)
    args = (("advantage", "group_std"), ("aggregation", "token_mean"), ("eps_high", 0.28))
    same = replace(story.RUN, recipe="ppo_clip", recipe_args=args, lag=story.LAG, steps=8, log_every=1)
    table = train(replace(same, learning_rate=story.RATE, optimizer="adam"))
    assert np.allclose(table["reward/mean"], rewards, rtol=0, atol=1e-6)


def test_the_example_is_short_enough_to_read_at_once():
    assert len(PATH.read_text().splitlines()) <= 60
