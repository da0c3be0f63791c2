"""What becomes of samples that are too old: each answer does to the batch what it says, and counts it."""

import dataclasses

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.small_runs import (
    LENGTHS,
    SMALL,
    TOY,
    WORLDS,
    differing,
    misremembered,
    moving,
    watched,
    with_schedule,
    with_what_it_reads,
)

from testbed.config.fields import check
from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.execution.preflight import check_arguments
from testbed.recipes import recipe
from testbed.staleness import build_source, by_age, plan_for
from testbed.staleness.by_age import ByAge, Discarding
from testbed.staleness.schedule_plan import Generated
from testbed.staleness.too_old import drop, truncate
from testbed.training.loop import train, train_pack
from testbed.worlds.build_world import build_world

every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)
RULES = ("wait", "discard", "drop", "truncate")
every_rule = pytest.mark.parametrize("rule", RULES)


def two_point(run: Run, limit: int = -1, rule: str = "drop", lag: int = 2) -> Run:
    """Half of the slices fresh, the others 2 lag steps old, each slice with a draw of its own."""
    return dataclasses.replace(with_schedule(run, "two-point", limit, rule), lag=lag)


def batches(run: Run, steps: int):
    """Yield (step, batch) of the run's source under weights that move by noise."""
    world = build_world((run,))
    source = build_source((run,), world, world.initial())
    for step, theta in moving(world, steps):
        yield step, source.batch(theta, step)


@pytest.mark.slow
@every_rule
@every_world
def test_a_limit_that_nothing_exceeds_changes_no_bit(run, rule):
    free = two_point(run, lag=1)
    assert (
        differing(train(free), train(dataclasses.replace(free, age_limit=2, too_old=rule)), shared=True) == []
    )


@every_rule
@pytest.mark.parametrize("name", ["two-point", "in-flight", "partial", "latency", "replay"])
def test_nothing_above_the_limit_is_trained_on(name, rule):
    partly = name in ("in-flight", "partial")
    arguments = {"tokens": 2} if partly else {}
    run = with_schedule(LENGTHS, name, 1, rule, **arguments)
    if name == "two-point":
        run = dataclasses.replace(run, lag=2)
    if partly and rule in ("wait", "discard"):
        refuses(f"'{name}' cannot {rule} .* age_limit = 1", plan_for, run)
        return
    if name == "in-flight" and rule == "drop":  # every sample is as old as its first token
        refuses("2 steps old under lag 0: every sample would be dropped", train, run)
        return
    free = dataclasses.replace(run, age_limit=-1, too_old="drop")
    oldest = lambda run: max(int(age(batch, step)) for step, batch in batches(run, 20))  # noqa: E731
    assert oldest(run) == 1 < oldest(free)


def age(batch, step):
    """Return the largest age of a token under the mask, 0 for an empty batch."""
    rollout = batch.rollout
    if batch.empty:
        return 0
    return (step - rollout.version_RBT)[rollout.mask_RBT].max()


def test_waiting_cuts_ages_at_the_limit_and_counts_the_time():
    free, cut = two_point(SMALL), two_point(SMALL, 3, "wait")
    before, after = plan_for(free), plan_for(cut)
    for step, batch in batches(cut, 40):
        ages = np.minimum(before.ages(0, step), step)
        assert (np.minimum(after.ages(0, step), step) == np.minimum(ages, 3)).all()
        assert batch.counts["staleness/stalled"] == [max(ages.max() - 3, 0)]


def test_discarding_is_the_schedule_without_its_old_samples_in_order():
    stream = np.random.default_rng(0).integers(0, 6, size=(2000, 4))
    ages = Discarding(lambda seed, step: stream[step] + seed, 2, SMALL)
    ages.read[0] = 0
    kept = np.concatenate([ages(0, step) for step in range(40)])
    real, wanted, read = [], 160, 0
    for value in stream.ravel():
        read += 1
        if min(value, len(real) // 4) <= 2:
            real.append(min(value, len(real) // 4))
        if len(real) == wanted:
            break
    assert kept.tolist() == real
    lost = sum(ages.counts(SMALL, step)["staleness/discarded"] for step in range(40))
    assert lost == read - wanted > 50
    assert (ages(0, 7) == kept[28:32]).all()


def test_the_law_of_limited_ages_is_what_they_are_drawn_from():
    free = dataclasses.replace(SMALL, staleness="uniform", lag=4)
    for rule in ("wait", "discard"):
        limited = plan_for(dataclasses.replace(free, age_limit=5, too_old=rule))
        steps, slices = 4000, len(plan_for(free).ages(0, 100))
        drawn = np.concatenate([limited.ages(0, 100 + step) for step in range(steps)])
        share = np.array([(drawn == value).mean() for value in limited.distribution.age_K])
        assert limited.distribution.age_K.tolist() == [0, 1, 2, 3, 4, 5]
        # Hoeffding: six shares of 16,000 draws stay within 0.025 but with chance 12 exp(-2 n 0.025^2) < 3e-8.
        assert np.abs(share - limited.distribution.share_K).max() < 0.025
        assert drawn.size == steps * slices == 16000
    assert limited.distribution.share_K == pytest.approx([1 / 6] * 6)
    assert limited.mean == pytest.approx(2.5)


def test_a_period_that_discards_is_a_shorter_period():
    run = with_schedule(SMALL, "periodic", 2, "discard", period=6)
    run = dataclasses.replace(run, lag=3)
    ages = plan_for(run).ages
    assert [int(ages(0, step)[0]) for step in range(9)] == [0, 1, 2] * 3
    assert plan_for(run).ages.counts(run, 3) == {"staleness/discarded": 3 * run.prompts}


def test_dropping_leaves_whole_groups_and_the_weights_that_made_them():
    free, cut = two_point(LENGTHS), two_point(LENGTHS, 1)
    sizes = set()
    for (step, whole), (_, left) in zip(batches(free, 30), batches(cut, 30), strict=True):
        old_B = (step - whole.rollout.version_RBT[0, :, 0] > 1).numpy()
        assert torch.equal(left.rollout.token_RBT, whole.rollout.token_RBT[:, ~old_B])
        assert torch.equal(left.rollout.logp_mu_RBT, whole.rollout.logp_mu_RBT[:, ~old_B])
        assert left.counts["staleness/dropped_share"] == [old_B.mean()]
        assert left.counts["staleness/empty"] == [old_B.all()]
        lengths = whole.rollout.mask_RBT.sum(-1)[0].numpy()
        for name, rows in (("kept", ~old_B), ("lost", old_B)):
            expected = lengths[rows].mean() if rows.any() else np.nan
            assert left.counts[f"staleness/length_{name}"][0] == pytest.approx(expected, nan_ok=True)
        sizes.add(left.rollout.reward_RB.shape[1])
        if not left.empty:
            versions = left.rollout.version_RBT[0, :, 0].unflatten(0, (left.behavior.slices, -1))
            assert len(left.behavior.weights_XP) == left.behavior.slices == len(versions)
            kept = [s for s in range(whole.behavior.slices) if not old_B[s * 4]]
            assert torch.equal(left.behavior.weights_XP, whole.behavior.weights_XP[kept])
    assert len(sizes) > 2


def test_truncating_masks_old_tokens_and_drops_sequences_that_have_no_other():
    free = with_schedule(LENGTHS, "in-flight", tokens=2)
    cut = dataclasses.replace(free, age_limit=1, too_old="truncate")
    for (step, whole), (_, left) in zip(batches(free, 12), batches(cut, 12), strict=True):
        young = whole.rollout.mask_RBT & (step - whole.rollout.version_RBT <= 1)
        keep = young.any(-1)[0]
        rollout = left.rollout
        assert torch.equal(rollout.mask_RBT, young[:, keep])
        assert torch.equal(rollout.token_RBT, whole.rollout.token_RBT[:, keep])
        assert (rollout.logp_mu_RBT[~rollout.mask_RBT] == 0).all()
        assert rollout.prompt_RNQ.shape[1] * rollout.group == keep.sum()
        group_B = torch.arange(len(keep))[keep] // LENGTHS.group
        groups = rollout.groups()[0]
        assert ((groups[:, None] == groups) == (group_B[:, None] == group_B)).all()
        assert int(groups.max()) < len(groups)
        share = 1 - young.sum() / whole.rollout.mask_RBT.sum()
        assert left.counts["staleness/masked_share"][0] == pytest.approx(float(share))
    assert not keep.all()
    assert step > 2


@pytest.mark.slow
@pytest.mark.parametrize(("run", "rule"), [(LENGTHS, "truncate"), (TOY, "drop")], ids=["tree", "toy"])
def test_every_recipe_learns_from_batches_of_any_size(run, rule):
    base = with_schedule(run, "in-flight", 1, rule, tokens=2) if rule == "truncate" else two_point(run, 1)
    for name in sorted(recipe)[2 if rule == "truncate" else 0 :: 3 if rule == "truncate" else 1]:
        made = recipe[name].bind()()
        cell = with_what_it_reads(dataclasses.replace(base, steps=4), name)
        if "parent_B" in made.needs:
            continue  # prefixes are refused where weights change inside a response
        if made.demonstrations or made.replay:
            refuses("needs demonstrations|leaves batches of any size", check_arguments, [cell])
            continue
        table = train(cell)
        assert not np.any(table["diverged"])
        assert np.isfinite(table["staleness/dropped_share"]).all()


@every_world
def test_a_batch_with_nothing_left_makes_no_update_and_is_counted(run, monkeypatch):
    gone = two_point(dataclasses.replace(run, optimizer="adam", steps=10), 1, lag=4)
    gone = dataclasses.replace(gone, staleness_args=(("slices", 1),))
    table, weights, rollouts = watched(gone, monkeypatch)
    empty = table["staleness/empty"] == 1
    assert 0 < empty.sum() < 10
    assert len(weights) == len(rollouts) == 10 - empty.sum()
    assert np.isnan(table["reward/mean"][empty]).all()
    assert np.isfinite(table["reward/mean"][~empty]).all()
    truth = "accuracy" if run.policy == "toy" else "exact/value"
    assert np.isfinite(table[truth]).all()
    for step in np.flatnonzero(empty[:-1]):
        assert table[truth][step] == table[truth][step + 1]
    assert not table["diverged"].any()
    counts = np.stack(table["rollout_corr/log_rho_sequence_histogram"]).sum(-1)
    assert (counts == np.where(empty, 0, run.prompts * run.group)).all()


def test_versions_of_what_is_left_are_right(monkeypatch):
    young = with_schedule(dataclasses.replace(LENGTHS, steps=8), "in-flight", 1, "truncate", tokens=2)
    _, weights, rollouts = watched(young, monkeypatch)
    assert len(weights) == young.steps
    assert max(misremembered(young, weights, rollout) for rollout in rollouts) <= 1e-12


def test_ragged_cells_run_one_by_one_and_others_stacked():
    for rule, packs in (("drop", 6), ("truncate", 6), ("wait", 1), ("discard", 1)):
        cells = grid(two_point(SMALL, 1, rule), seed=range(6))
        assert len(plan(cells)) == packs
        if packs > 1:
            refuses(f"'{rule}' makes batches of unequal size, so 6 cells", train_pack, cells)
    assert len(plan(grid(two_point(SMALL), seed=range(6)))) == 1


@every_rule
def test_a_limit_below_the_shortest_age_is_refused_with_both_numbers(rule):
    run = dataclasses.replace(SMALL, lag=4, age_limit=3, too_old=rule)
    message = "age_limit is 3, but schedule 'exact' with lag 4 makes no sample younger than 4 steps"
    refuses(message, check_arguments, [run])
    check_arguments([dataclasses.replace(run, age_limit=4)])


@pytest.mark.parametrize("name", ["spear", "remix"])
def test_recipes_that_replace_a_share_of_every_batch_need_whole_batches(name):
    run = dataclasses.replace(SMALL, recipe=name, age_limit=4)
    for rule in ("drop", "truncate"):
        with pytest.raises(UserError, match=f"recipe '{name}' replaces a share .* too_old '{rule}'"):
            check_arguments([dataclasses.replace(run, too_old=rule)])
    check_arguments([dataclasses.replace(run, too_old="wait")])


def test_discarding_all_there_is_ends_with_a_message():
    always_five = Discarding(lambda *_: np.array([5]), 2, SMALL)
    refuses("'exact' gave 10000 batches without a sample of age_limit = 2", always_five, 0, 9)


def test_as_many_batches_as_may_be_skipped_are(monkeypatch):
    monkeypatch.setattr(by_age, "MOST_SKIPPED", 2)
    for stream, enough in ([[5, 5], [1, 2]], True), ([[5, 5], [1, 5], [2, 2]], False):
        late = Discarding(lambda _, step, s=stream: np.array(s[step]), 2, SMALL, kept={0: [None] * 3})
        assert late(0, 3).tolist() == [1, 2] if enough else refuses("gave 2 batches", late, 0, 3)


@every_rule
def test_a_limit_on_ages_that_grow_without_end_is_refused(rule):
    run = with_schedule(SMALL, "offline", 2, rule)
    refuses("under schedule 'offline' the age of samples grows without bound", check_arguments, [run])


def test_an_answer_without_a_limit_is_refused():
    with pytest.raises(
        UserError, match="too_old is 'wait', but without age_limit no sample is too old; set age_limit"
    ):
        check(dataclasses.replace(SMALL, too_old="wait"))
    refuses("age_limit is -2, expected at least -1", check, dataclasses.replace(SMALL, age_limit=-2))


def test_rollouts_without_versions_have_no_age():
    world = build_world((SMALL,))
    bare = Generated(world.generate(world.initial(), 0))
    for leave in (drop, truncate):
        refuses("without versions", leave, bare, 0, 1, error=ValueError)
    assert isinstance(plan_for(two_point(TOY, 1, "wait")), ByAge)


def test_one_token_that_is_too_old_takes_its_group_with_it():
    world = build_world((SMALL,))
    rollout = world.generate(world.initial(), 0)
    version = torch.full(rollout.token_RBT.shape, 5)
    version[0, SMALL.group, 0] = 3
    generated = Generated(dataclasses.replace(rollout, version_RBT=version), None, {})
    for limit, kept in ((2, [*range(SMALL.prompts)]), (1, [0, *range(2, SMALL.prompts)])):
        left = drop(generated, 5, limit).rollout
        expected = rollout.token_RBT[0].unflatten(0, (-1, SMALL.group))[kept].flatten(0, 1)
        assert torch.equal(left.token_RBT[0], expected)


def test_what_is_discarded_was_generated_whole_groups_at_a_time():
    table = train(two_point(SMALL, 2, "discard"))
    made = SMALL.group * (SMALL.prompts + np.array(table["staleness/discarded"]))
    assert made.max() > made.min()
    assert np.diff(table["rollouts"], prepend=0).tolist() == made.tolist()
