"""What recipes may change in the loop: passes, anchors, replay, demonstrations, references, hand-overs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed import rng
from testbed.config.run import Run
from testbed.data.batch import EXPERT, REPLAY, ROLLOUT
from testbed.data.select import groups_in, replace_groups
from testbed.errors import UserError
from testbed.losses.dual_update import DualUpdate
from testbed.objectives import objective
from testbed.objectives.smooth.r2vpo import dual_step
from testbed.policies.optimizers import OPTIMIZERS
from testbed.recipes.composition import Baselines, Dual, HandOver, Recipe, Replay, StepRule, Term, pairs
from testbed.training.learner import (
    PROVIDERS,
    Learner,
    RecipeBlock,
    SignalInputs,
    finite_or,
    log_ratio,
    mix_rollouts,
    sequence_score_norm,
)
from testbed.training.update import State, Trainer
from testbed.worlds.build_world import build_world

BANDIT = Run(task="bandit", prompts=4, group=4, learning_rate=0.5, steps=6)
CHAIN = replace(BANDIT, task="chain")
TOY = Run(
    task="running-sum", task_args=(("digits", 2), ("modulus", 2)), policy="toy",
    policy_args=(("width", 8), ("layers", 1), ("heads", 2)), prompts=4, group=4, steps=6,
)  # fmt: skip
PLAIN = Recipe("group_mean", "reinforce", "constant", 1.0)
PPO = Recipe("group_mean", "ppo_clip", "token_mean")


def one_learner(recipe, run=CHAIN, theta=None):
    world = build_world((run,))
    theta = world.initial() if theta is None else theta
    return world, theta, Learner(RecipeBlock(recipe, slice(0, 1)), world, theta, (run,))


def moved(theta, scale=0.3):
    generator = torch.Generator().manual_seed(1)
    return theta + scale * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def step_once(recipe, run=CHAIN, step=0):
    world, theta, learner = one_learner(recipe, run)
    rollout = mix_rollouts((learner,), theta, world.generate(theta, step), step)
    trainer = trainer_of(world, learner, run)
    update = trainer.first_pass(theta, rollout, step)
    after = trainer.learn(State.start(theta), rollout, update, step).theta_RP
    return world, theta, rollout, after


def trainer_of(world, learner, run=CHAIN):
    return Trainer(world, (learner,), torch.tensor([run.learning_rate], dtype=torch.float64))


def test_two_passes_are_two_updates_on_the_same_batch_with_the_advantages_and_anchor_of_the_first():
    recipe = replace(PPO, passes=2, anchor="current")
    world, theta, rollout, after = step_once(recipe)
    _, _, learner = one_learner(recipe)
    trainer = trainer_of(world, learner)
    first = trainer.first_pass(theta, rollout, 0)
    theta = theta - 0.5 * first.grad_RP
    theta = theta - 0.5 * trainer.later_pass(theta, rollout, first.batches, 0, 1).grad_RP
    torch.testing.assert_close(after, theta, rtol=0, atol=1e-15)


def test_before_its_last_pass_a_slow_fast_recipe_is_pulled_back_towards_the_start():
    recipe = replace(PLAIN, passes=3, reposition=0.25)
    world, start, rollout, after = step_once(recipe)
    _, _, learner = one_learner(recipe)
    theta = start
    for pass_index in range(3):
        if pass_index == 2:
            theta = start + 0.25 * (theta - start)
        theta = theta - 0.5 * trainer_of(world, learner).first_pass(theta, rollout, 0).grad_RP
    torch.testing.assert_close(after, theta, rtol=0, atol=1e-15)


def test_the_moving_average_is_debiased_and_its_log_probabilities_are_the_anchor():
    world, theta, learner = one_learner(replace(PPO, anchor="ewma", anchor_args=pairs(decay=0.5)))
    later = moved(theta)
    learner.observe_weights(later)
    rollout = world.generate(theta, 0)
    batch = learner.batch(later, rollout, world.logp(later, rollout), 1)
    expected = world.logp((0.5 * theta + later) / 1.5, rollout)
    torch.testing.assert_close(batch.logp_anchor_BT, expected, rtol=0, atol=1e-14)
    found = trainer_of(world, learner).first_pass(later, rollout, 1)
    log_w = ((found.logp_RBT - rollout.logp_mu_RBT) * rollout.mask_RBT).sum(-1)  # to the sampler
    torch.testing.assert_close(found.log_w_RB, log_w)


def test_reference_rewards_are_the_teachers_on_what_it_sees():
    teacher = SimpleNamespace(weights=lambda x: ("weights", x), seen=lambda x: ("seen", x))
    world = SimpleNamespace(reference_reward=lambda *given: given)
    recipe = replace(PLAIN, baselines=Baselines(reference_group=5))
    rows = slice(2, 3)
    found = PROVIDERS["reference_reward_BN"](SignalInputs(world, recipe, teacher, rows, 1, 2, None, None, 7))
    assert found == (("weights", 1), ("seen", 2), rows, 5, 7)


def test_the_reference_is_the_policy_at_the_start_until_the_next_recipe_takes_over():
    term = Term("kl_penalty", 0.1)
    recipe = replace(
        PLAIN, terms=(term,), replay=Replay(2, 0.5),
        hand_over=HandOver(3, replace(PPO, terms=(term,))),
    )  # fmt: skip
    world, theta, learner = one_learner(recipe)
    rollout, later = world.generate(theta, 0), moved(theta)
    for step, reference in [(0, theta), (2, theta), (3, later), (4, later)]:
        learner.dual_C = torch.ones(1)
        trainer_of(world, learner).switch_recipes(State.start(later), step)
        assert (learner.dual_C is None) == (step == 3)  # a multiplier is of its recipe
        batch = learner.batch(later, rollout, world.logp(later, rollout), step)
        torch.testing.assert_close(batch.logp_ref_BT, world.logp(reference, rollout), rtol=0, atol=0)
        assert learner.recipe.objective == ("reinforce" if step < 3 else "ppo_clip")
        assert (learner.buffer is not None) == (step < 3)


def test_each_recipe_of_a_pack_has_the_teacher_of_its_own_cells():
    runs = tuple(replace(CHAIN, recipe=name) for name in ("grpo", "m2po"))
    theta = moved(build_world(runs).initial())
    for row, learner in enumerate(Trainer.of(runs, build_world(runs), theta).learners):
        assert learner.teacher.first == row
        assert torch.equal(learner.teacher.theta_RP, theta[row : row + 1])


def test_terms_are_added_with_their_coefficient_at_the_step():
    world, theta, learner = one_learner(PLAIN)
    rollout = world.generate(theta, 0)
    logp = world.logp(moved(theta), rollout)
    batch = learner.batch(theta, rollout, logp, 0)
    plain = PLAIN.loss(logp, batch, {})
    assert (plain != 0).all()
    twice = replace(PLAIN, terms=(Term("reinforce", lambda step, steps: step / steps),))
    torch.testing.assert_close(twice.loss(logp, batch, {}, 5, 10), 1.5 * plain)
    learner = one_learner(twice)[2]
    torch.testing.assert_close(
        learner.loss(logp, batch, 2), (1 + 2 / CHAIN.steps) * one_learner(PLAIN)[2].loss(logp, batch, 2)
    )


@pytest.mark.parametrize("run", [CHAIN, TOY], ids=["chain", "toy"])
def test_replayed_groups_are_an_earlier_batch_with_the_log_probabilities_it_was_generated_with(run):
    world, theta, learner = one_learner(replace(PLAIN, replay=Replay(2, 0.5)), run)
    earlier = world.generate(theta, 0)
    mix_rollouts((learner,), theta, earlier, 0)
    fresh = world.generate(moved(theta), 1)
    both = mix_rollouts((learner,), theta, fresh, 1)
    cut = run.prompts // 2 * run.group
    assert (both.origin_RB[:, :cut] == ROLLOUT).all()
    assert (both.origin_RB[:, cut:] == REPLAY).all()
    for field in ("token_RBT", "logp_mu_RBT", "reward_RB", "mask_RBT"):
        assert torch.equal(getattr(both, field)[:, :cut], getattr(fresh, field)[:, :cut])
        assert torch.equal(getattr(both, field)[:, cut:], getattr(earlier, field)[:, :cut])


def test_a_buffer_forgets_what_is_older_than_its_window():
    world, theta, learner = one_learner(replace(PLAIN, replay=Replay(2, 0.25)))
    rollouts = [world.generate(theta, step) for step in range(5)]
    for step, rollout in enumerate(rollouts):
        learner.mix(theta, rollout, step)
    assert [id(kept) for kept in learner.buffer.kept] == [id(r) for r in rollouts[-2:]]


def test_every_batch_of_the_window_is_replayed_and_no_other():
    world, theta, learner = one_learner(replace(PLAIN, replay=Replay(3, 0.25)))
    rollout, ages = world.generate(theta, 0), []
    for step in range(60):
        marked = replace(rollout, reward_RB=torch.full_like(rollout.reward_RB, step))
        ages.append(step - int(learner.mix(theta, marked, step).reward_RB[0, -1]))
    assert ages[0] == 0
    # Three ages, a third each: one of them is missing in 57 draws once in 4e9 seeds.
    assert set(ages[3:]) == {1, 2, 3}
    # A step's draw is its own: results that are stored keep their numbers.
    assert ages[3:] == [3 - int(rng.generator(CHAIN.seed, "replay", s).integers(3)) for s in range(3, 60)]


def test_arms_without_replay_see_their_own_batch_beside_an_arm_with_it():
    runs = (BANDIT, replace(BANDIT, seed=1))
    world = build_world(runs)
    theta = world.initial()
    replayed = replace(PLAIN, replay=Replay(1, 0.5))
    blocks = (RecipeBlock(PLAIN, slice(0, 1)), RecipeBlock(replayed, slice(1, 2)))
    learners = tuple(Learner(block, world, theta[block.rows], runs[block.rows]) for block in blocks)
    for step in range(2):
        rollout = world.generate(theta, step)
        both = mix_rollouts(learners, theta, rollout, step)
    assert torch.equal(both.token_RBT[0], rollout.token_RBT[0])
    assert (both.origin_RB[0] == ROLLOUT).all()
    assert (both.origin_RB[1] == REPLAY).any()


def test_demonstrations_are_right_answers_and_their_ratio_is_one():
    world, theta, learner = one_learner(replace(PLAIN, demonstrations=0.5), TOY)
    rollout = mix_rollouts((learner,), theta, world.generate(theta, 0), 0)
    expert = rollout.origin_RB[0] == EXPERT
    assert int(expert.sum()) == 2 * TOY.group
    assert (rollout.reward_RB[0, expert] == 1).all()
    later = moved(theta)
    batch = learner.batch(later, rollout, world.logp(later, rollout), 0)
    assert torch.equal(batch.logp_mu_BT[0, expert], world.logp(later, rollout)[0, expert])


def test_shares_that_make_no_group_and_impossible_buffers_are_refused():
    world, theta, learner = one_learner(replace(PLAIN, demonstrations=0.1), TOY)
    refuses("less than one group; raise `prompts`", learner.mix, theta, world.generate(theta, 0), 0)
    world, theta, learner = one_learner(replace(PLAIN, replay=Replay(2, 0.1)), TOY)
    refuses("nothing would be replayed", learner.mix, theta, world.generate(theta, 0), 0)
    for wrong in (Replay(0, 0.5), Replay(2, 1.0), Replay(2, 0.0)):
        refuses("replay of window", one_learner, replace(PLAIN, replay=wrong))
    rollout = world.generate(theta, 0)
    refuses("5 groups were asked for, but a batch has 4", replace_groups, rollout, rollout, 5, REPLAY)


def test_a_share_that_is_a_whole_number_of_groups_up_to_rounding_is_that_number():
    assert int(0.58 * 50) == 28
    assert [groups_in(0.58, 50), groups_in(0.57, 50), groups_in(1 / 3, 3), groups_in(1.0, 7)] == [
        29,
        28,
        1,
        7,
    ]


def test_groups_of_equal_rewards_leave_the_denominators_under_dynamic_sampling():
    recipe = replace(PPO, dynamic_sampling=True)
    world, theta, learner = one_learner(recipe)
    rollout = world.generate(theta, 0)
    reward = torch.tensor([[1.0, 0, 0, 1] + [1.0] * 4 + [0.0] * 8])
    rollout = replace(rollout, reward_RB=reward.double())
    logp = world.logp(moved(theta), rollout)
    batch = learner.batch(theta, rollout, logp, 0)
    kept, full = recipe.loss(logp, batch, {}), PPO.loss(logp, batch, {})
    assert (full != 0).all()
    tokens = batch.mask_BT.sum((-2, -1)), batch.mask_BT[:, :4].sum((-2, -1))
    torch.testing.assert_close(kept, full * tokens[0] / tokens[1])


def test_the_step_size_factor_is_a_power_of_the_ess_share_over_its_reference():
    world, theta, learner = one_learner(PLAIN)
    rollout = world.generate(theta, 0)
    logp = world.logp(moved(theta, 1.0), rollout)
    batch = learner.batch(theta, rollout, logp, 0)
    weight = (logp - rollout.logp_mu_RBT).sum(-1).exp()[0]
    share = float(weight.sum() ** 2 / (weight**2).sum() / len(weight))
    assert share < 0.9
    for rule, power in (("sqrt", 0.5), ("linear", 1.0)):
        recipe = replace(PLAIN, step_rule=StepRule(0.9, rule))
        assert float(recipe.step_rule.factor(logp, batch)) == pytest.approx((share / 0.9) ** power, rel=1e-9)
    rho = (logp - rollout.logp_mu_RBT)[rollout.mask_RBT].exp()
    kl = float((rho - 1 - rho.log()).mean())
    for limit, factor in ((0.99 * kl, 0.0), (1.01 * kl, 1.0)):
        assert float(StepRule(kl_limit=limit).factor(logp, batch)) == factor
        both = StepRule(0.9, "linear", limit).factor(logp, batch)
        assert float(both) == pytest.approx(factor * share / 0.9, rel=1e-9)
    assert float(PLAIN.step_rule.factor(logp, batch)) == 1.0
    trainer = trainer_of(world, Learner(RecipeBlock(recipe, slice(0, 1)), world, theta, (CHAIN,)))
    rate_R = trainer.first_pass(moved(theta, 1.0), rollout, 0).rate_R
    assert rate_R.item() == pytest.approx(CHAIN.learning_rate * share / 0.9, rel=1e-9)


def test_every_batch_is_a_lesson_of_the_critic():
    game = replace(BANDIT, task="tree", task_args=(("task", "guess"),), recipe="ppo", critic="table")
    world, theta, learner = one_learner(Recipe("gae", "ppo_clip", "token_mean"), game)
    rollout = world.generate(theta, 0)
    for lesson in (1, 2):
        before = learner.critic.values(theta, rollout)
        learner.batch(theta, rollout, world.logp(theta, rollout), 0)
        assert learner.critic.lessons == lesson
        assert not torch.equal(learner.critic.values(theta, rollout), before)


LENGTHS = replace(
    BANDIT, task="tree", task_args=(("task", "length"), ("task_args", "digits=2 modulus=2 limit=6"))
)


@pytest.mark.parametrize("run", [BANDIT, LENGTHS, TOY], ids=["bandit", "lengths", "toy"])
def test_the_score_norm_of_a_token_is_that_of_its_logits(run):
    world, theta, _ = one_learner(PLAIN, run)
    theta = moved(theta)
    rollout = world.generate(theta, 0)
    assert rollout.mask_RBT.all() == (run != LENGTHS)
    actual = world.score_norm(theta, rollout)
    last = rollout.mask_RBT.sum(-1, keepdim=True) - 1
    actions = world.policy.actions if run.policy == "tabular" else world.task.vocabulary
    laws = []
    for token in range(actions):
        swapped = rollout.token_RBT.scatter(-1, last, token)
        other = replace(rollout, token_RBT=swapped)
        laws.append(world.logp(theta, other).gather(-1, last).exp().squeeze(-1))
    pi = torch.stack(laws, -1)
    torch.testing.assert_close(pi.sum(-1), torch.ones_like(pi[..., 0]))
    chosen = rollout.token_RBT.gather(-1, last)
    expected = (torch.nn.functional.one_hot(chosen.squeeze(-1), actions) - pi).square().sum(-1)
    torch.testing.assert_close(actual.gather(-1, last).squeeze(-1), expected.to(actual.dtype))
    assert (actual[~rollout.mask_RBT] == 0).all()


def test_the_score_norm_of_a_sequence_is_that_of_the_whole_gradient():
    world, theta, _ = one_learner(PLAIN, CHAIN)
    theta = moved(theta)
    rollout = world.generate(theta, 0)
    pi = world.policy.probabilities(theta)[0]
    norms = sequence_score_norm(world, theta, rollout)[0].numpy()
    for b in range(3):
        score = np.zeros_like(pi)
        for t in np.flatnonzero(rollout.mask_RBT[0, b]):
            s, a = int(rollout.state_RBT[0, b, t]), int(rollout.token_RBT[0, b, t])
            score[s] -= pi[s]
            score[s, a] += 1
        assert norms[b] == pytest.approx((score**2).sum(), rel=1e-10)


@pytest.mark.parametrize("run", [BANDIT, CHAIN, TOY], ids=["bandit", "chain", "toy"])
def test_greedy_and_reference_rewards_have_one_row_per_sequence(run):
    world, theta, _ = one_learner(PLAIN, run)
    rollout = world.generate(moved(theta), 0)
    greedy = world.greedy_reward(moved(theta), rollout)
    assert greedy.shape == rollout.reward_RB.shape
    assert torch.equal(greedy, world.greedy_reward(moved(theta), rollout))
    by_group = greedy.unflatten(1, (-1, run.group))
    assert (by_group == by_group[..., :1]).all()
    reference = world.reference_reward(theta, rollout, slice(0, 1), 5, 0)
    assert reference.shape == (1, run.prompts * run.group, 5)
    other = world.reference_reward(theta, rollout, slice(0, 1), 5, 1)
    assert not torch.equal(reference, other) or float(reference.std()) == 0


def test_greedy_rewards_are_those_of_the_likeliest_choices():
    many = replace(BANDIT, prompts=400)
    world, theta, _ = one_learner(PLAIN, many)
    rollout = world.generate(theta, 0)
    for arm in (2, 9):
        p = world.task.reward_SA[0, arm]
        mean = float(world.greedy_reward(theta + torch.eye(10)[arm], rollout)[0, :: many.group].mean())
        assert abs(mean - p) < 6 * (p * (1 - p) / 400) ** 0.5  # one false alarm in 1e8 seeds


def test_greedy_tokens_are_the_likeliest_ones():
    world, theta, _ = one_learner(PLAIN, TOY)
    theta = moved(theta)
    prompt = world.generate(theta, 0).prompt_RNQ
    nothing = torch.zeros(1, TOY.prompts, world.task.response_length, dtype=torch.float64)
    token, mask, logp = world.policy.sample(theta, prompt, 1, nothing, greedy=True)
    for v in range(world.task.vocabulary):
        for t in range(token.shape[-1]):
            swapped = token.clone()
            swapped[..., t] = v
            other = world.policy.logp(theta, prompt, swapped, mask)[..., t]
            assert (other <= logp[..., t] + 1e-5)[mask[..., t]].all()
    score = world.task.score(*(value[0].numpy() for value in (prompt, token, mask)))
    greedy = world.greedy_reward(theta, world.generate(theta, 0))[0, :: TOY.group]
    assert greedy.tolist() == score.tolist()


def test_history_holds_the_mean_baselines_of_the_last_batches():
    world, theta, learner = one_learner(replace(PLAIN, baselines=Baselines(history=2)))
    means = []
    for step in range(3):
        rollout = world.generate(theta, step)
        learner.batch(theta, rollout, world.logp(theta, rollout), step)
        means.append(float(rollout.reward_RB.mean()))
    np.testing.assert_allclose(learner.baselines_CK[0].numpy(), means[-2:], rtol=1e-12)


def test_replayed_responses_count_above_past_baselines_and_fresh_ones_against_their_group():
    recipe = replace(PLAIN, replay=Replay(1, 0.5, advantage="recalibrated"), baselines=Baselines(history=3))
    world, theta, learner = one_learner(recipe, BANDIT)
    means = []
    for step in range(3):
        rollout = mix_rollouts((learner,), theta, world.generate(theta, step), step)
        batch = learner.batch(theta, rollout, world.logp(theta, rollout), step)
        if step:
            adv, reward = batch.adv_BT[0, :, 0], rollout.reward_RB[0]
            fresh = rollout.origin_RB[0] == ROLLOUT
            own = reward.view(4, 4).mean(1).repeat_interleave(4)
            torch.testing.assert_close(adv[fresh], (reward - own)[fresh])
            # The median of the means before this batch, without this batch's.
            above = (reward - float(np.median(means))).clamp(min=0)
            torch.testing.assert_close(adv[~fresh], above[~fresh])
            assert (above != reward - own)[~fresh].any()
        means.append(float(rollout.reward_RB.mean()))


def test_the_advantage_of_replayed_responses_takes_no_arguments_of_that_of_fresh_ones():
    recipe = replace(
        PLAIN, advantage="group_std", advantage_args=pairs(eps=0.5),
        replay=Replay(1, 0.5, advantage="group_mean"),
    )  # fmt: skip
    world, theta, learner = one_learner(recipe, BANDIT)
    for step in range(2):
        rollout = mix_rollouts((learner,), theta, world.generate(theta, step), step)
    batch = learner.batch(theta, rollout, world.logp(theta, rollout), 1)
    reward = rollout.reward_RB.view(4, 4)
    own = reward - reward.mean(1, keepdim=True)
    fresh = (rollout.origin_RB == ROLLOUT).view(4, 4)
    assert 0 < fresh.sum() < 16
    expected = torch.where(fresh, own / (reward.std(1, keepdim=True) + 0.5), own)
    torch.testing.assert_close(batch.adv_BT[0, :, 0], expected.flatten())


def test_each_block_ends_with_its_own_last_pass_and_a_lost_replica_stays_lost():
    runs = (CHAIN, replace(CHAIN, seed=1))
    world = build_world(runs)
    theta = world.initial()
    made = [replace(PPO, passes=passes, anchor="current") for passes in (1, 3)]
    blocks = [RecipeBlock(recipe, slice(i, i + 1)) for i, recipe in enumerate(made)]
    learners = tuple(Learner(b, world, theta[b.rows], runs[b.rows]) for b in blocks)
    trainer = Trainer(world, learners, torch.full((2,), 0.5, dtype=torch.float64))
    rollout = world.generate(theta, 0)
    first = trainer.first_pass(theta, rollout, 0)
    after = trainer.learn(State.start(theta), rollout, first, 0)
    assert torch.equal(learners[0].last_pass[0], first.logp_RBT[:1])
    assert not torch.equal(learners[1].last_pass[0], first.logp_RBT[1:])
    torch.testing.assert_close(after.theta_RP[0], theta[0] - 0.5 * first.grad_RP[0], rtol=0, atol=1e-15)
    lost = trainer.take_step(State(theta, torch.tensor([True, False])), first, 0)
    assert lost.alive_R.tolist() == [True, False]
    assert torch.equal(lost.theta_RP[1], theta[1])
    bad = trainer.take_step(
        State(theta, torch.tensor([True, True])), replace(first, finite_R=~lost.alive_R), 1
    )
    assert bad.alive_R.tolist() == [True, True]  # the first has no second pass
    momentum = State(theta, torch.tensor([True, True]))
    for learner in learners:
        learner.optimizer = OPTIMIZERS["adam"](theta[learner.rows])
    moving = trainer.take_step(momentum, first, 0)
    frozen = trainer.take_step(replace(moving, alive_R=torch.tensor([True, False])), first, 0)
    assert torch.equal(frozen.theta_RP[1], moving.theta_RP[1])  # whatever its optimizer remembers
    assert not torch.equal(lost.theta_RP[0], theta[0])


def test_hyperparameters_follow_their_schedule():
    recipe = replace(
        PPO, objective_args=pairs(eps_low=0.2), schedules=(("eps_high", lambda step, steps: step / steps),)
    )
    assert recipe.hyper(3, 6) == {"eps_low": 0.2, "eps_high": 0.5}
    assert one_learner(recipe)[2].hyper(2)["eps_high"] == 2 / CHAIN.steps
    both = replace(recipe, objective_args=pairs(eps_low=0.2, eps_high=0.9))
    assert both.hyper(3, 6)["eps_high"] == 0.5  # the schedule's, not the argument


def test_a_replica_that_is_lost_does_not_stop_the_others():
    world, theta, learner = one_learner(replace(PPO, anchor="current"))
    rollout = world.generate(theta, 0)
    logp = world.logp(theta, rollout)
    one = logp.clone()
    one[0, 2, 1] = torch.nan  # a single token is enough
    batch = learner.batch(theta, rollout, one, 0)
    assert torch.equal(batch.logp_anchor_BT, rollout.logp_mu_RBT)
    lost = torch.full_like(logp, torch.nan).requires_grad_()
    assert torch.isnan(PPO.loss(lost, batch, {})).all()
    assert torch.equal(finite_or(torch.cat([one, logp - 1]), torch.cat([logp] * 2))[1:], logp - 1)


@pytest.mark.parametrize("norm", ["score", "proxy"])
def test_the_optimal_baseline_gets_the_norm_it_asks_for(norm):
    recipe = replace(PLAIN, advantage="optimal_baseline", advantage_args=pairs(norm=norm))
    assert ("score_norm_B" in recipe.needs, "score_norm_BT" in recipe.needs) == (
        norm == "score",
        norm == "proxy",
    )
    world, theta, learner = one_learner(recipe, BANDIT)
    theta = moved(theta)
    rollout = world.generate(theta, 0)
    batch = learner.batch(theta, rollout, world.logp(theta, rollout), 0)
    # On one step the logits are the weights: both norms are the same, and so is the baseline.
    n = world.score_norm(theta, rollout)[0, :, 0]
    reward, group = rollout.reward_RB[0], torch.arange(16) // 4
    for g in range(4):
        own = group == g
        b = (n[own] * reward[own]).sum() / n[own].sum()
        torch.testing.assert_close(batch.adv_BT[0, own, 0], reward[own] - b)


@pytest.mark.parametrize("anchor", ["behavior", "current"])
def test_the_anchor_is_the_behavior_policy_or_the_weights_at_the_start_of_the_step(anchor):
    world, theta, learner = one_learner(replace(PPO, anchor=anchor))
    rollout = world.generate(theta, 0)
    logp = world.logp(moved(theta), rollout)
    batch = learner.batch(moved(theta), rollout, logp, 0)
    assert torch.equal(batch.logp_anchor_BT, logp if anchor == "current" else rollout.logp_mu_RBT)


def test_after_a_step_the_dual_variable_and_the_averaged_anchor_are_those_of_the_step():
    dual = replace(PPO, objective="r2vpo", dual=Dual(0.1, 0.0), passes=2)
    averaged = replace(PPO, anchor="ewma", anchor_args=pairs(decay=0.5))
    for recipe in (dual, averaged):
        world, theta, learner = one_learner(recipe)
        rollout, trainer = world.generate(theta, 0), trainer_of(world, learner)
        after = trainer.learn(State.start(theta), rollout, trainer.first_pass(theta, rollout, 0), 0).theta_RP
        if recipe is dual:
            logp, batch, _ = learner.last_pass
            start = torch.tensor([0.04], dtype=logp.dtype)
            expected = dual_step(start, logp, batch, rate=0.1, budget=0.0)
            assert expected > start
            assert learner.hyper(1)["lam"].flatten().tolist() == expected.tolist()
            learner.update_dual(logp, batch, 1)
            again = dual_step(expected, logp, batch, rate=0.1, budget=0.0)
            assert learner.hyper(2)["lam"].flatten().tolist() == again.tolist()
        else:
            torch.testing.assert_close(learner.anchor.total_CP, 0.5 * theta + after, rtol=0, atol=1e-15)


def test_an_objective_names_its_dual_variable_and_others_cannot_be_given_one(monkeypatch):
    def halved(value, logp, batch, *, rate, budget):
        return value * rate - budget

    given = {**objective["ppo_clip"].promises, "dual": DualUpdate("eps_low", halved)}
    monkeypatch.setitem(objective._entries, "ppo_clip", replace(objective["ppo_clip"], promises=given))
    world, theta, learner = one_learner(replace(PPO, objective="ppo_clip", dual=Dual(0.5, 0.01)))
    rollout, trainer = world.generate(theta, 0), trainer_of(world, learner)
    trainer.learn(State.start(theta), rollout, trainer.first_pass(theta, rollout, 0), 0)
    assert learner.hyper(1)["eps_low"].flatten().tolist() == [0.5 * 0.2 - 0.01]
    with pytest.raises(UserError, match="objective 'reinforce' has no dual variable"):
        replace(PPO, objective="reinforce", dual=Dual(0.1, 0.0))


def test_advantages_that_read_the_log_ratio_get_pi_over_mu():
    world, theta, learner = one_learner(replace(PLAIN, advantage="importance_mean"))
    rollout = world.generate(theta, 0)
    logp = world.logp(moved(theta), rollout)
    batch = learner.batch(theta, rollout, logp, 0)
    w = ((logp - rollout.logp_mu_RBT) * rollout.mask_RBT).sum(-1).exp().clamp(max=2).view(4, 4)
    reward = rollout.reward_RB.view(4, 4)
    expected = reward - (w * reward).sum(1, keepdim=True) / w.sum(1, keepdim=True)
    torch.testing.assert_close(batch.adv_BT[0, :, 0].view(4, 4), expected)
    hidden = replace(rollout, mask_RBT=torch.rand(rollout.mask_RBT.shape) < 0.5)
    ratio = logp - rollout.logp_mu_RBT
    assert torch.equal(log_ratio(logp, hidden), ratio.masked_fill(~hidden.mask_RBT, 0.0))
