"""Lag is exact by construction: what is read is what was written k steps before.

Ways of saying the same schedule give the same numbers, bit for bit.
Versions of a 16-bit model are kept in 16 bits; those a GPU has no room for in the machine's memory.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from support import tiny_models
from support.refusals import refuses
from support.small_runs import cell_rows, differing

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.memory import Need, Room, needed
from testbed.execution.packs import plan
from testbed.execution.preflight import check_arguments
from testbed.execution.runner import run_sweep
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.results.store import read
from testbed.staleness import build_source, plan_for, schedule, storage
from testbed.staleness.by_age import ByAge
from testbed.staleness.versions import VersionBuffer
from testbed.training.loop import train, train_pack
from testbed.worlds.build_world import build_world
from testbed.worlds.generation import narrow_versions
from testbed.worlds.world import BehaviorWeights

BANDIT = Run(task="bandit", prompts=4, group=2)
TREE = Run(task="tree", prompts=4, group=2)
TOY = Run(
    task="running-sum", task_args=(("digits", 2), ("modulus", 2)), policy="toy",
    policy_args=(("heads", 2), ("layers", 1), ("width", 8)), prompts=4, group=2,
)  # fmt: skip


class Echo:
    """A world that generates nothing and remembers which weights it was given."""

    version_dtype = None

    def generate(self, theta_XP, step, slices=1):
        from testbed.data.rollout import Rollout

        replicas = len(theta_XP) // slices
        zero_RBT = torch.zeros(replicas, 8, 3)
        self.given = theta_XP
        return Rollout(
            torch.zeros(replicas, 4, 1), zero_RBT.long(), zero_RBT.bool(), zero_RBT, zero_RBT[..., 0], 2
        )


def numbered(lags, steps, **fields):
    """Yield (step, batch, weights) of a source whose weights at step t are all t."""
    runs = grid(dataclasses.replace(BANDIT, **fields), lag=lags)
    world = Echo()
    source = build_source(runs, world, torch.zeros(len(lags), 2))
    for step in range(steps):
        batch = source.batch(torch.full((len(lags), 2), float(step)), step)
        yield step, batch, world.given


def test_each_replica_is_generated_by_the_weights_of_exactly_its_own_lag():
    lags = [0, 1, 3, 7]
    for step, batch, weights in numbered(lags, 20):
        expected = [max(step - lag, 0) for lag in lags]
        assert weights[:, 0].tolist() == expected
        assert batch.rollout.version_RBT[:, 0, 0].tolist() == expected
        assert (batch.rollout.version_RBT == batch.rollout.version_RBT[:, :1, :1]).all()


def test_no_version_can_be_left_out():
    buffer = VersionBuffer(torch.zeros(1, 1), [4])
    buffer.write(torch.ones(1, 1), 0)
    assert buffer.read(torch.tensor([[0]])).item() == 1
    for version in (2, -1):
        with pytest.raises(ValueError, match=f"version {version} was written after 0"):
            buffer.write(torch.zeros(1, 1), version)


def test_later_changes_of_the_weights_do_not_reach_the_snapshot():
    theta = torch.zeros(1, 2)
    buffer = VersionBuffer(theta, [2], first=True)
    buffer.write(theta, 0)
    theta += 5
    assert (buffer.read(torch.tensor([[0]])) == 0).all()
    buffer.write(theta, 1)
    buffer.write(theta, 2)
    assert (buffer.read(torch.tensor([[0]])) == 0).all()


def test_more_memory_than_there_may_be_is_refused_before_it_is_taken():
    weights = torch.zeros(3, 1000)
    size = VersionBuffer.bytes(1000, [1, 2, 9])
    assert VersionBuffer(weights, [1, 2, 9], limit=size).slots_MP.nbytes == size == 48_000
    says = r"3 cells x 1 to 9 versions x 1,000 weights of 4 bytes need 46\.88 KiB, more than the 46\.87 KiB"
    refuses(says, VersionBuffer, weights, [1, 2, 9], limit=size - 1)
    # By default half of what is available: no machine has 2^60 bytes of memory, so nothing is allocated here.
    refuses(r"run fewer cells at a time, or set TESTBED_SPILL=FOLDER", VersionBuffer, weights, [2**48] * 3)


def test_half_of_the_available_memory_is_the_limit(monkeypatch):
    monkeypatch.setattr(storage, "available", lambda device: 2 * 1200)
    assert VersionBuffer(torch.zeros(1, 100), [3]).slots_MP.nbytes == 1200
    with pytest.raises(UserError, match=r"1 cells x 4 versions .* need 1\.562 KiB, more than the 1\.172 KiB"):
        VersionBuffer(torch.zeros(1, 100), [4])


def test_available_memory_is_that_of_this_machine(monkeypatch):
    page, cpu = os.sysconf("SC_PAGE_SIZE"), torch.device("cpu")
    assert 2**20 < storage.available(cpu) <= os.sysconf("SC_PHYS_PAGES") * page
    monkeypatch.setattr(Path, "read_text", lambda _: "MemTotal: 9 kB\nMemAvailable:   3 kB\n")
    assert storage.available(cpu) == 3 * 1024


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_versions_in_a_file_are_the_same_bits_and_leave_no_file(tmp_path, monkeypatch, dtype):
    draw = torch.Generator().manual_seed(0)
    thetas = [torch.randn(2, 7, generator=draw).to(dtype) for _ in range(9)]

    def read(buffer):
        for version, theta in enumerate(thetas):
            buffer.write(theta, version)
        return buffer.read(torch.tensor([[8, 6, 8], [7, 0, 4]]))

    memory = read(VersionBuffer(thetas[0], [3, 5], first=True))
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path))
    monkeypatch.setattr(storage, "available", lambda device: 0)
    buffer = VersionBuffer(thetas[0], [3, 5], first=True)
    assert torch.equal(read(buffer), memory)
    assert list(tmp_path.iterdir()) == []
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert f"{tmp_path}/versions-" in maps.read_text()


def test_a_run_that_spills_has_the_numbers_of_one_that_does_not(tmp_path, monkeypatch):
    run = dataclasses.replace(TREE, staleness="uniform", lag=3, steps=12, log_every=1, learning_rate=1.0)
    memory = train(run)
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path))
    same(memory, train(run))


def test_a_folder_that_cannot_take_the_versions_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"TESTBED_SPILL is '.*none', which is not a folder; make it"):
        VersionBuffer(torch.zeros(1, 1), [2])
    monkeypatch.setenv("TESTBED_SPILL", str(tmp_path))
    assert storage._mapped(tmp_path, (0, 3), 0, torch.float32).shape == (0, 3)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    refuses(r"cannot hold 8 bytes: .*No space left on device", VersionBuffer, torch.zeros(1, 1), [2])
    assert list(tmp_path.iterdir()) == []


def test_versions_that_are_not_kept_are_refused_not_replaced():
    buffer = VersionBuffer(torch.zeros(1, 1), [3])
    for version in range(6):
        buffer.write(torch.full((1, 1), float(version)), version)
    assert buffer.read(torch.tensor([[3, 4, 5]])).flatten().tolist() == [3, 4, 5]
    for version in (2, 6, 0, -1):
        with pytest.raises(UserError, match=f"version {version} of replica 0 was asked for at version 5"):
            buffer.read(torch.tensor([[version]]))
    refuses("depth 0 keeps no version", VersionBuffer, torch.zeros(1, 1), [0])
    refuses("1 depths were given for 2 replicas", VersionBuffer, torch.zeros(2, 1), [1])


def test_a_negative_lag_is_refused():
    refuses("lag -1 is negative", plan_for, Run(lag=-1))


@pytest.mark.parametrize("run", [BANDIT, TREE, TOY], ids=["bandit", "tree", "toy"])
def test_slices_of_one_version_equal_the_batch_in_one_piece(run):
    world = build_world((run,))
    theta = world.initial() + 0.1 * torch.randn(
        world.initial().shape, generator=torch.Generator().manual_seed(1), dtype=world.initial().dtype
    )
    whole = world.generate(theta, 5)
    cut = world.generate(theta.repeat_interleave(4, 0), 5, slices=4)
    for name in ("prompt_RNQ", "token_RBT", "mask_RBT", "reward_RB"):
        assert torch.equal(getattr(whole, name), getattr(cut, name)), name
    torch.testing.assert_close(whole.logp_mu_RBT, cut.logp_mu_RBT, rtol=0, atol=5e-6)


@pytest.mark.parametrize("run", [TREE, TOY], ids=["tree", "toy"])
def test_each_slice_is_what_its_own_weights_generate_in_the_whole_batch(run):
    runs = grid(run, seed=[0, 1])
    world = build_world(runs)
    base = world.initial()
    theta_XP = base.repeat_interleave(2, 0) + torch.randn(
        4, base.shape[1], generator=torch.Generator().manual_seed(2), dtype=base.dtype
    )
    cut = world.generate(theta_XP, 3, slices=2)
    for part in range(2):
        alone = world.generate(theta_XP[part::2], 3)
        rows = slice(part * 4, part * 4 + 4)
        assert torch.equal(cut.token_RBT[:, rows], alone.token_RBT[:, rows])
        assert torch.equal(cut.reward_RB[:, rows], alone.reward_RB[:, rows])
        torch.testing.assert_close(cut.logp_mu_RBT[:, rows], alone.logp_mu_RBT[:, rows], rtol=0, atol=5e-6)


def test_a_trainer_notes_its_own_log_probabilities_where_an_anchor_asks_for_them():
    hot = (("temperature", 2.0),)
    run = dataclasses.replace(TREE, anchor="snapshot", mismatch="temperature", mismatch_args=hot)
    world = build_world((run,))
    theta = world.initial() + torch.linspace(-9, 9, world.initial().shape[1])
    rollout = world.generate(theta, 0)
    assert torch.equal(rollout.logp_trainer_RBT, world.logp(theta, rollout))
    assert (rollout.logp_trainer_RBT - rollout.logp_mu_RBT).abs().max() > 0.01
    plain = build_world((dataclasses.replace(run, anchor="recipe"),)).generate(theta, 0)
    assert plain.logp_trainer_RBT is None


def test_the_ratio_law_of_a_mixed_batch_is_that_of_its_parts_together():
    world = build_world((TREE,))
    pi = world.initial()
    generator = torch.Generator().manual_seed(3)
    mu_XP = pi + 0.3 * torch.randn(2, pi.shape[1], generator=generator, dtype=pi.dtype)
    parts = [world.truth(pi, pi, 0, BehaviorWeights(mu_XP[[s]])) for s in range(2)]
    mixed = world.truth(pi, pi, 0, BehaviorWeights(mu_XP, slices=2))
    assert_allclose(
        mixed["exact/chi2_sequence"], sum(p["exact/chi2_sequence"] for p in parts) / 2, rtol=1e-12
    )
    assert_allclose(mixed["exact/kl_pi_mu"], sum(p["exact/kl_pi_mu"] for p in parts) / 2)
    assert_allclose(mixed["exact/ess_max_sequence"], min(p["exact/ess_max_sequence"][0] for p in parts))


def test_slices_that_do_not_divide_the_prompts_are_refused_with_both_numbers():
    cell = dataclasses.replace(BANDIT, staleness="uniform", lag=2, staleness_args=(("slices", 3),))
    refuses("prompts is 4, which 3 slices", build_source, (cell,), Echo(), torch.zeros(1, 2))
    refuses("prompts is 4, which 3 slices", check_arguments, [cell])


def test_every_schedule_is_registered_with_a_source_and_a_first_line():
    assert "exact" in schedule
    for name in schedule:
        assert schedule[name].source
        assert schedule[name].formula.endswith(".")


SHORT = {"steps": 9, "log_every": 2, "learning_rate": 0.5}
WORLDS = {
    "bandit": dataclasses.replace(BANDIT, **SHORT),
    "tree": dataclasses.replace(TREE, **SHORT),
    "toy": dataclasses.replace(TOY, **SHORT, evaluation_prompts=4),
}
every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)


def scheduled(run, name, lag=0, **arguments):
    return dataclasses.replace(run, staleness=name, lag=lag, staleness_args=tuple(sorted(arguments.items())))


def same(left, right):
    assert (differing(left, right), left.keys()) == ([], right.keys())


def differ(left, right):
    a, b = (np.asarray(table["rollout_corr/chi2_token"]) for table in (left, right))
    assert not np.array_equal(a, b)


SYNCHRONOUS = {
    "uniform": ("uniform", {}), "uniform-in-slices": ("uniform", {"span": 0, "slices": 4}),
    "geometric": ("geometric", {}), "geometric-with-room": ("geometric", {"longest": 5}),
    "two-point": ("two-point", {}), "two-point-never-old": ("two-point", {"high": 6}),
    "empirical": ("empirical", {"law": "0:1"}), "periodic": ("periodic", {}),
    "periodic-of-one": ("periodic", {"period": 1}),
}  # fmt: skip


@every_world
def test_lag_0_under_any_schedule_is_the_synchronous_trainer(run):
    synchronous = train(run)
    assert (np.asarray(synchronous["staleness/age_max_token"]) == 0).all()
    for name, arguments in SYNCHRONOUS.values():
        same(synchronous, train(scheduled(run, name, 0, **arguments)))
    differ(synchronous, train(scheduled(run, "periodic", 2)))


@every_world
def test_schedules_of_one_age_are_exact(run):
    one, two = train(scheduled(run, "exact", 1)), train(scheduled(run, "exact", 2))
    same(one, train(scheduled(run, "one-step-off", 1)))
    same(one, train(scheduled(run, "periodic", 1, period=1, ahead=1)))
    same(two, train(scheduled(run, "uniform", 2, span=0)))
    same(two, train(scheduled(run, "two-point", 2, low=2, high=2)))
    same(two, train(scheduled(run, "two-point", 2, low=2, high=7)))
    same(two, train(scheduled(run, "empirical", 2, law="2:1")))
    differ(one, two)


@every_world
def test_offline_is_a_lag_as_long_as_the_run(run):
    offline = train(scheduled(run, "offline"))
    same(offline, train(scheduled(run, "exact", run.steps)))
    assert np.asarray(offline["staleness/age_max_token"]).tolist() == np.asarray(offline["step"]).tolist()


@pytest.mark.parametrize("run", [WORLDS["bandit"], WORLDS["tree"]], ids=["bandit", "tree"])
def test_a_batch_mixed_from_one_version_is_the_unmixed_batch(run, monkeypatch):
    # Four slices that are all 3 steps old, by a plan that does not know that they are: in a tabular world,
    # where no matrix changes its shape with the slices, the whole run has the same bits.
    unmixed = train(scheduled(run, "exact", 3))
    mixed = ByAge(lambda *_: np.full(4, 3), depth=4, slices=4, shortest=3, mean=3.0)
    monkeypatch.setattr("testbed.staleness.plan_for", lambda _: mixed)
    same(unmixed, train(scheduled(run, "exact", 3)))


@every_world
def test_periodic_ages_count_up_and_start_again(run):
    table = train(dataclasses.replace(scheduled(run, "periodic", 2, period=4), log_every=1))
    assert np.asarray(table["staleness/age_mean_token"]).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    early = train(dataclasses.replace(scheduled(run, "periodic", 4, period=3, ahead=1), log_every=1))
    # Until step 3 there is nothing older than the start.
    assert np.asarray(early["staleness/age_max_token"]).tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5]


@every_world
def test_exact_delivers_its_age_after_warm_up_whatever_the_pack(run):
    cells = grid(dataclasses.replace(run, log_every=1), lag=[0, 1, 4], seed=[0, 1])
    table = train_pack(cells)
    lag, step = np.asarray(table["lag"]), np.asarray(table["step"])
    for name in ("staleness/age_mean_token", "staleness/age_max_token"):
        assert np.array_equal(np.asarray(table[name]), np.minimum(lag, step))
    for index, cell in enumerate(cells):
        same(train(cell), cell_rows(table, index, len(cells)))


@pytest.mark.slow
def test_ages_do_not_depend_on_workers_shards_or_where_a_run_goes_on(tmp_path):
    base = dataclasses.replace(WORLDS["bandit"], log_every=1)
    runs = [scheduled(base, name, lag) for name, lag in (("exact", 3), ("uniform", 2), ("geometric", 2))]
    cells: tuple[Run, ...] = tuple(cell for run in runs for cell in grid(run, seed=[0, 1]))
    here = run_sweep(cells, tmp_path / "here", workers=0)
    assert (here.done, here.failed) == (6, 0)
    run_sweep(cells, tmp_path / "parts", workers=0, shard="2/2")
    assert run_sweep(cells, tmp_path / "parts", workers=1).done == 6
    left, right = (read(tmp_path / name).to_pandas() for name in ("here", "parts"))
    order = ["cell", "step"]
    left, right = (frame.sort_values(order).reset_index(drop=True) for frame in (left, right))
    for name in ("staleness/age_mean_token", "staleness/age_max_token", "reward/mean", "actor/grad_norm"):
        assert left[name].equals(right[name]), name
    exact = left[left["staleness"] == "exact"]
    assert (exact["staleness/age_mean_token"] == exact["step"].clip(upper=3)).all()


TASK = tiny_models.Echo()
RUN = Run(policy="hf", policy_args=(("dtype", "bfloat16"),), model="m")


@pytest.mark.slow
def test_a_narrow_version_generates_the_bits_of_the_wide_one_in_half_the_room(tmp_path):
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    policy = HuggingFacePolicy(folder, TASK, dtype="bfloat16")
    theta_RP = policy.initial([0]) + 1e-3 * torch.randn((1, policy.parameters), generator=torch.Generator())
    wide = VersionBuffer(theta_RP, [2])
    narrow = VersionBuffer(theta_RP, [2], dtype=torch.bfloat16)
    assert narrow.slots_MP.nbytes == wide.slots_MP.nbytes / 2
    now_R1 = torch.zeros(1, 1, dtype=torch.int64)
    assert not torch.equal(narrow.read(now_R1), wide.read(now_R1))
    assert narrow.read(now_R1).dtype == torch.float32
    rng = np.random.default_rng(0)
    prompt_RNQ, uniform_RBT = torch.as_tensor(TASK.prompts(rng, 4))[None], rng.random((1, 8, 5))
    drawn = [policy.sample(x.read(now_R1)[:, 0], prompt_RNQ, 2, uniform_RBT) for x in (wide, narrow)]
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_versions_are_narrow_only_where_nothing_else_rounds_them():
    assert narrow_versions(RUN) == torch.bfloat16
    for change in (
        {"policy_args": ()}, {"policy_args": (("dtype", "bfloat16"), ("precision", "int8"))},
        {"mismatch": "int8"}, {"policy": "toy"},
    ):  # fmt: skip
        assert narrow_versions(dataclasses.replace(RUN, **change)) is None
    assert narrow_versions(dataclasses.replace(RUN, mismatch="top-p")) == torch.bfloat16


def test_what_a_pack_needs_counts_narrow_versions_and_full_anchors(tmp_path):
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    run = dataclasses.replace(RUN, model=str(folder), task="length", lag=9, steps=50)
    need = needed(plan([run])[0])
    assert need.kept == 10 * need.parameters * 2
    anchored = dataclasses.replace(run, recipe="decoupled", anchor="version", anchor_args=(("age", 3),))
    assert needed(plan([anchored])[0]).kept == (10 * 2 + 4 * 4) * need.parameters


def test_versions_that_a_gpu_has_no_room_for_lie_in_the_machine_s_memory(monkeypatch):
    room = {"meta": 1000, "cpu": 100_000}  # "meta" stands for a GPU
    monkeypatch.setattr(storage, "available", lambda device: room[device.type])
    like_RP = torch.empty(1, 100, device="meta")
    assert storage.allocate(1, like_RP, "1 version").device.type == "meta"
    assert storage.allocate(2, like_RP, "2 versions").device.type == "cpu"
    refuses(r"need 78\.12 KiB, more than the 48\.83 KiB", storage.allocate, 200, like_RP, "200 versions")
    need = Need(parameters=100, itemsize=4, replicas=1, versions=60, optimizer=0, activations=0)
    assert not need.fits(Room(20_000))
    assert need.fits(Room(20_000, host=100_000))
