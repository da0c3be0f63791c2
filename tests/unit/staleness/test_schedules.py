"""Every schedule keeps its word: distribution of ages, mean, depth, versions, packs.

Windows: every token is trained on once, by the weights that wrote it, and rewards come at the end.
"""

import dataclasses
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from support.refusals import refuses
from support.small_runs import CHAIN, LENGTHS, cell_rows, differing, moving
from support.small_runs import TOY as TOY_RUN
from test_staleness import BANDIT, TOY, TREE, Echo

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.execution.preflight import prepare
from testbed.rng import generator
from testbed.staleness import build_source, plan_for, schedule
from testbed.staleness.age_distribution import AgeDistribution
from testbed.staleness.bookkeeping import check_versions
from testbed.staleness.by_age import ByAge, by_distribution
from testbed.staleness.geometric import cut_geometric
from testbed.staleness.replay import PRIORITIES
from testbed.training.loop import train, train_pack
from testbed.worlds.build_world import build_world

LAW = "0:0.5 4:0.3 9:0.2"
EXAMPLES = {
    "exact": [(0, {}), (3, {})], "uniform": [(4, {}), (4, {"span": 1, "slices": 2}), (0, {})],
    "geometric": [(2, {}), (4, {"longest": 9, "slices": 1}), (3, {"longest": 6}), (0, {})],
    "two-point": [(4, {}), (4, {"low": 3, "high": 9}), (1, {"high": 9, "slices": 2}), (0, {})],
    "empirical": [(3, {"distribution": LAW}), (1, {"distribution": "0:0.9,2:0.1", "slices": 1})],
    "periodic": [(4, {}), (2, {"period": 4}), (4, {"period": 3, "ahead": 1}), (0, {})],
    "one-step-off": [(1, {})], "offline": [(0, {})], "in-flight": [(1, {"tokens": 1, "cache": "recomputed"})],
    "partial": [(0, {"tokens": 1})], "latency": [(0, {"speed": 2, "concurrency": 6})],
    "windowed": [(0, {"tokens": 4})], "replay": [(0, {"share": 0.5})],
}  # fmt: skip
"""Lags and arguments under which every schedule must keep its word."""


def example(name, lag, arguments, run=BANDIT):
    return dataclasses.replace(run, staleness=name, lag=lag, staleness_args=tuple(sorted(arguments.items())))


EVERY = [(name, *case) for name, cases in EXAMPLES.items() for case in cases if name in schedule]
every_example = pytest.mark.parametrize(
    ("name", "lag", "arguments"), EVERY, ids=[f"{n}-{lag}-{','.join(map(str, a))}" for n, lag, a in EVERY]
)
KNOWN = [case for case in EVERY if isinstance(plan_for(example(*case)), ByAge)]
every_known = pytest.mark.parametrize(
    ("name", "lag", "arguments"), KNOWN, ids=[f"{n}-{lag}-{','.join(map(str, a))}" for n, lag, a in KNOWN]
)
LAWFUL = [case for case in KNOWN if plan_for(example(*case)).distribution is not None]
every_law = pytest.mark.parametrize(
    ("name", "lag", "arguments"), LAWFUL, ids=[f"{n}-{lag}-{','.join(map(str, a))}" for n, lag, a in LAWFUL]
)


@every_law
def test_shortest_mean_and_depth_are_those_of_the_law(name, lag, arguments):
    made = plan_for(example(name, lag, arguments))
    law = made.distribution
    assert (np.diff(law.age_K) > 0).all()
    assert (law.share_K > 0).all()
    assert law.share_K.sum() == pytest.approx(1, abs=1e-12)
    assert (made.shortest, made.depth) == (law.age_K.min(), law.age_K.max() + 1)
    assert made.mean == pytest.approx(law.age_K @ law.share_K, abs=1e-12)
    # Run.lag is the mean; whole, so rounded up where the mean is not.
    assert -1e-9 < lag - made.mean < 1 - 1e-9
    assert lag > 0 or law.age_K.tolist() == [0]


@every_law
def test_drawn_ages_follow_the_law(name, lag, arguments):
    # False alarm 1e-7 per example: chi-square against the law, cells of expected count < 5 joined. Power: at
    # 5000 draws, the fewest here, a share of at most 0.2 that is off by 0.05 is missed with a chance below
    # 1e-3. A periodic schedule, which draws nothing, has every age equally often up to one period.
    made = plan_for(example(name, lag, arguments))
    ages = np.array([made.ages(7, step) for step in range(5000)])
    assert ages.shape == (5000, made.slices)
    assert ages.dtype == np.int64
    law = made.distribution
    counts = np.array([(ages == age).sum() for age in law.age_K])
    assert counts.sum() == ages.size, "ages outside the law"
    expected = law.share_K * ages.size
    if len(law.age_K) == 1:
        return
    if name == "periodic":
        assert np.abs(counts - expected).max() < 1
        return
    rare = expected < 5
    if rare.any():
        counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    assert stats.chisquare(counts, expected).pvalue > 1e-7
    # The mean as well, within 5.5 standard errors (3.8e-8): the joined cells hide the tail's ages.
    error = np.sqrt(law.variance / ages.size)
    assert abs(ages.mean() - made.mean) < 5.5 * error


@pytest.mark.parametrize("name", ["uniform", "geometric", "two-point"])
def test_slices_steps_and_seeds_draw_independently(name):
    # |r| > 5.5 / sqrt(5000) has a chance of 4e-8 each; a shared stream gives r = 1.
    made = plan_for(example(name, 4, {}))
    ages = np.array([[made.ages(seed, step) for step in range(5000)] for seed in (0, 1)], dtype=float)
    pairs = [
        (ages[0, :, 0], ages[0, :, 1]), (ages[0, :-1, 0], ages[0, 1:, 0]), (ages[0, :, 0], ages[1, :, 0]),
    ]  # fmt: skip
    for left, right in pairs:
        assert abs(np.corrcoef(left, right)[0, 1]) < 5.5 / np.sqrt(5000)


@every_known
def test_ages_depend_on_seed_and_step_alone(name, lag, arguments):
    run = example(name, lag, arguments)
    forward = [plan_for(run).ages(3, step).tolist() for step in range(30)]
    made = plan_for(run)
    np.random.seed(5)  # noqa: NPY002 - the legacy state is what is being protected
    assert [made.ages(3, step).tolist() for step in reversed(range(30))] == forward[::-1]


@every_known
def test_recorded_versions_are_the_weights_that_generated_whatever_the_pack(name, lag, arguments):
    run = dataclasses.replace(example(name, lag, arguments), steps=60)
    plans = plan_for(run)

    def versions(seeds):
        world, runs = Echo(), grid(run, seed=seeds)
        source = build_source(runs, world, torch.zeros(len(seeds), 2))
        for step in range(60):
            batch = source.batch(torch.full((len(seeds), 2), float(step)), step)
            given = world.given[:, 0].view(len(seeds), plans.slices)
            # 8 sequences: the slices are equal parts of them, in order.
            recorded = batch.rollout.version_RBT[:, :: 8 // plans.slices, 0]
            assert torch.equal(recorded, given.long())
            assert batch.behavior.slices == plans.slices
            yield batch.rollout.version_RBT

    alone, stacked = list(versions([4])), list(versions([9, 4, 2]))
    for step, (left, right) in enumerate(zip(alone, stacked, strict=True)):
        assert torch.equal(left[0], right[1])
        age = step - right
        if step >= plans.depth - 1 and not plans.first:
            assert plans.shortest <= int(age.min()) <= int(age.max()) <= plans.depth - 1
        else:
            assert int(right.min()) >= 0
    if name == "offline":
        assert (right == 0).all()


def history(runs, steps=14):
    """Return world, weights by version, and the rollouts of the last steps."""
    world = build_world(runs)
    source = build_source(runs, world, world.initial())
    weights, rollouts = {}, []
    for step, theta in moving(world, steps):
        weights[step] = theta
        rollouts.append(source.batch(theta, step).rollout)
    return world, weights, rollouts


@pytest.mark.parametrize("run", [TREE, TOY], ids=["tree", "toy"])
@every_example
def test_every_token_is_found_again_at_its_recorded_version(name, lag, arguments, run):
    world, weights, rollouts = history(grid(example(name, lag, arguments, run), seed=[0, 1]))
    for rollout in rollouts[::5] + rollouts[-1:]:
        sample = generator(0, "sample").choice(8, 5, replace=False).tolist()
        checked = check_versions(world, weights, rollout, sample, tolerance=1e-9 if run is TREE else 1e-5)
        assert checked == int(rollout.mask_RBT[:, sample].sum())


@pytest.mark.parametrize("run", [TREE, TOY], ids=["tree", "toy"])
def test_a_wrong_version_or_wrong_weights_are_caught_with_the_place(run):
    world, weights, rollouts = history(grid(example("uniform", 4, {}, run), seed=[0, 1]))
    rollout = rollouts[-1]
    check_versions(world, weights, rollout)
    place = r"token 0 of sequence 0 of replica 1 records version 5 and log mu -\d"
    late = rollout.version_RBT.clone()
    late[1] = 5
    refuses(place, check_versions, world, weights, dataclasses.replace(rollout, version_RBT=late))
    shifted = {version + 1: theta for version, theta in weights.items()} | {0: weights[0]}
    with pytest.raises(UserError, match=r"its weights give -\d.* tokens differ by more than 1e-05"):
        check_versions(world, shifted, rollout)
    with pytest.raises(
        UserError, match="records version 20, but the weights of that version are not kept; kept are 0 to 13"
    ):
        check_versions(
            world, weights, dataclasses.replace(rollout, version_RBT=torch.full_like(rollout.version_RBT, 20))
        )
    with pytest.raises(UserError, match="records no versions"):
        check_versions(world, weights, dataclasses.replace(rollout, version_RBT=None))
    broken = dataclasses.replace(rollout, logp_mu_RBT=rollout.logp_mu_RBT * torch.nan)
    refuses("tokens differ", check_versions, world, weights, broken)
    alone = dataclasses.replace(
        rollout, version_RBT=torch.where(torch.arange(8)[:, None] == 3, 99, rollout.version_RBT)
    )
    assert check_versions(world, weights, alone, sample=[0, 1]) > 0


def test_versions_of_another_engine_are_found_again_through_that_engine():
    cold = {"mismatch": "temperature", "mismatch_args": (("temperature", 2.0),)}
    run = dataclasses.replace(example("uniform", 2, {}, TREE), **cold)
    world, weights, rollouts = history((run,))
    own = world.generation.sliced(1)
    step = len(rollouts) - 1
    assert check_versions(world, weights, rollouts[-1], logp=lambda *given: own.logp(*given, step))
    refuses("tokens differ", check_versions, world, weights, rollouts[-1])


def test_the_cut_geometric_law_keeps_its_mean_and_one_factor_between_neighbors():
    for mean, longest in [(1, 2), (1, 8), (3.5, 7), (4, 9), (64, 512), (0.5, 60)]:
        law = cut_geometric(mean, longest)
        assert law.mean == pytest.approx(mean, rel=1e-12)
        assert law.longest == longest
        factor = law.share_K[1:] / law.share_K[:-1]
        assert factor == pytest.approx(factor[0], rel=1e-9)
        assert factor[0] <= 1 + 1e-12
    assert schedule["geometric"].bind()(3).depth == 8 * 3 + 1
    assert cut_geometric(4, 400).share_K[0] == pytest.approx(
        1 / 5, abs=1e-12
    )  # without a cut: 1 / (1 + mean)


def test_a_period_is_as_long_as_its_mean_lag_asks_for():
    for lag in (0, 1, 4, 7):
        assert plan_for(example("periodic", lag, {})).distribution.age_K.tolist() == list(range(2 * lag + 1))
        # N = 2 lag + 1 again, with ages from N to 2 N - 1.
        early = plan_for(example("periodic", 3 * lag + 1, {"ahead": 1}))
        assert early.distribution.age_K.tolist() == list(range(2 * lag + 1, 4 * lag + 2))
        assert early.mean == pytest.approx(3 * lag + 1)


def test_a_law_leaves_out_ages_that_never_occur():
    law = AgeDistribution.of([0, 2, 5], [1, 0, 3])
    assert (law.age_K.tolist(), law.share_K.tolist()) == ([0, 5], [0.25, 0.75])
    assert (law.mean, law.variance, law.shortest, law.longest) == (3.75, 4.6875, 0, 5)
    assert law.draw(np.array([0.0, 0.2499, 0.25, 0.9999999])).tolist() == [0, 0, 5, 5]
    short = AgeDistribution(np.array([1, 2]), np.array([0.5, 0.5 - 1e-9]))
    assert short.draw(np.array([1 - 1e-12])).tolist() == [2]


def test_cells_that_cut_their_batches_differently_do_not_run_stacked():
    cells = grid(example("uniform", 0, {}), lag=[0, 4, 8], seed=[0, 1])
    assert [[cell.lag for cell in pack.cells] for pack in plan(cells)] == [[0, 0], [4, 4, 8, 8]]
    refuses("cannot run stacked", build_source, cells, Echo(), torch.zeros(len(cells), 2), error=ValueError)


def test_a_pack_keeps_the_start_if_one_of_its_cells_asks_for_it():
    runs, world = (example("exact", 0, {}), example("offline", 0, {})), Echo()
    source = build_source(runs, world, torch.zeros(2, 2))
    for step in range(3):
        source.batch(torch.full((2, 2), float(step)), step)
    assert world.given[:, 0].tolist() == [2, 0]


def test_a_buffer_is_never_deeper_than_the_run_is_long():
    run = dataclasses.replace(example("exact", 10**9, {}), steps=5)
    source = build_source((run,), Echo(), torch.zeros(1, 2))
    assert source.versions.slots_MP.shape == (5, 2)
    for step in range(5):
        batch = source.batch(torch.full((1, 2), float(step)), step)
        assert (batch.rollout.version_RBT == 0).all()


@pytest.mark.parametrize(
    ("name", "lag", "arguments"),
    [("uniform", 4, {"span": 5}), ("uniform", 4, {"span": -2}), ("uniform", 4, {"slices": 0}),
     ("geometric", 4, {"longest": 7}), ("two-point", 4, {"low": 5, "high": 9}),
     ("two-point", 4, {"low": 1, "high": 3}), ("two-point", 4, {"low": -1}), ("empirical", 3, {}),
     ("empirical", 3, {"distribution": "3"}), ("empirical", 3, {"distribution": "-3:1"}),
     ("empirical", 3, {"distribution": "3:0.5 3:0.5"}), ("empirical", 3, {"distribution": "3:0.5 4:0.4"}),
     ("empirical", 4, {"distribution": LAW}), ("empirical", 0, {"distribution": "0:0.9 1:0.1"}),
     ("periodic", 1, {"period": 4}), ("periodic", 0, {"ahead": 1}), ("periodic", 2, {"period": -1}),
     ("one-step-off", 0, {}), ("offline", 3, {})],
)  # fmt: skip
def test_impossible_schedules_are_refused_with_the_numbers_that_conflict(name, lag, arguments):
    refuses(".", plan_for, example(name, lag, arguments))


def test_every_registered_schedule_has_an_example_here():
    from_a_simulator = {
        "trace",
        "pipeline",
    }  # their ages are those of a file or a design: see their own tests
    assert set(schedule) - from_a_simulator <= set(EXAMPLES)


NOTHING = {
    "no-latency": ("latency", 0, {"speed": math.inf}),
    "all-fresh": ("replay", 0, {"share": 1.0}),
    "whole-responses": ("partial", 0, {"tokens": 99}),
    "between-two-updates": ("in-flight", 2, {"tokens": 99, "cache": "recomputed"}),
}
"""Schedules whose arguments switch them off."""
AGING = {
    **{name: (name, (1, 3), {}) for name in ("uniform", "geometric", "two-point", "periodic")},
    "in-flight": ("in-flight", (0, 3), {"tokens": 1, "cache": "recomputed"}),
    "partial": ("partial", (0,), {"tokens": 2}),
    "latency": ("latency", (0,), {"speed": 2, "concurrency": 6}),
    **{f"replay-{each}": ("replay", (0,), {"share": 0.5, "reuse": 3, "window": 3, "priority": each})
       for each in PRIORITIES},
}  # fmt: skip


@pytest.mark.parametrize("run", [CHAIN, LENGTHS, TOY_RUN], ids=["chain", "tree", "toy"])
def test_a_schedule_that_is_switched_off_changes_no_bit(run):
    lagged = {lag: train(replace(run, lag=lag)) for lag in (0, 2)}
    for name, lag, arguments in NOTHING.values():
        assert differing(lagged[lag], train(example(name, lag, arguments, run)), shared=True) == [], name
    waiting = replace(example("latency", 0, {"speed": 1}, run), age_limit=0, too_old="wait")
    assert differing(lagged[0], train(waiting), shared=True) == []


@pytest.mark.parametrize("name", AGING)
@pytest.mark.parametrize("run", [LENGTHS, pytest.param(TOY_RUN, marks=pytest.mark.slow)], ids=["tree", "toy"])
def test_a_cell_does_not_see_the_cells_of_its_pack(run, name):
    kind, lags, arguments = AGING[name]
    recipes = ["reinforce", "grpo"] if len(lags) == 1 else [run.recipe]
    cells = grid(example(kind, 0, arguments, run), lag=lags, recipe=recipes, seed=[3, 5])
    assert len(plan(cells)) == 1
    pack = train_pack(cells)
    for index, cell in enumerate(cells):
        alone, made = train(cell), plan_for(cell)
        assert differing(cell_rows(pack, index, len(cells)), alone) == []
        if isinstance(made, ByAge):
            age = np.asarray(alone["staleness/age_max_token"])
            assert (age <= np.minimum(made.depth - 1, np.asarray(alone["step"]))).all()


def test_a_schedule_of_one_age_is_exact():
    law = AgeDistribution.of([6], [1.0])
    made = by_distribution("any", law, slices=4)
    assert (made.slices, made.depth, made.shortest, made.mean) == (1, 7, 6, 6.0)
    assert made.ages(0, 99).tolist() == [6]
    assert isinstance(plan_for(Run(lag=6)), ByAge)


SUM = Run(
    task="tree", task_args=(("task", "running-sum"),), staleness="windowed", staleness_args=(("tokens", 2),),
    recipe="ppo", recipe_args=(("advantage", "egae"),), critic="table", prompts=4, group=2, steps=4,
    log_every=1,
)  # fmt: skip


def batches(steps: int, run: Run = SUM):
    """A world, the weights by step, and the windows of each step."""
    world = build_world((run,))
    start_RP = world.initial()
    source = build_source((run,), world, start_RP)
    weights = {t: start_RP + 0.3 * t * torch.linspace(-1, 1, start_RP.shape[-1]) for t in range(steps)}
    return world, weights, [source.batch(theta_RP, step).rollout for step, theta_RP in weights.items()]


def test_a_window_is_written_by_the_weights_of_its_step():
    world, weights, found = batches(3)
    for step, rollout in enumerate(found):
        assert check_versions(world, weights, rollout) == int(rollout.mask_RBT.sum())
        assert (rollout.version_RBT[rollout.mask_RBT] == step).all()


@pytest.mark.parametrize(("tokens", "parts"), [(2, 2), (1, 3)])
def test_every_token_of_a_response_is_in_one_window_and_keeps_its_prefix(tokens, parts):
    _, _, found = batches(4, replace(SUM, prompts=6, staleness_args=(("tokens", tokens),)))
    for before, after in pairwise(found):
        # The k-th part of a batch is in its k-th window; a step later it is the next part.
        for k in range(parts - 1):
            now, then = (
                batch.map(lambda x, part=part: x.chunk(parts, dim=1)[part])
                for batch, part in ((before, k), (after, k + 1))
            )
            assert now.truncated_RB.all()
            assert then.truncated_RB.all() == (k + 2 < parts)
            assert (now.prompt_RNQ == then.prompt_RNQ).all()
            written = (k + 1) * tokens
            assert (now.token_RBT[..., :written] == then.token_RBT[..., :written]).all()
            place = torch.arange(now.mask_RBT.shape[-1]) // tokens
            assert (now.mask_RBT == (place == k)).all()
            assert (then.mask_RBT == (place == k + 1)).all()
            assert not now.reward_RB.any()


def test_windows_as_long_as_the_response_are_the_synchronous_trainer():
    whole = replace(SUM, staleness_args=(("tokens", 3),))
    plain = replace(SUM, staleness="exact", staleness_args=())
    for name in ("exact/value", "reward/mean", "critic/vf_loss"):
        assert train_pack((whole,))[name].tolist() == train_pack((plain,))[name].tolist()


@pytest.mark.parametrize(
    "changed",
    [{"task_args": (("task", "length"),)}, {"prompts": 5}, {"lag": 1},
     {"staleness_args": (("tokens", 0),)}],
)  # fmt: skip
def test_windows_that_cannot_be_are_refused_beforehand(changed):
    refuses(".", prepare, [replace(SUM, **changed)])
