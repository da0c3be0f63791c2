"""Critics in the loop: what they come to, what they are refused for, what two say together."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.config.run import Run
from testbed.critics import critic
from testbed.critics.fitted import Fit, Table, explained, soft_minimum, truncated
from testbed.data.rollout import Rollout
from testbed.data.signals import Signals
from testbed.execution.preflight import prepare
from testbed.training.learner import critic_signals
from testbed.training.loop import train_pack
from testbed.worlds.build_world import build_world

GAME = Run(
    task="tree", task_args=(("task", "guess"),), recipe="ppo", critic="table", prompts=8, group=8, steps=4,
    log_every=1,
)  # fmt: skip
TOY = Run(
    task="guess", task_args=(("base", 2), ("digits", 1), ("turns", 2)), policy="toy",
    policy_args=(("heads", 2), ("layers", 1), ("width", 8)), recipe="ppo", critic="head", prompts=4, group=4,
    steps=3, log_every=1, evaluation_prompts=4,
)  # fmt: skip


def taught(run: Run, lessons: int, **given: object):
    """A critic that has seen batches of the uniform policy, its last batch, its world and the weights."""
    world = build_world((run,))
    theta_CP = world.initial()
    made = critic[run.critic].bind(**given)(world, theta_CP, (run.seed,))
    for step in range(lessons):
        rollout = world.generate(theta_CP, step)
        logp_CBT = world.logp(theta_CP, rollout).detach()
        found = critic_signals(made.values(theta_CP, rollout), logp_CBT, rollout)
        made.learn(theta_CP, rollout, Signals(rollout.reward_RB, rollout.groups(), rollout.mask_RBT, **found))
    return made, rollout, world, theta_CP


@pytest.mark.slow
def test_a_table_comes_to_the_exact_values_of_the_states_it_visits():
    made, rollout, world, theta_CP = taught(replace(GAME, prompts=32), 150, rate=0.05)
    exact_CBT = critic["exact"].bind()(world, theta_CP, (0,)).values(theta_CP, rollout)
    error_CBT = (made.values(theta_CP, rollout) - exact_CBT).abs()[rollout.mask_RBT]
    start_CBT = exact_CBT[rollout.mask_RBT].abs()
    assert error_CBT.mean() < 0.25 * start_CBT.mean()


@pytest.mark.parametrize("name", ["head", "model"])
def test_a_fitted_critic_explains_more_after_lessons_than_before(name):
    run = replace(TOY, critic=name)
    first, *_ = taught(run, 1)
    later, *_ = taught(run, 12, passes=4)
    assert later.noted["critic/vf_loss"] < first.noted["critic/vf_loss"]


def test_the_lesson_of_a_critic_does_not_move_the_policy():
    still = train_pack((replace(TOY, learning_rate=0.0),))
    assert len(set(still["accuracy"].tolist())) == len(set(still["val/entropy"].tolist())) == 1
    assert len(set(still["critic/vf_loss"].tolist())) == 3


def test_a_value_clip_bounds_how_far_values_move_in_a_lesson():
    moved = {}
    for clip in (0.0, 1e-3):
        made, rollout, _, theta_CP = taught(replace(GAME, steps=1), 1, rate=0.05, passes=20, clip=clip)
        moved[clip] = made.values(theta_CP, rollout).abs().max()
    # The loss is flat beyond the clip, so that the last step that is within it may still cross it.
    assert moved[1e-3] <= 0.05 * 20
    assert moved[1e-3] < 0.7 * moved[0.0]


def test_truncated_responses_go_on_with_their_last_value():
    signals = Signals(
        torch.tensor([0.0]), torch.tensor([0]), torch.ones(1, 3, dtype=torch.bool),
        log_rho_BT=torch.zeros(1, 3), value_BT=torch.tensor([[0.2, 0.5, 0.7]]),
        truncated_B=torch.tensor([True]),
    )  # fmt: skip
    torch.testing.assert_close(Fit(0.1).target(signals), torch.full((1, 3), 0.7))
    ended = replace(signals, truncated_B=torch.tensor([False]))
    torch.testing.assert_close(Fit(0.1).target(ended), torch.zeros(1, 3))


def test_a_soft_minimum_lies_between_the_least_and_the_mean():
    value_HCBT = torch.tensor([0.1, 0.9]).reshape(2, 1, 1, 1)
    soft = [float(soft_minimum(value_HCBT, s)) for s in (1e-3, 0.1, 1.0, 1e3)]
    assert soft == sorted(soft)
    assert soft[0] == pytest.approx(0.1, abs=1e-3)
    assert soft[-1] == pytest.approx(0.5, abs=1e-3)


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_the_mean():
    target_CBT, mask_CBT = torch.tensor([[[0.0, 1.0, 7.0]]]), torch.tensor([[[True, True, False]]])
    name = "critic/vf_explained_var"
    assert explained(target_CBT, target_CBT, mask_CBT)[name] == 1
    assert explained(torch.full_like(target_CBT, 0.5), target_CBT, mask_CBT)[name] == 0


def test_cells_train_alike_stacked_or_alone_with_a_critic():
    runs = tuple(replace(GAME, seed=seed, lag=lag) for seed, lag in ((0, 0), (1, 2)))
    together = train_pack(runs)["exact/value"]
    alone = np.concatenate([train_pack((run,))["exact/value"] for run in runs])
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize(
    "run",
    [Run(recipe="st_ppo"), Run(recipe="ppo"), Run(recipe="grpo", critic="table"),
     Run(critic_args=(("rate", 0.1),)), replace(TOY, critic="table"), replace(GAME, critic="tabel"),
     replace(GAME, critic_args=(("rat", 1.0),)),
     replace(TOY, task_args=(), policy_args=(("roles", "separate"),)),
     replace(GAME, recipe_args=(("advantage", "gea"),))],
)  # fmt: skip
def test_what_a_recipe_or_a_critic_lacks_is_refused_beforehand(run):
    refuses(".", prepare, [run])


@pytest.mark.parametrize("name", ["table", "head", "model"])
def test_what_is_given_to_a_critic_is_given_to_its_fit(name):
    given = {
        "rate": 0.3,
        "lam": 0.5,
        "gamma": 0.25,
        "off_policy": True,
        "passes": 3,
        "first": 2,
        "clip": 0.75,
    }
    made, rollout, *_ = taught(replace(GAME if name == "table" else TOY, critic=name), 1, **given, replay=4)
    assert (truncated(rollout).dtype, bool(truncated(rollout).any())) == (torch.bool, False)
    assert made.fit == Fit(**given, replay=4)
    assert made.stored.maxlen == 4


@pytest.mark.parametrize("given", [{"rate": 0.0}, {"rate": 1.0, "lam": 2.0}, {"rate": 1.0, "passes": 0}])
def test_a_fit_that_is_none_is_refused(given):
    refuses("expected", Fit, **given)


@pytest.mark.parametrize("cut", [None, [True, False, True]])
def test_a_stored_batch_has_the_ratios_and_values_of_today(cut):
    mask_RBT = torch.tensor([[[True, True], [True, False], [False, False]]])
    logp_RBT, mu_RBT = torch.tensor([[[-1.0, -2], [-3, -4], [-5, -6]]]), torch.full((1, 3, 2), -0.5)
    prompt_RNQ, reward_RB = torch.zeros(1, 3, 1), torch.tensor([[1.0, 0.5, 0.25]])
    rollout = Rollout(
        prompt_RNQ,
        torch.zeros(1, 3, 2).long(),
        mask_RBT,
        mu_RBT,
        reward_RB,
        1,
        state_RBT=torch.tensor([[[2, 1], [0, 2], [1, 1]]]),
        truncated_RB=None if cut is None else torch.tensor([cut]),
    )
    world = SimpleNamespace(logp=lambda theta_CP, stored: theta_CP * logp_RBT)
    made = Table(world, torch.tensor([[10.0, 20.0, 30.0]]), Fit(rate=0.1))
    found = made._signals(torch.tensor([[2.0]]), rollout)
    assert found.log_rho_BT.tolist() == [[[-1.5, -3.5], [-5.5, 0.0], [0.0, 0.0]]]
    assert found.value_BT.tolist() == [[[30.0, 20.0], [10.0, 0.0], [0.0, 0.0]]]
    assert found.truncated_B.tolist() == [cut or [False] * 3]
    assert torch.equal(found.reward_B, rollout.reward_RB)
    assert torch.equal(found.group_B, rollout.groups())
    assert torch.equal(found.mask_BT, mask_RBT)
