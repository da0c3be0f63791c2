"""The cost of a sweep, on a machine whose speed is known, and who is asked before it is spent."""

import sys
import time
from dataclasses import replace

import pytest
from support.command_line import refused

from analysis.commands.evidence_commands import agree_on_experiment
from testbed.cli.cost_prompt import agree
from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution import cost, runner
from testbed.execution.cost import Cost, Rates
from testbed.execution.packs import plan
from testbed.execution.runner import run_sweep
from testbed.training.loop import train_pack

TOY = Run(task="running-sum", policy="toy", steps=1000, log_every=10, warm_start_steps=100)
HOURS = Cost(cells=8, packs=1, workers=1, seconds=7200.0, memory=1 << 30)


def cost_of(cells, workers=1, rates=lambda _: Rates(0.01, 0.1, 0.05)):
    return cost.cost(plan(cells), workers, rates)


@pytest.fixture
def kept(monkeypatch, tmp_path):
    monkeypatch.setenv("TESTBED_BASE_MODELS", str(tmp_path))


def test_seconds_are_those_of_steps_rows_and_base_models(kept):
    for steps, rows in ((1000, 101), (1001, 102)):  # after every tenth step and the last one
        cells = grid(replace(TOY, steps=steps), lag=[0, 4], seed=range(3))
        wanted = cost.START + 6 * (steps * 0.01 + rows * 0.1) + 3 * 100 * 0.05
        assert cost_of(cells).seconds == pytest.approx(wanted)


def test_a_base_model_that_is_kept_is_trained_once_for_all_packs(kept, monkeypatch):
    cells = grid(TOY, prompts=[8, 16], seed=range(3))
    shared = cost_of(cells).seconds
    monkeypatch.setenv("TESTBED_BASE_MODELS", "off")
    assert cost_of(cells).seconds - shared == pytest.approx(3 * 100 * 0.05)


@pytest.mark.slow
def test_a_base_model_that_lies_in_the_folder_costs_nothing(kept):
    small = replace(
        TOY, task_args=(("digits", 2),), prompts=1, group=1, evaluation_prompts=1, steps=1, warm_start_steps=2
    )
    train_pack(grid(small, seed=[0, 1]))
    two, new = (cost_of(grid(replace(small, steps=10**7), seed=seeds)).seconds for seeds in ([0, 1], [2, 3]))
    assert new - two == pytest.approx(2 * 2 * 0.05)
    other = replace(small, steps=10**7, teacher_noise=0.5)
    assert cost_of(grid(other, seed=[0, 1])).seconds == pytest.approx(new)


def test_what_is_short_by_a_rough_guess_is_not_timed():
    assert cost_of([replace(TOY, steps=3, warm_start_steps=0)], rates=None).seconds < cost.SHORT
    rough = cost.guessed(replace(TOY, prompts=4, group=8, evaluation_prompts=64))
    assert rough.row / rough.step == pytest.approx(64 * 4 / (4 * 8))  # by responses


def test_the_largest_kinds_are_timed_and_the_others_scaled_by_their_size():
    cells = grid(replace(TOY, warm_start_steps=0), prompts=[2, 8, 16, 32], seed=[0])
    told = []

    def rates(pack):
        told.append(pack.cells[0].prompts)
        return Rates(0.01 * pack.cells[0].prompts, 0.0, 0.0)

    found = cost_of(cells, rates=rates).seconds
    assert sorted(told) == [8, 16, 32]
    assert found == pytest.approx(cost.START + 1000 * 0.01 * (2 + 8 + 16 + 32))


def of_a_known_speed(now, fixed=0.0):
    """A training loop on the clock now[0]: a step takes so long, each cell a second, a row half of that."""

    def train(cells, report):
        assert all(cell.warm_start_steps == 0 for cell in cells)
        now[0] += 30.0  # compiling
        for step in range(cells[0].steps):
            now[0] += fixed + len(cells) * (1.0 + 0.5 * (step % cells[0].log_every == 0))
            report(step + 1, cells[0].steps)

    return train


def test_steps_and_rows_are_told_apart_and_a_warm_up_is_not_counted():
    now = [0.0]
    (pack,) = plan(grid(replace(TOY, warm_start_steps=0), seed=range(20)))
    found = cost.timed(pack, of_a_known_speed(now), lambda: now[0])
    assert (found.step, found.row, found.lesson) == (pytest.approx(1.0), pytest.approx(0.5), 0.0)


def test_what_a_step_of_a_full_pack_costs_is_shared_by_all_its_cells():
    now = [0.0]
    (pack,) = plan(grid(replace(TOY, warm_start_steps=0), seed=range(32)))
    assert cost.timed(pack, of_a_known_speed(now, 64.0), lambda: now[0]).step == pytest.approx(3.0)


def test_a_few_large_cells_are_timed_in_place_of_the_pack():
    large = replace(TOY, policy_args=(("width", 128), ("layers", 4)), warm_start_steps=0)
    (pack,) = plan(grid(large, seed=range(32)))
    told = []
    cost.timed(pack, lambda cells, report: (told.append(len(cells)), [report(i, 9) for i in range(9)]))
    assert told == [cost.LEAST]


def test_other_work_on_the_machine_is_no_cost():
    def train(cells, report):
        for step in range(cells[0].steps):
            time.sleep(0.02)
            report(step + 1, cells[0].steps)

    (pack,) = plan([replace(TOY, warm_start_steps=0)])
    assert cost.timed(pack, train).step < 0.01


def test_the_training_loop_is_timed_unless_another_is_given(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(cost, "imported", {cost.TRAIN: of_a_known_speed(now)}.get)
    (pack,) = plan([replace(TOY, warm_start_steps=0)])
    assert cost.timed(pack, clock=lambda: now[0]).step == pytest.approx(1.0)


@pytest.mark.slow
def test_real_cells_are_timed_in_a_moment():
    (pack,) = plan(grid(replace(TOY, task_args=(("digits", 4),), prompts=2), seed=range(2)))
    found = cost.timed(pack)
    assert 0 < found.step < 1
    assert 0 < found.lesson < 1
    assert found.row < 1


def test_memory_is_that_of_the_packs_that_run_at_once():
    one = cost_of(grid(TOY, seed=range(32)))
    two = cost_of(grid(TOY, seed=range(64)), workers=2)
    assert two.memory == 2 * one.memory
    assert cost_of(grid(TOY, seed=range(96)), workers=2).memory == two.memory
    small, large = (plan(grid(TOY, seed=range(n)))[0] for n in (2, 32))
    assert one.memory == cost.PROCESS + cost.bytes_of(large) > cost.PROCESS + cost.bytes_of(small)
    for packs in ((small, large), (large, small)):  # the largest may come first
        assert cost.cost(packs, 1, lambda _: Rates(0.01, 0.1, 0.05)).memory == one.memory


def test_a_model_of_any_size_has_an_unknown_time_and_is_not_asked_for():
    (pack,) = plan([Run(task="running-sum", policy="hf", model="nowhere", steps=10**6)])
    found = cost.cost([pack], 1)
    assert found.seconds is None
    assert "an unknown time" in str(found)
    agree(found, yes=False, quiet=True)


def test_it_is_said_in_words(capsys):
    assert "8 cells in 1 pack on 1 worker: about 2.0 hours, about 1 GiB of memory." in str(HOURS)
    assert str(replace(HOURS, cells=0)) == "All cells are done."
    assert [cost.duration(s) for s in (59, 60, 89, 720)] == [
        "under a minute", "about 1 minute", "about 1 minute", "about 12 minutes",
    ]  # fmt: skip
    assert [cost.duration(s) for s in (5399, 5400, 7560)] == [
        "about 90 minutes", "about 1.5 hours", "about 2.1 hours",
    ]  # fmt: skip
    agree(replace(HOURS, seconds=10), yes=False, quiet=False, at_most=True)
    assert capsys.readouterr().err.startswith("At most 8 cells")


def test_above_an_hour_it_goes_on_only_when_told_to(monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(UserError, match=r"about 2.0 hours.*above an hour: give --yes"):
        agree(HOURS, yes=False, quiet=True)
    agree(HOURS, yes=True, quiet=True)
    agree(replace(HOURS, seconds=3600.0), yes=False, quiet=True)


def test_on_a_terminal_the_question_decides(monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr("testbed.cli.cost_prompt.typer.confirm", lambda text, **how: asked.append(how))
    agree(HOURS, yes=False, quiet=True)
    assert asked == [{"abort": True, "err": True}]


@pytest.mark.parametrize(
    "words",
    [["run", "bandit-grid", "--out", "OUT"], ["tune", "bandit-grid", "--out", "OUT"],
     ["evidence", "run", "bandit-grid", "--results", "OUT"],
     ["evidence", "run", "bandit-grid", "--write", "--results", "OUT"]],
)  # fmt: skip
def test_a_long_sweep_is_refused_before_anything_is_written(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    monkeypatch.setattr("testbed.execution.cost.cost", lambda *_: HOURS)
    monkeypatch.setattr(runner, "run_sweep", None)
    assert "give --yes to go on" in refused(capsys, *(tmp_path / "out" if w == "OUT" else w for w in words))
    assert not (tmp_path / "out").exists()


def test_packs_that_the_folder_holds_cost_nothing(tmp_path):
    cells = grid(Run(steps=1), prompts=[1, 2])
    packs = plan(cells)
    assert cost.unfinished(packs, tmp_path / "none") == packs
    run_sweep(cells, tmp_path / "runs", workers=0, shard="1/2")
    assert cost.unfinished(packs, tmp_path / "runs") == packs[1:]


def test_a_stopping_rule_costs_at_most_both_runs_at_their_caps(tmp_path, monkeypatch, capsys):
    from analysis.experiment import EXPERIMENTS

    experiment = next(each for each in EXPERIMENTS.values() if each.stop is not None)
    told = []
    monkeypatch.setattr("testbed.execution.cost.cost", lambda packs, _: told.extend(packs) or HOURS)
    agree_on_experiment(experiment, tmp_path, 1, yes=True, quiet=False)
    assert sum(len(pack.cells) for pack in told) == 2 * len(experiment.table_cells())
    assert capsys.readouterr().err.startswith("At most ")


def test_a_lesson_is_the_time_of_one_model_and_step(monkeypatch):
    now = [0.0]

    def lessons(_policy, _task, seeds, steps):
        now[0] += 3.0 * len(seeds) * steps

    monkeypatch.setattr("testbed.policies.warm_start.warm_start", lessons)
    assert cost._lesson(TOY, lambda: now[0]) == 3.0
    assert cost._lesson(replace(TOY, warm_start_steps=0), lambda: now[0]) == 0.0


def test_rough_rates_are_weights_times_tokens(monkeypatch):
    monkeypatch.setattr("testbed.worlds.build_world.policy_size", lambda _: (1000, 4, 0))
    monkeypatch.setattr("testbed.worlds.task_registry.longest_response", lambda _: 5)
    tokens = 5 * 4e-10 * 1000
    found = cost.guessed(replace(TOY, prompts=2, group=3, evaluation_prompts=7))
    assert (found.step, found.row, found.lesson) == pytest.approx((6 * tokens, 28 * tokens, 64 * tokens))
    assert cost.guessed(Run()) == Rates(1e-4, 1e-4, 0.0)
    assert Rates(1.0, 2.0, 3.0).times(2.0) == Rates(2.0, 4.0, 6.0)


def test_kinds_leave_out_what_the_formula_covers():
    def kind(**changed):
        return cost.kind_of(plan([replace(TOY, **changed)])[0])

    for name, value in (("steps", 7), ("log_every", 3), ("warm_start_steps", 9), ("teacher_noise", 0.5),
                        ("seed", 5),
                        ("lag", 4), ("learning_rate", 0.5), ("recipe", "m2po")):  # fmt: skip
        assert kind(**{name: value}) == kind(), name
    for name, value in (("prompts", 3), ("group", 3), ("policy_args", (("width", 8),)), ("task", "reverse")):
        assert kind(**{name: value}) != kind(), name


def test_kinds_that_cannot_be_timed_take_the_rates_of_others_by_size_or_rough_ones(monkeypatch):
    toys = plan(grid(replace(TOY, warm_start_steps=0, steps=10**6), prompts=[8, 64], seed=[0]))
    tabular = plan([Run(steps=10**7)])
    asked = []

    def rates(pack):
        asked.append(pack)
        return Rates(1.0, 0.0, 0.0)

    monkeypatch.setattr(cost, "bytes_of", lambda pack: cost.SMALL + (pack is toys[1]))
    found = cost.cost([*toys, *tabular], 1, rates)
    assert set(asked) == {toys[0], tabular[0]}
    times = cost.guessed(toys[1].cells[0]).step / cost.guessed(toys[0].cells[0]).step
    assert found.seconds == pytest.approx(cost.START + 10**6 * (1 + times) + 10**7)
    asked.clear()
    monkeypatch.setattr(cost, "bytes_of", lambda pack: cost.SMALL + (pack is tabular[0]))
    found = cost.cost([*toys, *tabular], 2, rates)
    assert set(asked) == set(toys)
    rough = cost.seconds_of(tabular[0], cost.guessed(tabular[0].cells[0]))
    assert found.seconds == pytest.approx(cost.START + 10**6 + rough, rel=1e-12)
    assert (found.cells, found.packs, found.workers) == (3, 3, 2)
    assert found.memory == 2 * cost.PROCESS + 2 * cost.SMALL + 1


def test_seconds_count_seeds_once_and_rows_with_the_first():
    (pack,) = plan(grid(replace(TOY, steps=21, log_every=10, warm_start_steps=5), lag=[0, 4], seed=range(3)))
    rates = Rates(1.0, 100.0, 10_000.0)
    assert cost.seconds_of(pack, rates) == 6 * (21 + 4 * 100) + 3 * 5 * 10_000
    assert cost.seconds_of(pack, rates, 1) == 6 * (21 + 4 * 100) + 5 * 10_000
    assert [cost.on_workers([5.0, 1.0, 3.0, 1.0], n) for n in (1, 2, 3)] == [10.0, 5.0, 5.0]
    (bad,) = plan([replace(TOY, policy_args=(("heads", 3), ("width", 8)))])
    assert cost.bytes_of(bad) == 0


def test_a_pack_is_timed_in_part_on_one_thread(monkeypatch):
    import torch

    before, seen, now = torch.get_num_threads(), [], [0.0]
    torch.set_num_threads(2)
    (pack,) = plan(grid(replace(TOY, steps=500, log_every=100, warm_start_steps=0), seed=range(32)))
    monkeypatch.setattr(cost, "guessed", lambda _: Rates(cost.MOMENT / (cost.TIMED * 11.5), 0.0, 0.0))

    def train(cells, report):
        seen.append(([c.seed for c in cells], cells[0].steps, cells[0].log_every, torch.get_num_threads()))
        for step in range(9):
            now[0] += (2.0, 3.0)[step % 2]
            report(step + 1, 9)

    found = cost.timed(pack, train, lambda: now[0])
    assert seen == [(list(range(0, 32, 3)), 9, 2, 1)]  # eleven fit: every third
    assert (found.step, found.row) == (3.0 / 11, 0.0)  # a row is never below 0
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
