"""Age follows from length: a forward simulation with exact books, whose bits nobody else moves."""

import dataclasses

import numpy as np
import pytest
from support.refusals import refuses
from support.small_runs import LENGTHS, SMALL, TOY, WORLDS, differing, with_schedule

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.preflight import check_arguments
from testbed.staleness import build_source, plan_for
from testbed.staleness.latency import STRIDE, CellQueue, Group, Latency
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)


def batches(run, steps=20):
    """Yield (step, batch) of a pack's source under weights that do not move."""
    runs = run if isinstance(run, tuple) else (run,)
    world = build_world(runs)
    theta = world.initial()
    source = build_source(runs, world, theta)
    for step in range(steps):
        yield step, source.batch(theta, step)


def simulated(latency_DN, prompts, steps, **fields):
    """Return (versions, waits) of every step's batch of one line; draw d of groups takes latency_DN[d]."""
    plan = Latency(**{"speed": 1.0, "base": 0, "concurrency": 0, **fields})
    line, draw, found = CellQueue(plan, prompts), 0, []
    for step in range(steps):
        waits = -1
        while waits < 0 or len(line.batch) < prompts:
            line.land()
            line.start(np.array(latency_DN[draw]), step, draw)
            line.fill(step)
            draw, waits = draw + 1, waits + 1
        found.append(([group.version for group in line.take()[0]], waits))
    return found


def test_a_group_of_latency_d_is_used_after_d_time_steps_less_those_that_were_waits():
    # One group per step. The first takes 3: three waits, during which three more start.
    assert simulated([[3]] * 9, 1, 4) == [([0], 3), ([0], 0), ([0], 0), ([0], 0)]
    # Without waits: whoever takes no time is trained on at once.
    assert simulated([[0]] * 4, 1, 3) == [([0], 0), ([1], 0), ([2], 0)]
    # A slow group is overtaken by those that start later and are done sooner.
    assert simulated([[0, 4], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]], 2, 4) == [
        ([0, 0], 1),  # the second group of step 0 is not done: one wait, and one of the new ones is taken
        ([0, 1], 0),
        ([1, 2], 0),
        ([2, 0], 0),
    ]


def test_a_finished_group_waits_in_the_order_in_which_groups_finished():
    # Two batches of one group in flight from the start; ages settle at the waits of the warm-up.
    found = simulated([[2], [1], *[[1]] * 20], 1, 10)
    assert found[0] == ([0], 2)
    assert [versions for versions, _ in found[3:]] == [[step - 2] for step in range(3, 10)]
    assert sum(waits for _, waits in found) == 2


def test_the_most_in_flight_bounds_how_many_start():
    # One slot, three time steps per group: every step waits two time steps for the next group.
    assert simulated([[3]] * 40, 1, 5, concurrency=1)[1:] == [([k], 2) for k in range(4)]


def test_waiting_trains_in_the_order_of_starts_and_never_beyond_the_limit():
    found = simulated([[0, 9], *[[0, 0]] * 60], 2, 8, limit=1, rule="wait")
    assert found[0] == ([0, 0], 9)
    assert all(step - version <= 1 for step, (versions, _) in enumerate(found) for version in versions)
    rng = np.random.default_rng(0)
    random = simulated(rng.integers(0, 9, size=(400, 4)), 4, 60, limit=2, rule="wait")
    order = [version for versions, _ in random for version in versions]
    assert order == sorted(order)
    assert max(step - v for step, (versions, _) in enumerate(random) for v in versions) == 2


def test_the_first_batch_waits_for_the_group_that_is_done_first_at_the_given_speed():
    slow = with_schedule(dataclasses.replace(LENGTHS, prompts=1, group=2), "latency", speed=2, base=1)
    runs = grid(slow, seed=range(12))
    world = build_world(runs)
    draws = [world.generate(world.initial(), wait * STRIDE).mask_RBT.sum(-1).amax(-1) for wait in range(5)]
    done_RW = np.stack([wait + 1 + np.ceil(longest_R.numpy() / 2) for wait, longest_R in enumerate(draws)], 1)
    _, first = next(batches(runs))
    assert (first.counts["staleness/stalled"] == done_RW.min(1)).all()
    assert (done_RW.argmin(1) > 0).any()


def test_a_group_is_as_old_as_its_longest_response_takes_less_the_waits_meanwhile():
    run = with_schedule(dataclasses.replace(LENGTHS, prompts=8), "latency", speed=1)
    waits, checked = np.zeros(40), 0
    for step, generated in batches(run, 40):
        rollout = generated.rollout
        waits[step] = generated.counts["staleness/stalled"][0]
        version_N = rollout.version_RBT[0, :: rollout.group, 0].numpy()
        longest_N = rollout.mask_RBT.sum(-1)[0].unflatten(0, (-1, rollout.group)).amax(-1).numpy()
        for version, longest in zip(version_N, longest_N, strict=True):
            # Waits at the step of its start may lie before its start or behind it.
            assert step - version + waits[version : step + 1].sum() >= longest
            checked += waits[version : step + 1].sum() == 0
            assert step - version >= longest or waits[version : step + 1].sum() > 0
    assert checked > 100


def test_discarding_throws_away_the_longest_of_those_that_started_together():
    run = with_schedule(dataclasses.replace(LENGTHS, prompts=8, steps=60), "latency", 1, "discard", speed=1)
    kept, lost = {}, {}
    world = build_world((run,))
    theta = world.initial()
    source = build_source((run,), world, theta)
    line, started = source.lines[0], {}
    plain_start, plain_take = line.start, line.take

    def start(latency_N, version, draw):
        started[draw] = latency_N
        plain_start(latency_N, version, draw)

    def take():
        taken = plain_take()
        for groups, into in zip(taken, (kept, lost), strict=True):
            for group in groups:
                into.setdefault(group.draw, []).append(started[group.draw][group.place])
        return taken

    line.start, line.take = start, take
    gap = []
    for step in range(60):
        generated = source.batch(theta, step)
        assert (step - generated.rollout.version_RBT).max() <= 1
        gap += [generated.counts["staleness/length_lost"][0] - generated.counts["staleness/length_kept"][0]]
    mixed = [draw for draw in kept if draw in lost]
    assert len(mixed) > 10
    assert all(max(kept[draw]) <= min(lost[draw]) for draw in mixed)
    assert any(max(kept[draw]) < min(lost[draw]) for draw in mixed)
    assert np.nanmean(gap) > 0.5


def test_waiting_keeps_every_group_that_starts():
    run = with_schedule(dataclasses.replace(LENGTHS, prompts=8), "latency", 1, "wait", speed=1)
    world = build_world((run,))
    theta = world.initial()
    source = build_source((run,), world, theta)
    used = []
    for step in range(20):
        source.batch(theta, step)
        used.append(source.lines[0].used)
    assert used == [8 * (step + 1) for step in range(20)]


def test_waits_are_counted_and_their_random_numbers_are_their_own():
    slow = with_schedule(LENGTHS, "latency", speed=1)
    table = train(slow)
    assert table["staleness/stalled"][0] >= 1
    longer = train(dataclasses.replace(slow, steps=20))
    assert differing(table, {name: column[:12] for name, column in longer.items()}) == ["steps"]


@pytest.mark.parametrize(
    "change",
    [{"lag": 3}, {"staleness_args": (("speed", 0),)}, {"staleness_args": (("base", -1),)},
     {"staleness_args": (("spede", 1),)}],
)  # fmt: skip
def test_impossible_latencies_are_refused_before_training(change):
    refuses(".", check_arguments, [dataclasses.replace(SMALL, staleness="latency", **change)])


def test_a_trainer_that_would_wait_for_ever_says_so():
    never = with_schedule(SMALL, "latency", base=2**40, concurrency=1)
    refuses("waited 4095 time steps for 4 groups", train, never)
    with pytest.raises(UserError, match="random numbers for 1048576 only"):
        train(dataclasses.replace(with_schedule(TOY, "latency"), steps=2**21))
    assert isinstance(plan_for(Run(staleness="latency")), Latency)


AT_LIMITS = [(2, [3, 4, 5], []), (1, [4, 5, 6], [3]), (0, [5, 6], [3, 4])]


@pytest.mark.parametrize(("limit", "batch", "lost"), AT_LIMITS)
def test_groups_older_than_the_limit_are_discarded_and_those_at_the_limit_are_not(limit, batch, lost):
    line = CellQueue(Latency(speed=1.0, base=0, concurrency=0, limit=limit, rule="discard"), 3)
    line.ready.extend(Group(0, version, version, 0, 0) for version in (3, 4, 5, 6))
    line.fill(5)
    assert [group.version for group in line.batch] == batch
    assert [group.version for group in line.lost] == lost
    assert line.used == len(batch) + len(lost)
