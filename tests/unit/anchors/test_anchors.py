"""Anchors: whose log-probabilities the clip is around, what each makes of staleness and of mismatch."""

import dataclasses

import numpy as np
import pytest
import torch
from support.refusals import refuses
from torch.testing import assert_close

from testbed.anchors import AnchorInputs, anchor, build_anchor
from testbed.anchors.loglinear import share
from testbed.anchors.rescale import average_of, rescaled_decay, rescaled_rate, smaller_batches
from testbed.cli.listing import kinds
from testbed.config.run import Run, grid
from testbed.data.batch import EXPERT
from testbed.execution.preflight import check_arguments
from testbed.recipes import recipe
from testbed.recipes.composition import HandOver, Recipe
from testbed.training.learner import Learner, RecipeBlock
from testbed.training.loop import train, train_pack
from testbed.training.update import Trainer
from testbed.worlds.build_world import build_world

HOT = {"mismatch": "temperature", "mismatch_args": (("temperature", 1.5),)}
BANDIT = Run(
    task="bandit", task_args=(("contexts", 4),), recipe="decoupled", lag=3, steps=8, prompts=4, group=4,
    learning_rate=5.0, log_every=1,
)  # fmt: skip
CHAIN = dataclasses.replace(BANDIT, task="chain", task_args=(), group=8, learning_rate=20.0)
PPO = Recipe("group_mean", "ppo_clip", "token_mean", passes=2)
ARGUMENTS = {"version": (("age", 3),), "ewma": (("decay", 0.5),)}


def configured(run, name, **arguments):
    return dataclasses.replace(run, anchor=name, anchor_args=tuple(arguments.items()))


def same_training(left, right):
    """Whether two runs log the same bits in every column that is not a field of Run."""
    left, right = train(left), train(right)
    names = [name for name in left if name not in {item.name for item in dataclasses.fields(Run)} | {"cell"}]
    return all(np.array_equal(np.array(left[n]), np.array(right[n]), equal_nan=True) for n in names)


def moved(theta, scale=0.4, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return theta + scale * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def arm(run, made=PPO, theta=None):
    """Return a world, weights and the learner of a one-cell pack with the run's setting."""
    world = build_world((run,))
    theta = world.initial() if theta is None else theta
    learner = Learner(RecipeBlock(made, slice(0, 1)), world, theta, (run,))
    return world, theta, learner


def later_pass(world, learner, theta, rollout, batch):
    """Return the update of a second pass at step 5."""
    trainer = Trainer(world, (learner,), torch.zeros(1, dtype=theta.dtype))
    return trainer.later_pass(theta, rollout, (batch,), 5, 1)


def anchored(run, step=5, age=3, made=PPO, origin=None):
    """Return the rollout of weights `age` steps old, the weights that learn, the batch, and the learner."""
    world, start, learner = arm(run, made)
    old, new = moved(start, seed=2), moved(start, seed=3)
    rollout = world.generate(old, step)
    version = torch.full_like(rollout.token_RBT, step - age)
    rollout = dataclasses.replace(rollout, version_RBT=version, origin_RB=origin)
    batch = learner.batch(new, rollout, world.logp(new, rollout), step)
    return world, rollout, (old, new), batch, learner


# What the setting replaces.


@pytest.mark.parametrize(
    ("name", "own", "arguments"),
    [("grpo", "behavior", {}), ("decoupled", "recompute", {}), ("ppo_ewma", "ewma", {"decay": 0.889})],
)
def test_the_anchor_that_a_recipe_has_is_one_of_the_settings_bit_for_bit(name, own, arguments):
    run = dataclasses.replace(CHAIN, recipe=name)
    assert same_training(run, configured(run, own, **arguments))
    assert not same_training(run, configured(run, "version", age=2))


def test_a_setting_that_no_loss_reads_is_refused_before_training():
    for name in sorted(set(anchor) - {"recipe"}):
        cell = dataclasses.replace(configured(BANDIT, name), recipe="reinforce")
        refuses(f"anchor is '{name}'.*'reinforce' reads no anchor", check_arguments, [cell])
        refuses("reads no anchor", train, cell)
    check_arguments(grid(BANDIT, anchor=sorted(anchor), recipe=["decoupled", "grpo", "remix"]))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("looglinear", {}), ("recipe", {"age": 1}), ("ewma", {"decay": 1.0}), ("version", {"age": -1}),
     ("version", {"age": 8, "kept": 8}), ("loglinear", {"fresh": 1.5}), ("loglinear", {"age": -2}),
     ("linear", {"fresh": -0.1})],
)  # fmt: skip
def test_impossible_anchors_are_refused_with_the_numbers_that_conflict(name, arguments):
    refuses(".", check_arguments, [configured(BANDIT, name, **arguments)])


def test_anchors_are_listed_with_what_they_do_and_their_arguments():
    rows = {row["name"]: row for row in kinds()["anchors"].rows()}
    assert set(rows) == set(anchor)
    assert rows["version"]["arguments"] == "age=1, kept=0"
    assert rows["missing"]["what"].startswith("log anchor = sg[log pi]")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(anchor))
def test_cells_of_a_pack_do_not_see_each_other_under_any_anchor(name):
    run = dataclasses.replace(BANDIT, anchor=name, anchor_args=ARGUMENTS.get(name, ()), **HOT)
    third = "r2vpo" if name == "recipe" else "tis"
    chosen = (("grpo", 3), ("decoupled", 0), ("decoupled", 3), (third, 3))
    cells = [dataclasses.replace(run, recipe=each, lag=lag) for each, lag in chosen]
    packed = train_pack(cells)
    for index, cell in enumerate(cells):
        alone = train(cell)
        rows = slice(index * run.steps, (index + 1) * run.steps)
        for column in ("exact/value", "actor/grad_norm", "actor/clip_share", "actor/clip_share_last_pass"):
            assert np.array_equal(packed[column][rows], alone[column]), column


def test_a_configured_anchor_outlives_a_hand_over_and_a_recipes_own_begins_anew():
    late = dataclasses.replace(PPO, anchor="ewma", anchor_args=(("decay", 0.5),))
    made = dataclasses.replace(PPO, hand_over=HandOver(3, late))
    _, theta, learner = arm(configured(BANDIT, "version", age=2), made)
    kept = learner.anchor
    learner.switch_recipe(moved(theta), 3)
    assert learner.anchor is kept
    world, theta, learner = arm(BANDIT, made)
    later = moved(theta)
    learner.switch_recipe(later, 3)
    rollout = world.generate(theta, 3)
    batch = learner.batch(moved(later), rollout, world.logp(moved(later), rollout), 3)
    assert torch.equal(batch.logp_anchor_BT, world.logp(later, rollout))


# Missing: the trainer's log-probabilities of the present stand in for lost ones.


@pytest.mark.parametrize("lag", [0, 1, 6])
def test_with_missing_log_probabilities_no_clip_ever_binds_whatever_the_lag(lag):
    run = dataclasses.replace(BANDIT, lag=lag, steps=12, **HOT)
    lost, kept = train(configured(run, "missing")), train(configured(run, "recompute"))
    assert np.max(kept["actor/clip_share_last_pass"]) > 0.1
    assert not np.any(lost["actor/clip_share_last_pass"])
    assert not np.any(lost["actor/clip_share"])


def test_a_missing_anchor_is_the_target_itself_at_every_pass_and_d_is_the_whole_ratio():
    world, rollout, (_, new), batch, learner = anchored(configured(BANDIT, "missing", **{}))
    assert torch.equal(batch.logp_anchor_BT, world.logp(new, rollout))
    later = moved(new, seed=4)
    update = later_pass(world, learner, later, rollout, batch)
    assert torch.equal(update.batches[0].logp_anchor_BT, update.logp_RBT)
    d_BT = (update.batches[0].logp_anchor_BT - batch.logp_mu_BT)[rollout.mask_RBT]
    assert torch.equal(d_BT, (world.logp(later, rollout) - rollout.logp_mu_RBT)[rollout.mask_RBT])


def test_a_lost_replica_does_not_stop_the_others_at_later_passes():
    _, rollout, (_, new), batch, learner = anchored(configured(BANDIT, "missing"))
    lost = torch.full_like(rollout.logp_mu_RBT, torch.nan)
    after = learner.refresh_anchor(new, batch, rollout, lost, 5)
    assert torch.equal(after.logp_anchor_BT, rollout.logp_mu_RBT)


# Snapshot and version: the trainer at older weights.


def test_a_snapshot_splits_the_ratio_into_engine_and_staleness():
    world, rollout, (old, _), batch, _ = anchored(configured(dataclasses.replace(BANDIT, **HOT), "snapshot"))
    assert torch.equal(batch.logp_anchor_BT, world.logp(old, rollout))
    log_d = batch.logp_anchor_BT - batch.logp_mu_BT
    assert log_d.abs().max() > 0.05
    # The engine divides log-probabilities by 1.5, so d is known from old weights alone.
    table = (old.unflatten(-1, (4, -1)).log_softmax(-1) / 1.5).log_softmax(-1)
    mu = table.flatten(1).gather(1, (rollout.state_RBT * 10 + rollout.token_RBT).flatten(1))
    assert_close(log_d.flatten(1), world.logp(old, rollout).flatten(1) - mu)


@pytest.mark.parametrize("run", [BANDIT, CHAIN], ids=["bandit", "chain"])
def test_at_an_exact_lag_the_version_of_that_age_is_the_snapshot_bit_for_bit(run):
    run = dataclasses.replace(run, **HOT)
    assert same_training(configured(run, "version", age=3), configured(run, "snapshot"))
    assert not same_training(configured(run, "version", age=2), configured(run, "snapshot"))


def test_without_mismatch_a_snapshot_is_the_behavior_policy_and_age_zero_the_present():
    assert same_training(configured(CHAIN, "snapshot"), configured(CHAIN, "behavior"))
    assert same_training(configured(CHAIN, "version", age=0), configured(CHAIN, "recompute"))


@pytest.mark.parametrize(
    ("staleness", "lag", "arguments"),
    [("uniform", 3, ()), ("periodic", 3, ()), ("in-flight", 3, ()), ("replay", 0, ()), ("latency", 0, ()),
     ("partial", 0, ())],
)  # fmt: skip
def test_snapshots_follow_every_tokens_own_version_through_schedules_that_mix_ages(staleness, lag, arguments):
    run = dataclasses.replace(CHAIN, staleness=staleness, staleness_args=arguments, lag=lag)
    snapshot, behavior = train(configured(run, "snapshot")), train(configured(run, "behavior"))
    assert np.max(snapshot["staleness/age_max_token"]) > 0
    for name in ("exact/value", "actor/grad_norm", "actor/clip_share_last_pass"):
        np.testing.assert_allclose(snapshot[name], behavior[name], rtol=1e-9, atol=1e-12)


def test_steps_with_empty_batches_leave_versions_behind_too():
    made = build_anchor(PPO, "version", (("age", 2),))
    assert made.versions == 3
    made.start(torch.zeros(1, 1))
    read = []
    for step in (0, 1, 2, 6, 7):  # batches 3 to 5 were empty, so that weights 3 to 6 are the same
        theta = torch.full((1, 1), float(min(step, 3) if step < 7 else 7))
        made.logp(AnchorInputs(theta, step, None, theta, lambda old: read.append(float(old)) or old))
    assert read == [0.0, 0.0, 0.0, 3.0, 3.0]


def test_a_demonstration_has_no_version_so_its_ratio_to_a_snapshot_is_one():
    origin = torch.zeros(1, 16, dtype=torch.int64)
    origin[:, 8:] = EXPERT
    world, rollout, (old, new), batch, _ = anchored(
        configured(dataclasses.replace(BANDIT, **HOT), "snapshot"), origin=origin
    )
    assert torch.equal(batch.logp_anchor_BT[:, 8:], world.logp(new, rollout)[:, 8:])
    assert torch.equal(batch.logp_anchor_BT[:, :8], world.logp(old, rollout)[:, :8])


@pytest.mark.parametrize(
    ("name", "lost"),
    [("snapshot", "logp_trainer_RBT"), ("loglinear", "version_RBT"), ("linear", "version_RBT")],
)
def test_an_anchor_without_what_it_reads_says_what_is_missing(name, lost):
    world, rollout, (_, new), _, learner = anchored(configured(BANDIT, name))
    rollout = dataclasses.replace(rollout, **{lost: None})
    refuses(f"anchor '{name}' needs the", learner.batch, new, rollout, world.logp(new, rollout), 5)


def test_the_share_of_the_target_follows_every_tokens_own_version():
    version = torch.tensor([[10, 9, 8, 5, 0]])
    assert share(version, 10, 1, 0.0).tolist() == [[0.0, 0.0, 1 / 2, 4 / 5, 9 / 10]]
    assert share(version, 10, 3, 1.0).tolist() == [[1.0, 0.0, 0.0, 2 / 5, 7 / 10]]
    assert share(version, 10, 0, 0.5).tolist() == [[0.5, 1.0, 1.0, 1.0, 1.0]]


def test_the_log_linear_anchor_lies_between_behavior_and_the_target_of_each_pass():
    world, rollout, (_, new), batch, learner = anchored(configured(BANDIT, "loglinear"), age=4)
    mu = rollout.logp_mu_RBT
    assert_close(batch.logp_anchor_BT, mu + 0.75 * (world.logp(new, rollout) - mu))
    later = moved(new, seed=4)
    (after,) = later_pass(world, learner, later, rollout, batch).batches
    assert_close(after.logp_anchor_BT, mu + 0.75 * (world.logp(later, rollout) - mu))
    assert not after.logp_anchor_BT.requires_grad


def test_tokens_as_young_as_the_weights_are_clipped_around_mu_or_not_at_all():
    run = dataclasses.replace(BANDIT, lag=0)
    assert same_training(configured(run, "loglinear"), configured(run, "behavior"))
    assert same_training(configured(run, "loglinear", fresh=1.0), configured(run, "missing"))


def test_the_linear_anchor_is_the_mixture_of_behavior_and_the_target_of_each_pass():
    world, rollout, (_, new), batch, learner = anchored(configured(BANDIT, "linear"), age=4)
    mu = rollout.logp_mu_RBT.exp()
    mixture = 0.25 * mu + 0.75 * world.logp(new, rollout).exp()
    assert_close(batch.logp_anchor_BT.exp(), mixture)
    later = moved(new, seed=4)
    (after,) = later_pass(world, learner, later, rollout, batch).batches
    assert_close(after.logp_anchor_BT.exp(), 0.25 * mu + 0.75 * world.logp(later, rollout).exp())
    assert not after.logp_anchor_BT.requires_grad


def test_on_a_straight_path_the_average_is_the_version_at_its_center_of_mass():
    start, stride, decay = torch.zeros(1, 3), torch.tensor([[1.0, -2.0, 0.5]]), 0.8
    made = build_anchor(PPO, "ewma", (("decay", decay),))
    made.start(start)
    for step in range(1, 201):
        made.observe_weights(step * stride)
    read = []
    made.logp(AnchorInputs(start, 200, None, start, lambda theta: read.append(theta) or theta))
    # 0.8^200 of the weight is missing: below 1e-19.
    assert_close(read[0], (200 - decay / (1 - decay)) * stride, rtol=1e-5, atol=0)


@pytest.mark.parametrize("parts", [2, 16])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.889])
def test_rescaling_keeps_the_averages_age_in_samples(decay, parts):
    center = rescaled_decay(decay, parts) / (1 - rescaled_decay(decay, parts))
    assert center == pytest.approx(parts * decay / (1 - decay), rel=1e-12)


def test_dividing_a_batch_keeps_samples_their_age_and_the_drift_per_sample():
    run = configured(dataclasses.replace(BANDIT, steps=10, lag=2, log_every=5, prompts=8), "ewma", decay=0.5)
    small = smaller_batches(run, 4)
    assert (small.prompts, small.steps, small.lag, small.log_every) == (2, 40, 8, 20)
    assert small.learning_rate == run.learning_rate / 4
    assert dict(small.anchor_args) == {"decay": pytest.approx(0.8)}
    assert rescaled_rate(1.0, 4, "adam") == 0.5
    adam = dataclasses.replace(run, optimizer="adam", optimizer_args=(("eps", 1e-6), ("beta1", 0.5)))
    assert dict(smaller_batches(adam, 4).optimizer_args) == pytest.approx(
        {"beta1": 0.5 ** (1 / 4), "beta2": 0.999 ** (1 / 4), "eps": 1e-6}, rel=1e-12
    )
    assert smaller_batches(adam, 1) == adam
    assert smaller_batches(run, 1) == run
    refuses("prompts is 8, which 3 does not divide", smaller_batches, run, 3)
    refuses("which 0 does not divide", smaller_batches, run, 0)


def test_the_average_that_is_rescaled_is_the_settings_or_the_recipes():
    own = dataclasses.replace(BANDIT, recipe="ppo_ewma", recipe_args=(("decay", 0.75),))
    assert [average_of(r) for r in (own, configured(own, "missing"), configured(BANDIT, "ewma"), BANDIT)] == [
        0.75, None, 0.889, None,
    ]  # fmt: skip
    small = smaller_batches(own, 4)
    assert small.anchor == "ewma"
    assert dict(small.anchor_args)["decay"] == pytest.approx(12 / 13)
    assert smaller_batches(BANDIT, 2).anchor == "recipe"


# What is logged of the last pass.


def test_the_clip_share_of_the_last_pass_is_the_first_passes_where_there_is_one_pass():
    table = train(configured(dataclasses.replace(BANDIT, recipe_args=(("passes", 1),)), "behavior"))
    assert np.max(table["actor/clip_share"]) > 0
    assert np.array_equal(table["actor/clip_share"], table["actor/clip_share_last_pass"])
    recomputed = train(configured(BANDIT, "recompute"))
    assert not np.any(recomputed["actor/clip_share"])
    assert np.max(recomputed["actor/clip_share_last_pass"]) > 0.1


def test_every_recipe_with_three_policies_can_make_several_passes():
    for name in ("decoupled", "tis", "mis", "icepop"):
        assert recipe[name].bind(passes=3)().passes == 3
