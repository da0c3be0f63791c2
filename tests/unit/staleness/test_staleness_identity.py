"""Ways of saying the same schedule give the same numbers, bit for bit."""

import dataclasses

import numpy as np
import pytest
from test_staleness import BANDIT, TOY, TREE

from testbed.config.run import Run, grid
from testbed.execution.packs import plan
from testbed.execution.runner import run_sweep
from testbed.results.store import read
from testbed.staleness import plan_for
from testbed.staleness.by_age import ByAge
from testbed.training.loop import train, train_pack

SHORT = {"steps": 9, "log_every": 2, "learning_rate": 0.5}
WORLDS = {
    "bandit": dataclasses.replace(BANDIT, **SHORT),
    "tree": dataclasses.replace(TREE, **SHORT),
    "toy": dataclasses.replace(TOY, **SHORT, evaluation_prompts=4),
}
every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)
NAMES = ("cell", "lag", "staleness", "staleness_args")


def scheduled(run, name, lag=0, **arguments):
    return dataclasses.replace(run, staleness=name, lag=lag, staleness_args=tuple(sorted(arguments.items())))


def same(left, right, rows=slice(None)):
    """Assert that two tables hold the same bits in everything but the schedule's name."""
    assert left.keys() == right.keys()
    assert "staleness/age_mean_token" in left
    for name in left:
        if name not in NAMES:
            a, b = np.asarray(left[name]), np.asarray(right[name])[rows]
            assert np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)), name


def differ(left, right):
    a, b = (np.asarray(table["rollout_corr/chi2_token"]) for table in (left, right))
    assert not np.array_equal(a, b)


SYNCHRONOUS = {
    "uniform": ("uniform", {}),
    "uniform-in-slices": ("uniform", {"span": 0, "slices": 4}),
    "geometric": ("geometric", {}),
    "geometric-with-room": ("geometric", {"longest": 5}),
    "two-point": ("two-point", {}),
    "two-point-never-old": ("two-point", {"high": 6}),
    "empirical": ("empirical", {"law": "0:1"}),
    "periodic": ("periodic", {}),
    "periodic-of-one": ("periodic", {"period": 1}),
}


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
        same(train(cell), table, slice(index * run.steps, (index + 1) * run.steps))


@pytest.mark.slow
@every_world
@pytest.mark.parametrize("name", ["uniform", "geometric", "two-point", "periodic"])
def test_mixed_ages_do_not_depend_on_the_pack(run, name):
    cells = grid(scheduled(run, name), lag=[1, 3], seed=[0, 1])
    assert len(plan(cells)) == 1
    table = train_pack(cells)
    rows = len(table["step"]) // len(cells)
    for index, cell in enumerate(cells):
        alone = train(cell)
        same(alone, table, slice(index * rows, (index + 1) * rows))
        age = np.asarray(alone["staleness/age_max_token"])
        assert (age <= np.minimum(plan_for(cell).depth - 1, np.asarray(alone["step"]))).all()


@pytest.mark.slow
def test_ages_do_not_depend_on_workers_shards_or_where_a_run_goes_on(tmp_path):
    base = dataclasses.replace(WORLDS["bandit"], log_every=1)
    runs = [scheduled(base, name, lag) for name, lag in (("exact", 3), ("uniform", 2), ("geometric", 2))]
    cells: tuple[Run, ...] = tuple(cell for run in runs for cell in grid(run, seed=[0, 1]))
    here = run_sweep(cells, tmp_path / "here", workers=0)
    assert (here.done, here.failed) == (6, 0)
    run_sweep(cells, tmp_path / "parts", workers=1, shard="2/2")
    assert run_sweep(cells, tmp_path / "parts", workers=2).done == 6
    left, right = (read(tmp_path / name).to_pandas() for name in ("here", "parts"))
    order = ["cell", "step"]
    left, right = (frame.sort_values(order).reset_index(drop=True) for frame in (left, right))
    for name in ("staleness/age_mean_token", "staleness/age_max_token", "reward/mean", "actor/grad_norm"):
        assert left[name].equals(right[name]), name
    exact = left[left["staleness"] == "exact"]
    assert (exact["staleness/age_mean_token"] == exact["step"].clip(upper=3)).all()
