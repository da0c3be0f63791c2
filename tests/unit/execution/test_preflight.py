"""What cannot run is refused before anything is written: all of it at once, in numbers, once per sweep."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from support.refusals import refuses
from support.small_runs import TOY
from support.tiny_models import CONFIGS, write_model

from testbed.config.fields import check, normal
from testbed.config.run import Run, grid
from testbed.errors import PROBLEMS as MOST
from testbed.errors import UserError
from testbed.execution import memory, preflight
from testbed.execution.memory import Need, Room, needed, too_large
from testbed.execution.packs import plan
from testbed.execution.preflight import prepare
from testbed.execution.runner import run_sweep
from testbed.policies.hf.model_folder import load_model, parameters_of
from testbed.staleness import build_source, schedule
from testbed.worlds.build_world import build_world, policy_size

BANDIT = Run(task="bandit", steps=3, prompts=4, group=4, log_every=1)
LIMIT = 2**20
ARGUMENTS = {
    "empirical": {"distribution": "0:0.5 2:0.5"}, "in-flight": {"tokens": 2}, "partial": {"tokens": 2},
    "pipeline": {"design": "batch=16 group=4 slots=16"},
}  # fmt: skip
LAGS = dict.fromkeys(("offline", "partial", "windowed", "latency", "replay", "pipeline"), 0) | {
    "one-step-off": 1,
    "empirical": 1,
}


def under(run: Run, name: str) -> Run:
    arguments = tuple(ARGUMENTS.get(name, {}).items())
    if name == "windowed" and run.policy == "toy":  # which wants responses of a fixed length
        run = replace(run, task="running-sum", task_args=(("digits", 4), ("modulus", 3)))
    return replace(run, staleness=name, staleness_args=arguments, lag=LAGS.get(name, 3))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one mebibyte left."""
    monkeypatch.delenv("TESTBED_SPILL", raising=False)
    monkeypatch.setattr("testbed.staleness.storage.available", lambda _: LIMIT)


def test_every_problem_of_a_sweep_is_told_at_once_and_nothing_is_written(tmp_path):
    cells = [
        *grid(replace(BANDIT, task="bandits"), seed=range(3)),
        *grid(replace(BANDIT, recipe="grop"), seed=range(3)),
        replace(BANDIT, staleness="uniform", lag=2, staleness_args=(("slices", 3),)),
        replace(BANDIT, mismatch="stale-kv"),
        replace(BANDIT, recipe="reinforce", anchor="ewma"),
        replace(BANDIT, lag=-1),
        replace(TOY, policy_args=(("heads", 3), ("width", 8))),
        replace(TOY, policy="hf", policy_args=(), model=str(tmp_path / "none")),
    ]
    lines = refuses("", run_sweep, cells, tmp_path / "results", workers=0).split("\n")
    for words in (
        "Unknown task 'bandits'", "Unknown recipe 'grop'", "prompts is 4, which 3 slices",
        "engine 'stale-kv' acts inside", "anchor is 'ewma', but", "lag is -1",
        "width 8 is not a multiple of heads 3", "none' does not exist",
    ):  # fmt: skip
        assert sum(words in line for line in lines) == 1, words
    assert len(lines) == 8
    assert not (tmp_path / "results").exists()


def test_many_problems_are_cut_and_counted():
    lines = refuses("", prepare, grid(BANDIT, task=[f"nowhere-{i}" for i in range(MOST + 5)])).split("\n")
    assert len(lines) == MOST + 1
    assert lines[-1] == "… and 5 more problems."


def test_a_sound_sweep_gives_its_packs_and_those_of_the_shard():
    cells = grid(BANDIT, seed=range(200))
    packs, ours = prepare(cells, "2/2")
    assert packs == plan(cells)
    assert ours == packs[1::2]


def test_every_distinct_combination_is_looked_at_once(monkeypatch):
    asked: list[Run] = []
    real = preflight.plan_for
    monkeypatch.setattr(preflight, "plan_for", lambda run: asked.append(run) or real(run))
    memory._versions.cache_clear()
    few = grid(BANDIT, staleness=["uniform"], lag=[1, 2, 3], seed=range(4), learning_rate=[0.1, 0.2])
    prepare(few)
    first = len(asked)
    memory._versions.cache_clear()
    prepare(grid(BANDIT, staleness=["uniform"], lag=[1, 2, 3], seed=range(40), learning_rate=[0.1, 0.2]))
    assert len(asked) - first == first > 0


def test_another_function_than_the_training_loop_is_asked_for_valid_fields_alone(tmp_path):
    cells = grid(replace(BANDIT, task="mine"), seed=range(3))
    status = run_sweep(cells, tmp_path / "s", workers=0, function="support.fake_training:train")
    assert status.done == 3
    with pytest.raises(UserError, match="lag is -1"):
        run_sweep([Run(lag=-1)], tmp_path / "t", workers=0, function="support.fake_training:train")


def test_the_normal_form_of_many_cells_is_that_of_each():
    odd = [
        BANDIT,
        replace(BANDIT, task_args=(("arms", True),)),
        replace(BANDIT, task_args=(("arms", 1),)),
        replace(BANDIT, task_args={"arms": 4.0}),  # type: ignore[arg-type]
        replace(BANDIT, lag=torch.tensor(3).numpy()),  # type: ignore[arg-type]
        replace(BANDIT, lag=3),
        replace(BANDIT, lag=True),
        replace(BANDIT, warm_start_steps=2),
        replace(BANDIT, steps=0),
    ]
    sound, wrong = normal([*odd, *odd])
    expected, refused = [], []
    for cell in (*odd, *odd):
        try:
            expected.append(check(cell))
        except UserError as error:
            refused.append(str(error))
    assert list(sound) == expected
    assert [repr(cell) for cell in sound] == [repr(cell) for cell in expected]
    assert wrong == refused
    assert len(wrong) == 6


@pytest.mark.parametrize("name", sorted(set(schedule) - {"trace"}))
@pytest.mark.parametrize("run", [BANDIT, TOY], ids=["bandit", "toy"])
def test_a_pack_states_exactly_the_versions_that_its_source_keeps(run, name, monkeypatch):
    from testbed.staleness import versions

    cells = tuple(replace(under(run, name), seed=seed) for seed in range(2))
    (pack,) = plan(cells)
    kept = []
    real = versions.allocate
    monkeypatch.setattr(versions, "allocate", lambda rows, *rest: kept.append(rows) or real(rows, *rest))
    world = build_world(pack.cells)
    theta = world.initial()
    source = build_source(pack.cells, world, theta)
    first = getattr(getattr(source, "versions", None), "first_RP", None)
    need = needed(pack)
    assert need.versions == sum(kept) + (0 if first is None else len(cells))
    assert (need.parameters, need.itemsize) == (theta.shape[1], theta.element_size())
    assert need.replicas == len(cells)


def test_the_anchor_s_versions_count(tmp_path):
    run = replace(BANDIT, recipe="decoupled", anchor="version", anchor_args=(("age", 5),))
    assert needed(plan([run])[0]).versions == 1 + 6
    assert needed(plan([replace(run, anchor="ewma", anchor_args=())])[0]).versions == 1 + 1


@pytest.mark.usefixtures("little")
def test_a_pack_that_cannot_fit_is_refused_with_its_numbers_and_the_largest_lag_that_would(tmp_path):
    run = replace(TOY, lag=500, steps=1000, prompts=1, group=2)
    text = refuses("", run_sweep, grid(run, seed=range(2)), tmp_path / "s", workers=0)
    assert "\n" not in text
    assert "1002 versions" in text
    assert f"2 cells x {policy_size(run)[0]:,} weights of 4 bytes" in text
    assert "1 MiB are free, half of it for versions" in text
    largest = int(text.split("largest lag that would fit is ")[1].split(".")[0])
    fits = [
        needed(plan(grid(replace(run, lag=lag), seed=range(2)))[0]).fits(Room(LIMIT))
        for lag in (largest, largest + 1)
    ]
    assert fits == [True, False]
    assert not (tmp_path / "s").exists()


@pytest.mark.usefixtures("little")
def test_versions_in_a_folder_need_no_memory(tmp_path, monkeypatch):
    run = replace(TOY, lag=500, steps=1000, prompts=1, group=2)
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path))
    packs, _ = prepare([run])
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    refuses("1000 bytes in TESTBED_SPILL", prepare, [run])
    assert not needed(packs[0]).fits(Room(LIMIT))
    assert needed(packs[0]).fits(Room(LIMIT, LIMIT**2))


def test_a_pack_that_is_done_needs_no_memory_any_more(tmp_path, monkeypatch):
    from testbed.execution.cost import bytes_of

    packs = [*plan([replace(TOY, seed=1)]), *plan([TOY])]
    with monkeypatch.context() as patch:
        patch.setattr(memory, "done_in", lambda _: {packs[0].id})
        assert len(list(too_large(packs, lambda _: Room(1), tmp_path))) == 1, "the second one is not done"
    none, two, four = (bytes_of(plan([replace(TOY, lag=lag)])[0]) for lag in (0, 2, 4))
    assert four - two == two - none > 0, "every version is held"
    assert run_sweep([BANDIT], tmp_path / "s", workers=0).done == 1
    monkeypatch.setattr("testbed.staleness.storage.available", lambda _: 10)
    assert run_sweep([BANDIT], tmp_path / "s", workers=0).done == 1
    refuses("cannot fit", run_sweep, [BANDIT], tmp_path / "other", workers=0)


def test_a_pack_is_done_once_it_has_a_result_and_not_when_it_is_planned(tmp_path):
    assert run_sweep([BANDIT], tmp_path / "s", workers=0, function="support.fake_training:troubled").failed
    assert [memory.done_in(folder) for folder in (None, tmp_path / "none", tmp_path / "s")] == [set()] * 3
    assert run_sweep([BANDIT], tmp_path / "s", workers=0).done == 1
    assert memory.done_in(tmp_path / "s") == {plan([BANDIT])[0].id}


@pytest.mark.parametrize("name", ["qwen3, tied", "gpt2"])
def test_the_weights_of_a_model_folder_are_counted_by_its_headers(name, tmp_path):
    folder = write_model(tmp_path, CONFIGS[name]())
    model = load_model(folder, torch.float32, "auto")
    assert parameters_of(folder) == sum(p.numel() for p in model.parameters())
    (folder / "model.safetensors").write_bytes(b"no header")
    assert parameters_of(folder) == 0


@pytest.mark.parametrize(
    "wrong", [("temperature", 0.0), ("micro_tokens", -1), ("lora", -3), ("dtype", "float13")], ids=str
)
def test_wrong_arguments_of_a_model_are_refused_before_its_weights_are_read(wrong, tmp_path, monkeypatch):
    folder = write_model(tmp_path, CONFIGS["llama"]())
    monkeypatch.setattr("testbed.worlds.build_world.TRIED", 0)  # as for a model of a billion weights
    monkeypatch.setattr("testbed.policies.hf.hf_policy.load_model", lambda *_: pytest.fail("read"))
    run = replace(TOY, policy="hf", model=str(folder), policy_args=(wrong,))
    refuses(wrong[0], prepare, [run])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_missing_here_is_missing_before_the_sweep_starts():
    refuses("torch sees no GPU", prepare, [replace(TOY, device="cuda")])
    assert preflight.prepare([replace(TOY, device="cuda")], here=False)[0]


def test_one_answer_of_20000_characters_is_told_its_memory_without_taking_it(tmp_path):
    """The toy's embedding is a product with columns x positions; an estimate of time does not run it."""
    from testbed.execution.cost import Rates, bytes_of, cost

    rows = [{"prompt": f"say {i}?", "answer": "ab " * 6667 if i == 0 else str(i)} for i in range(8)]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    cell = Run(
        task="jsonl", policy="toy", task_args=(("file", str(tmp_path / "long.jsonl")),), prompts=8, group=4
    )
    (pack,) = plan([cell])
    columns, positions = 8 * 5 + 8 * 4 * 20_000, 20_000
    assert bytes_of(pack) > 4 * columns * positions
    small = Room(1 << 30)
    assert [True for line in too_large([pack], lambda _: small) if "cannot fit" in line] == [True]

    def never(_pack) -> Rates:
        raise AssertionError("timed")

    assert cost([pack], 1, never).seconds > 60


def test_room_for_versions_is_half_of_the_memory_or_all_of_the_disk(monkeypatch, tmp_path):
    rooms = (Room(10), Room(10, disk=7), Room(10, host=30), Room(10, host=4))
    assert [room.versions for room in rooms] == [5, 7, 15, 5]
    need = Need(parameters=100, itemsize=4, replicas=2, versions=10, optimizer=2, activations=1000, saved=500)
    assert (need.one, need.kept, need.fixed) == (400, 3500, 5800)
    assert need.fits(Room(5800, host=7000))
    assert not need.fits(Room(5799, host=7000))
    assert not need.fits(Room(5800, host=6999))
    assert need.lines() == (
        "weights and gradients 3.125 KiB (2 cells x 100 weights of 4 bytes), 10 versions 3.418 KiB, "
        "optimizer 1.562 KiB, activations about 1000 bytes"
    )
    monkeypatch.setattr("testbed.staleness.storage.available", lambda device: 77)
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path / "none"))
    assert Room.now("cpu") == Room(77)
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    assert Room.now("cpu") == Room(77, 1000)


def test_a_refusal_says_what_is_free_where(monkeypatch):
    (pack,) = plan(grid(BANDIT, seed=range(3)))
    need, name = needed(pack), memory.cell_id(pack.cells[0])
    monkeypatch.setattr(memory, "largest_lag", lambda pack, room: {3: 7}.get(room.memory))
    for room, free, lag, spill in (
        (Room(2, 5), "2 bytes are free, and 5 bytes in TESTBED_SPILL", "", ""),
        (Room(3), "3 bytes are free, half of it for versions", " The largest lag that would fit is 7.",
         " set TESTBED_SPILL=FOLDER to keep versions in a file,"),
        (Room(2, None, 9), "2 bytes are free, half of it for versions or half of the machine's 9 bytes", "",
         " set TESTBED_SPILL=FOLDER to keep versions in a file,"),
    ):  # fmt: skip
        assert memory._refusal(pack, need, room) == (
            f"The pack of {name} and 2 more cannot fit: {need.lines()}; {free}.{lag} Take a smaller "
            f"lag,{spill} or run fewer cells at a time."
        )
    two = [*plan(grid(BANDIT, seed=range(3))), *plan(grid(BANDIT, seed=range(3, 6)))]
    assert len(list(too_large(two, lambda _: Room(2)))) == 1  # one need, told once


def test_the_largest_lag_is_found_where_it_lies(monkeypatch):
    (pack,) = plan(grid(BANDIT, lag=[2, 40], seed=[0]))
    asked, limit = [], 0

    def need(pack):
        asked.append([cell.lag for cell in pack.cells])
        return SimpleNamespace(fits=lambda _: asked[-1][1] <= limit)

    monkeypatch.setattr(memory, "needed", need)
    for limit in (0, 1, 2, 17, 39):
        assert memory.largest_lag(pack, Room(1)) == limit
    assert all(small == min(2, large) for small, large in asked)
    monkeypatch.setattr(memory, "needed", lambda _: SimpleNamespace(fits=lambda _: False))
    assert memory.largest_lag(pack, Room(1)) is None


def test_versions_of_several_processes_and_of_narrow_numbers_count_as_they_are_kept(monkeypatch):
    (pack,) = plan(grid(BANDIT, seed=range(2)))
    monkeypatch.setattr(memory, "_size", lambda _: (10, 4, 100))
    monkeypatch.setattr(memory, "_versions", lambda _: (3, 2))
    for dtype, bytes_of_a_weight in ((torch.float16, 2), (None, 0), (torch.float8_e4m3fn, 1)):
        monkeypatch.setattr("testbed.worlds.generation.narrow_versions", lambda _, dtype=dtype: dtype)
        assert memory._narrow(replace(TOY, policy="hf")) == bytes_of_a_weight
        assert memory._narrow(TOY) == memory._narrow(BANDIT) == 0
    for copies, narrow, device, made in ((1, 0, "cpu", 1), (3, 2, "cpu", 3), (3, 1, "cuda", 1)):
        monkeypatch.setattr(memory, "ranks_of", lambda _, copies=copies: copies)
        monkeypatch.setattr(memory, "_narrow", lambda _, narrow=narrow: narrow)
        on = replace(pack, cells=tuple(replace(c, device=device) for c in pack.cells))
        adam = 2 if BANDIT.optimizer == "adam" else 0
        saved = made * 2 * 3 * 10 * (4 - narrow) if narrow else 0
        assert needed(on) == Need(10, 4, 2 * made, 2 * 5 * made, adam, 2 * 100, saved)


SUM = replace(TOY, task="running-sum", task_args=(("digits", 2), ("modulus", 2)))


@pytest.mark.parametrize(
    ("cell", "changes", "message"),
    [(BANDIT, {"recipe": "sft"}, "needs demonstrations, and a tabular world has no teacher; take"),
     (BANDIT, {"teacher": "self", "recipe": "dgrpo"}, "teacher"),
     (SUM, {"recipe": "remax", "verifier": "comparisons"}, "fitted anew for every seed, does not give"),
     (SUM, {"recipe": "remax", "verifier": "lenient"}, ""),
     (SUM, {"recipe": "grpo", "verifier": "comparisons"}, ""),
     (TOY, {"recipe": "sft", "age_limit": 0, "too_old": "drop"}, "age_limit 0 leaves batches of any size"),
     (TOY, {"recipe": "sft", "age_limit": 0, "too_old": "wait"}, ""),
     (TOY, {"recipe": "sft", "age_limit": -1, "too_old": "drop"}, ""),
     (BANDIT, {"guide": "rescue"}, "shows the teacher's answers, but a tabular world knows no solutions"),
     (BANDIT, {"guide": "own"}, ""), (SUM, {"guide": "splice"}, ""),
     (TOY, {"guide": "splice"}, "guide 'splice' on task 'length'"),
     (SUM, {"guide": "splice", "policy": "hf", "policy_args": ()}, "guide 'splice' on task 'running-sum'")],
)  # fmt: skip
def test_what_a_recipe_lacks_is_said_in_one_sentence(cell, changes, message):
    problems = list(preflight.problems([replace(cell, **changes)]))
    assert any(message in problem for problem in problems) if message else not problems, problems


def test_objectives_of_users_are_called_once_before_a_sweep(tmp_path):
    for name, line in (("good", "-logp_BT"), ("bad", "1 / 0"), ("bare", "None")):
        (tmp_path / f"{name}.py").write_text(f"def mine(logp_BT, batch):\n    return {line}\n")
    names = [f"{tmp_path / name}.py:mine" for name in ("good", "bad", "bare", "bad")]
    bad, bare = preflight.hostile_objectives([replace(BANDIT, recipe=name) for name in names])
    assert f"{tmp_path / 'bad.py'}:2" in bad
    assert bad.endswith("ZeroDivisionError: division by zero")
    assert f"{tmp_path / 'bare.py'}" in bare
    assert preflight.hostile_objectives([BANDIT]) == []
