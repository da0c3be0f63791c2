"""What runs log of pi itself on held-out prompts, and how many sequences they have used."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from support.small_runs import SUMS

from envs.tokens.running_sum import RunningSum
from testbed.config.run import Run
from testbed.data.held_out import HeldOut
from testbed.data.rollout import Rollout
from testbed.diagnostics.held_out_metrics import (
    difficulty_metrics,
    held_out_metrics,
    pass_metrics,
    start_metrics,
)
from testbed.diagnostics.metric_names import METRICS
from testbed.training.loop import train
from testbed.training.recorder import sequence_tails
from testbed.worlds.build_world import build_world

TOY = dataclasses.replace(SUMS, steps=7, group=8, learning_rate=0.05, evaluation_prompts=6)


@pytest.fixture(scope="module")
def table():
    return train(TOY)


def test_every_metric_that_a_run_logs_is_defined(table):
    chain = train(Run(task="chain", steps=3, lag=1))
    fields = {item.name for item in dataclasses.fields(Run)} | {"cell", "step"}
    assert {*table, *chain} - fields <= set(METRICS)


def test_every_fourth_row_and_the_last_have_pass_at_k_and_a_larger_k_never_less(table):
    passed = np.array([table[f"val/pass@{k}"] for k in (1, 2, 4, 8)])
    assert np.isfinite(passed).all(0).tolist() == [True, False, False, False, True, False, True]
    seen = passed[:, np.isfinite(passed[0])]
    assert (np.diff(seen, axis=0) >= 0).all()
    assert (seen[0] > 0).all()


def test_at_the_first_row_the_policy_is_where_it_started_and_then_it_leaves(table):
    for name in ("val/kl_start_k1", "val/kl_start_k3"):
        assert abs(table[name][0]) < 1e-6
    assert (table["val/kl_start_k3"][1:] > 1e-4).all()


def test_the_kl_to_the_start_is_unbiased_over_all_tokens():
    pi, start = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    # One response of one token per symbol, repeated in exact proportion to pi.
    index = np.repeat(np.arange(3), [5, 3, 2])
    one = torch.ones(1, 10, 1, dtype=torch.int64)
    logp, logp_start = (torch.from_numpy(np.log(law[index])).reshape(1, 10, 1) for law in (pi, start))
    answers = Rollout(one, one, one.bool(), logp, one[..., 0].double(), 1)
    exact = pi @ np.log(pi / start)
    for value in start_metrics(answers, logp_start).values():
        assert float(value) == pytest.approx(exact, abs=1e-12)


def test_length_and_entropy_are_those_of_fresh_samples(table):
    assert (table["val/response_length"] == 2).all()
    world = build_world((TOY,))
    theta = world.initial()
    answers = world._evaluation(theta, world._held_out_prompts())
    exact = world.entropy(theta, answers).mean()
    assert table["val/entropy"][0] == pytest.approx(float(exact), abs=0.15)
    assert table["accuracy"][0] == world.accuracy(theta)[0]


def test_pass_at_k_takes_new_samples_for_the_same_prompts():
    world = build_world((TOY,))
    theta, prompts = world.initial(), world._held_out_prompts()
    accuracy, extra = world._evaluation(theta, prompts), world._evaluation(theta, prompts, world.passes_R)
    assert torch.equal(accuracy.prompt_RNQ, extra.prompt_RNQ)
    assert not torch.equal(accuracy.token_RBT, extra.token_RBT)


@pytest.mark.parametrize(
    ("changes", "per_step"),
    [({}, 32), ({"staleness": "replay", "staleness_args": (("share", 0.5), ("reuse", 2))}, None),
     ({"recipe": "remax"}, 32 + 4)],
)  # fmt: skip
def test_rollouts_count_what_was_generated(changes, per_step):
    table = train(dataclasses.replace(TOY, **changes))
    step = np.arange(1, TOY.steps + 1)
    if per_step is None:
        assert table["rollouts"].tolist() == (32 + 16 * (step - 1)).tolist()
    else:
        assert table["rollouts"].tolist() == (per_step * step).tolist()


def test_accuracy_by_difficulty_by_hand():
    reward = np.array([[[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]])
    found = difficulty_metrics(reward, np.array([[1, 2, 2], [1, 1, 1]]), (1, 2))
    assert found["val/accuracy_difficulty_1"].tolist() == pytest.approx([1.0, 5 / 6])
    second = found["val/accuracy_difficulty_2"].tolist()
    assert second[0] == 0.25
    assert math.isnan(second[1])


def test_a_task_that_grades_its_prompts_has_accuracy_by_difficulty(monkeypatch):
    monkeypatch.setattr(RunningSum, "difficulties", (0, 1))
    monkeypatch.setattr(RunningSum, "difficulty", lambda self, prompt_NQ: prompt_NQ[:, 0])
    world = build_world((TOY,))
    theta = world.initial()
    found = held_out_metrics(world.held_out(theta, theta, 0, last=False))
    level = world._held_out_prompts()[0, :, 0]
    parts = [found[f"val/accuracy_difficulty_{d}"][0] * (level == d).sum() for d in (0, 1)]
    assert sum(parts) / len(level) == pytest.approx(float(found["accuracy"][0]))


def answered(reward_NG, length=2):
    """Answers to N prompts with these rewards; every second token is unused."""
    reward_RB = torch.tensor(reward_NG).reshape(1, -1)
    mask_RBT = torch.tensor([True, False]).expand(*reward_RB.shape, length)
    token_RBT, group = torch.zeros(mask_RBT.shape, dtype=torch.int64), len(reward_NG[0])
    logp_RBT = torch.where(mask_RBT, -0.5 - 0.25 * torch.arange(reward_RB.numel())[:, None], 99.0)
    return Rollout(torch.zeros(1, len(reward_NG), 1).long(), token_RBT, mask_RBT, logp_RBT, reward_RB, group)


def test_the_metrics_of_three_prompts_of_which_two_were_asked_more():
    answers, more = answered([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), answered([[0.0, 0.0], [1.0, 0.0]])
    drawn = HeldOut(
        {"proxy": 7.0}, answers, answers.logp_mu_RBT[:, :4] - 1, more, np.array([[1, 1, 2]]), (1, 2)
    )
    found = {name: float(np.asarray(value).item()) for name, value in held_out_metrics(drawn).items()}
    # Of the first two prompts 1 of 4 answers is right each: any 1, 2, 4 of them hold it with 1/4, 1/2, 1.
    passed = {
        f"val/{name}@{k}": share for name in ("pass", "max") for k, share in ((1, 0.25), (2, 0.5), (4, 1))
    }
    assert found == pytest.approx(passed | {
        "proxy": 7.0, "accuracy": 0.5, "val/response_length": 1.0, "val/entropy": 0.5 + 0.25 * 2.5,
        "val/kl_start_k1": 1.0, "val/kl_start_k3": math.exp(-1),
        "val/accuracy_difficulty_1": 0.25, "val/accuracy_difficulty_2": 1.0,
    })  # fmt: skip


def test_few_samples_give_no_pass_at_a_larger_k():
    assert set(pass_metrics(np.ones((1, 2, 2)))) == {"val/pass@1", "val/pass@2", "val/max@1", "val/max@2"}


def test_tails_of_sequence_ratios_leave_out_weights_without_a_number():
    log_w = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 200)))
    lost = torch.cat([log_w, torch.tensor([[math.nan, math.inf]])], 1)
    found, again = sequence_tails(log_w), sequence_tails(lost)
    for name, value in found.items():
        assert np.isfinite(value).all()
        assert value.tolist() == again[name].tolist()
    assert all(np.isnan(v).all() for v in sequence_tails(torch.zeros(1, 200)).values())
    assert all(np.isnan(v).all() for v in sequence_tails(torch.full((1, 9), -math.inf)).values())
