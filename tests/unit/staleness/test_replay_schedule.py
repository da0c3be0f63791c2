"""Replay: what is chosen, how often, how old, with which chance, and that it says so."""

import dataclasses

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.small_runs import LENGTHS, SMALL, TOY, WORLDS, with_schedule, with_what_it_reads

from testbed.config.run import Run, grid
from testbed.data.batch import REPLAY, ROLLOUT
from testbed.errors import UserError
from testbed.execution.preflight import check_arguments
from testbed.recipes import recipe
from testbed.staleness import build_source, plan_for
from testbed.staleness.replay import PRIORITIES, on_policyness, recent_advantage
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)
every_priority = pytest.mark.parametrize("priority", PRIORITIES)
EIGHT = dataclasses.replace(LENGTHS, prompts=8)


def generations(run: Run, steps: int, drift: float = 0.1):
    """Yield (step, batch, what was generated at each step) under weights that move by a known path."""
    world = build_world((run,))
    made = []
    plain = world.generate
    world.generate = lambda *given: made.append(plain(*given)) or made[-1]
    theta = world.initial()
    source = build_source((run,), world, theta)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        yield step, source.batch(theta, step), made
        theta = theta + drift * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def names(rollout):
    """Return what tells a group apart: its tokens and log-probabilities, as bytes; one per group."""
    logp = rollout.logp_mu_RBT[0].unflatten(0, (-1, rollout.group))
    return [each.numpy().tobytes() for each in logp]


@every_priority
def test_uses_and_ages_stay_within_their_limits_and_no_group_is_twice_in_a_batch(priority):
    run = with_schedule(EIGHT, "replay", share=0.25, reuse=5, window=6, priority=priority)
    uses: dict[bytes, int] = {}
    shares = []
    for step, generated, made in generations(run, 40):
        rollout = generated.rollout
        assert int((step - rollout.version_RBT).max()) <= 6
        inside = names(rollout)
        assert len(set(inside)) == 8
        fresh = int((rollout.origin_RB[0, :: rollout.group] == ROLLOUT).sum())
        assert fresh >= 2
        assert inside[:fresh] == names(made[step])[:fresh]
        assert generated.counts["staleness/replayed_share"] == [1 - fresh / 8]
        for name in inside:
            uses[name] = uses.get(name, 0) + 1
        shares.append(fresh)
    assert shares[0] == 8
    assert max(uses.values()) == 5
    assert min(shares[8:]) == 2


def test_only_what_was_fresh_is_ever_replayed():
    run = with_schedule(EIGHT, "replay", share=0.5, reuse=2, window=4)
    seen: set[bytes] = set()
    for _, generated, _ in generations(run, 25):
        rollout = generated.rollout
        replayed = (rollout.origin_RB[0, :: rollout.group] == REPLAY).tolist()
        for name, old in zip(names(rollout), replayed, strict=True):
            assert old == (name in seen)
            seen.add(name)


def chosen_ages(run: Run, seeds: int, step: int):
    """Return ages of the replayed groups of one step for many seeds, weights at rest."""
    runs = grid(run, seed=range(seeds))
    world = build_world(runs)
    theta = world.initial()
    source = build_source(runs, world, theta)
    for t in range(step + 1):
        rollout = source.batch(theta, t).rollout
    age_RN = (step - rollout.version_RBT[..., 0])[:, :: rollout.group]
    return age_RN[age_RN > 0].numpy()


def test_uniform_priority_prefers_no_age():
    # With reuse above what any group can reach, all stored groups are alike: ages 1, 2, 3 with chance 1/3.
    run = with_schedule(EIGHT, "replay", share=0.875, reuse=99, window=3)
    ages = chosen_ages(dataclasses.replace(run, task="bandit", task_args=()), 1000, 9)
    share = np.bincount(ages, minlength=4)[1:] / ages.size
    # One group per seed. Hoeffding: shares stay within 0.09 but with chance 6 exp(-2 n 0.09^2) < 6e-7.
    assert ages.size == 1000
    assert np.abs(share - 1 / 3).max() < 0.09


def test_recency_prefers_young_groups_and_advantage_those_that_have_one():
    run = with_schedule(EIGHT, "replay", share=0.875, reuse=99, window=3, priority="advantage", decay=0.1)
    ages = chosen_ages(dataclasses.replace(run, task="bandit", task_args=()), 300, 9)
    # Weights of ages 1, 2, 3 are about as 1, 0.1, 0.01. A fair choice exceeds 0.6 with chance < 1e-17.
    assert (ages == 1).mean() > 0.6
    equal = dataclasses.replace(LENGTHS, prompts=16, group=2)
    binary = with_schedule(equal, "replay", share=0.75, reuse=99, window=4, priority="advantage")
    spread = []
    for step, generated, _ in generations(binary, 30, drift=0.0):
        rollout = generated.rollout
        reward = rollout.reward_RB[0].unflatten(0, (-1, 2))
        old = (rollout.origin_RB[0, ::2] == REPLAY).numpy()
        spread += ((reward[:, 0] != reward[:, 1]).numpy()[old]).tolist() if step > 4 else []
    assert len(spread) > 90
    assert all(spread)


def test_weights_are_those_of_the_formulas():
    run = dataclasses.replace(EIGHT, steps=3)
    world = build_world((run,))
    theta = world.initial()
    stored = [world.generate(theta + 0.2 * step, step) for step in range(2)]
    pi = theta + 20 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=theta.dtype)
    found = on_policyness(world, pi, stored, alpha=0.5)
    place = 0
    for rollout in stored:
        logp = world.logp(pi, rollout).clamp(-12, 7)
        for n in range(8):
            members = range(n * rollout.group, (n + 1) * rollout.group)
            u = np.mean([float(logp[0, b][rollout.mask_RBT[0, b]].mean()) for b in members])
            assert found[0, place] == pytest.approx(u / 0.5, abs=1e-12)
            place += 1
    assert float(world.logp(pi, stored[0]).min()) < -12
    recent = recent_advantage(stored, decay=0.5)
    for place, (age, rollout) in enumerate(((2, stored[0]), (1, stored[1]))):
        reward = rollout.reward_RB[0].unflatten(0, (8, -1)).numpy()
        weight = np.abs(reward - reward.mean(1, keepdims=True)).mean(1) + 1e-12
        assert recent[0, place * 8 : place * 8 + 8] == pytest.approx(np.log(weight * 0.5**age))


def test_on_policyness_replays_what_the_present_weights_still_make():
    base = dataclasses.replace(LENGTHS, prompts=16)
    means = {}
    for priority in ("uniform", "on-policy"):
        run = with_schedule(base, "replay", share=0.25, reuse=8, window=8, priority=priority, alpha=0.02)
        kept = []
        for _, generated, _ in generations(run, 30, drift=0.4):
            rollout = generated.rollout
            old = rollout.origin_RB[0] == REPLAY
            kept.append(float((rollout.logp_mu_RBT.sum(-1) / rollout.mask_RBT.sum(-1))[0, old].mean()))
        means[priority] = np.mean(kept[8:])
    assert means["on-policy"] > means["uniform"] + 0.1


def test_an_age_limit_cuts_the_window_and_discarding_counts_what_leaves():
    run = with_schedule(EIGHT, "replay", 2, "discard", share=0.5, reuse=4, window=8)
    for step, generated, _ in generations(run, 20):
        assert int((step - generated.rollout.version_RBT).max()) <= 2
        lost = generated.counts["staleness/discarded"][0]
        assert lost == 0 if step < 2 else lost >= 0
        # At most the whole fresh part of one generation leaves per step.
        assert lost <= 8
    assert lost > 0
    fresh = with_schedule(EIGHT, "replay", 0, "wait", share=0.5, reuse=4, window=8)
    for step, generated, _ in generations(fresh, 5):
        assert (generated.rollout.version_RBT == step).all()


@pytest.mark.slow
def test_recipes_learn_from_replayed_groups_without_a_non_finite_number():
    for name in sorted(recipe)[1::3]:  # test_latency.py has the first third, test_too_old.py the last
        made = recipe[name].bind()()
        run = dataclasses.replace(with_schedule(LENGTHS, "replay", priority="on-policy"), steps=4)
        run = with_what_it_reads(run, name)
        if made.demonstrations or "parent_B" in made.needs:
            continue  # a tabular world has no teacher; sequences of such a schedule have no parents
        table = train(run)
        assert np.isfinite(table["actor/grad_norm"]).all()
        assert not table["diverged"].any()


@pytest.mark.parametrize(
    "arguments",
    [{"priority": "on_policy"}, {"share": 0}, {"share": 0.1}, {"share": 0.2, "reuse": 9, "window": 3},
     {"decay": 0}],
)  # fmt: skip
def test_impossible_replays_are_refused_with_their_numbers(arguments):
    refuses(".", check_arguments, [with_schedule(SMALL, "replay", **arguments)])


def test_a_lag_and_a_share_of_less_than_one_group_are_refused():
    refuses("lag is 2, but schedule 'replay'", plan_for, Run(staleness="replay", lag=2))
    with pytest.raises(UserError, match=r"share of 0.25 of 1 prompts is less than one group"):
        train(with_schedule(dataclasses.replace(TOY, prompts=1), "replay"))


def test_fresh_groups_are_the_whole_number_next_to_their_share():
    for share, fresh in ((0.3, 2), (0.35, 3), (1.0, 8)):
        run = with_schedule(EIGHT, "replay", share=share)
        world = build_world((run,))
        assert build_source((run,), world, world.initial()).fresh == fresh


def test_groups_are_drawn_in_proportion_to_their_weights():
    run = with_schedule(EIGHT, "replay")
    world = build_world((run,))
    theta = world.initial()
    source = build_source((run,), world, theta)
    source.batch(theta, 0)
    source._log_weight = lambda _: np.log([[4.0] + [1.0] * 7])
    first = np.array([source._keys(theta, step)[0].argmin() == 0 for step in range(2000)])
    # 6 standard errors: one false alarm in 5e8 seeds. Gumbel noise of the other sign gives .55.
    assert abs(first.mean() - 4 / 11) < 6 * (4 / 11 * 7 / 11 / 2000) ** 0.5


def test_what_is_replayed_is_no_new_rollout():
    table = train(with_schedule(EIGHT, "replay"))
    fresh = 8 * EIGHT.group * (1 - np.array(table["staleness/replayed_share"]))
    assert fresh.min() < fresh.max()
    assert np.diff(table["rollouts"], prepend=0).tolist() == fresh.tolist()
