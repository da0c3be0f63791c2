"""Runs whose batches are changed are the project's own runs where nothing is changed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from analysis.experiments.experts import distinct_pairs, entropy_range, sparse_arms
from analysis.experiments.rewards import dataset_resets, reward_arms
from analysis.experiments.rewards.target_entropy import targeted
from analysis.experiments.teachers.self_rewarded_training import Shown, self_rewarded
from analysis.experiments.teachers.teacher_training import distilled
from analysis.worlds.edited_training import Arm, sweep, trained
from envs.tokens.running_sum import RunningSum
from testbed.config.run import Run
from testbed.data.batch import Batch
from testbed.data.rollout import Rollout
from testbed.training.loop import train_pack

TINY = Run(
    task="running-sum", task_args=(("digits", 3), ("modulus", 3)), policy="toy", prompts=4, group=4, steps=3,
    policy_args=(("heads", 1), ("layers", 1), ("width", 8)), warm_start_steps=5, log_every=1,
    learning_rate=1e-2, evaluation_prompts=4, optimizer="adam",
)  # fmt: skip
PPO = replace(TINY, recipe="ppo", recipe_args=(("passes", 2),), critic="head")
SPEAR = replace(TINY, recipe="spear", recipe_args=(("share", 0.5), ("warm_up", 1)))


def numbers(frame) -> pd.DataFrame:
    return pd.DataFrame(frame).select_dtypes("number")


@pytest.mark.parametrize("run", [PPO, SPEAR, replace(TINY, guide="rescue")], ids=["ppo", "spear", "guide"])
def test_an_arm_without_a_change_is_the_run_itself(run):
    cells = (run, replace(run, seed=1))
    pd.testing.assert_frame_equal(numbers(trained(Arm(run), cells)), numbers(train_pack(cells)))


def test_bent_rewards_reach_the_critic_and_a_change_reaches_the_loss():
    plain, bent = (trained(Arm(PPO, bend=bend), (PPO,)) for bend in (None, lambda reward: 10 * reward + 5))
    assert bent["critic/vf_loss"][0] > 20 > plain["critic/vf_loss"][0]
    still = Arm(TINY, lambda world, start: lambda batch, *_: replace(batch, adv_BT=0 * batch.adv_BT))
    assert (trained(still, (TINY,))["actor/grad_norm"] == 0).all()


def test_early_samples_are_the_start_s_and_weights_may_begin_elsewhere():
    seen = []

    def note(batch, rollout, logp, step):
        seen.append(bool((batch.logp_mu_BT - logp).abs().max() < 1e-4))
        return batch

    trained(Arm(replace(TINY, seed=3), lambda world, start: note, early=2), (replace(TINY, seed=3),))
    assert seen[1:] == [False, True]
    moved = Arm(TINY, begin=lambda world, base: base + 1.0)
    assert trained(moved, (TINY,))["val/entropy"][0] != trained(Arm(TINY), (TINY,))["val/entropy"][0]


def test_a_sweep_has_a_row_per_arm_and_seed():
    found = sweep({"a": Arm(TINY), "b": Arm(TINY)}, ("accuracy", "val/proxy"), {"a": 1e-3, "b": 1e-2}, (0, 1))
    assert list(found["arm"]) == ["a", "a", "b", "b"]
    assert found["val/proxy"].isna().all()


def a_batch(adv, reward, tokens, origin=None):
    """One replica with one group, and the rollout behind it."""
    adv_BT, token_RBT = torch.tensor([adv], dtype=torch.float64), torch.tensor([tokens])
    mask_RBT, reward_RB = torch.ones_like(token_RBT, dtype=torch.bool), torch.tensor([reward]).double()
    rollout = Rollout(torch.zeros(1, 1, 2, dtype=torch.int64), token_RBT, mask_RBT, 0 * adv_BT, reward_RB,
                      len(reward))  # fmt: skip
    origin_B = None if origin is None else torch.tensor([origin])
    batch = Batch(0 * adv_BT, adv_BT, mask_RBT, reward_RB, rollout.groups(), origin_B=origin_B)
    return batch, rollout


def test_the_clip_drops_a_share_of_tokens_among_those_of_high_covariance():
    adv, on = torch.zeros(1, 4, 25, dtype=torch.float64), torch.ones(1, 4, 25, dtype=torch.bool)
    logp, on[0, 3] = torch.zeros_like(adv), False
    logp[0, 3], adv[0, 3] = 99.0, 99.0  # high, but not among the tokens that count
    for place in ((0, 0, 3), (0, 2, 5), (0, 1, 7)):
        adv[place], logp[place] = 9.0, 9.0
    key = torch.full_like(adv, 0.1).masked_fill(adv == 9.0, 0.5)
    key[0, 0, 3], key[0, 2, 5] = 0.9, 0.2
    found = entropy_range.covarying(adv, logp, on, key)
    assert found.nonzero().tolist() == [[0, 1, 7], [0, 2, 5]]  # 75 tokens: the two below rank 1.5


def test_a_complete_guess_adds_a_tenth_to_the_reward_that_is_standardized():
    _, rollout = a_batch([[0.0] * 5] * 3, [0, 1, 0], [[1, 1, 0, 2, 2], [1, 1, 3, 3, 3], [3] * 5])
    for fade, reward in ((0.0, [0.0, 1.0, 0.0]), (1.0, [0.2, 1.1, 0.0])):
        wanted = (np.array(reward) - np.mean(reward)) / np.std(reward, ddof=1)
        assert entropy_range.standardized(rollout, fade)[0].numpy() == pytest.approx(wanted, rel=1e-5)


def test_a_pair_of_alike_scores_leaves_the_sum_that_the_advantage_is():
    reward, score = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1.0, 0.75, 0.25])
    far = distinct_pairs.rectified(reward, score, 0.5)
    assert far.tolist() == pytest.approx([1 / 3**0.5, 0, -1 / 3**0.5], rel=1e-5)
    _, rollout = a_batch([[0.0]] * 3, [1, 0, 0], [[3]] * 3)
    every = distinct_pairs.rectified(reward, score, 0.25)
    assert every.tolist() == pytest.approx(entropy_range.standardized(rollout, 0.0)[0].tolist(), rel=1e-5)


class Still:
    """A world whose start gave every token a log-probability of -1."""

    def logp(self, theta, rollout):
        return torch.full((1, 2, 3), -1.0, dtype=torch.float64)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_threshold_charges_only_what_a_running_kl_exceeds_it_by(frozen):
    change = reward_arms.thresholded(0.1, frozen)(Still(), torch.zeros(1, 4).double())
    batch, rollout = a_batch([[0.0] * 3] * 2, [0, 1], [[0] * 3] * 2)
    far = torch.full((1, 2, 3), -0.2).double()
    charges = [float(change(batch, rollout, far, step).adv_BT[0, 0, 0]) for step in range(4)]
    assert charges[0] == 0 > charges[2] > charges[3]  # a running KL of .08, .15, .22 and .28 nats
    gate = 1 if frozen else 0.2 / 0.3
    assert not frozen or np.isclose(charges[2], -2 * (0.8 * 0.271 - 0.15) * gate * 0.8)


@pytest.mark.parametrize("slope", [-2.0, 0.0, 2.0])
def test_a_threshold_is_a_controllers_times_the_phases_within_its_bounds(slope):
    reward_T = slope * np.arange(40) + np.random.default_rng(0).normal(0, 0.2, 40)
    threshold, mean, total, before, levels = reward_arms.Threshold(0.1), reward_T[0], 0.0, 0.0, []
    for step, reward in enumerate(reward_T):
        moved = 0.05 * (reward - mean)
        mean, error = mean + moved, moved - 0.01
        total = min(max(total + error, -1), 1)
        factor, past = 1.5, reward_T[: step + 1]
        if step > 14:
            factor = 1.2 if past[-8:].mean() > past[-16:-8].mean() + 0.1 else 0.8
        level = factor * (0.1 + 0.3 * error + 0.01 * total + 0.05 * (error - before))
        before = error
        levels.append(float(threshold.level(torch.tensor([reward]))))
        assert levels[-1] == pytest.approx(min(max(level, 0.1 / 3), 0.2), abs=1e-6)
    assert max(levels) == 0.2 if slope > 0 else min(levels) >= 0.1 / 3


def test_the_second_half_is_rewarded_by_the_later_run_s_verifier():
    seen = []
    lenient = replace(TINY, verifier="lenient", verifier_args=(("rate", 1.0),))
    arm = Arm(replace(TINY, steps=4), watched_rewards(seen), later=lenient)
    trained(arm, (replace(arm.run, learning_rate=1e-9),))
    assert [bool((reward == 1).all()) for reward in seen] == [False, False, True, True]


def watched_rewards(seen):
    """Note the rewards of every batch."""

    def make(world, start):
        def change(batch, rollout, logp, step):
            seen.append(rollout.reward_RB)
            return batch

        return change

    return make


def test_self_rewards_are_the_log_ratio_of_two_models():
    run, shown, seen = replace(TINY, steps=1, learning_rate=1e-3), Shown(4, below=2), []

    def watched(world, base):
        sft = shown(world, base)
        ways = [self_rewarded(shown, 0.0, **m)(world, base) for m in ({}, {"base": False}, {"own": False})]

        def both(rollout, logp):
            known = world.logp(sft, rollout).sum(-1)
            gain = known - world.logp(base, rollout).sum(-1)
            for reward, meant in zip(ways, (gain, known, gain.roll(4, 1)), strict=True):
                torch.testing.assert_close(reward(rollout, logp), meant)
                seen.append(meant)
            return gain

        return both

    trained(Arm(run, reward=watched, begin=shown), (run,))
    assert len(seen) == 3


def rolled(arm, seen):
    """Run an arm and note prompts, masks and tokens of its rollouts."""

    def watch(world, start):
        inner = arm.change(world, start) if arm.change else lambda batch, *_: batch

        def change(batch, rollout, logp, step):
            seen.append(rollout)
            return inner(batch, rollout, logp, step)

        return change

    return trained(replace(arm, change=watch), (replace(arm.run, seed=4),))


@pytest.mark.parametrize("shortest", [False, True])
def test_prefixes_of_known_traces_are_given_to_a_share_of_training_prompts(shortest):
    run, seen = replace(TINY, task_args=(("digits", 5), ("modulus", 3)), steps=4), []
    rolled(sparse_arms.known(run, share=0.5, shortest=shortest), seen)
    task = RunningSum(digits=5, modulus=3)
    prompt_RKQ, token_RKT = sparse_arms.traces(task, (4,))
    known = {tuple(prompt): trace for prompt, trace in zip(prompt_RKQ[0], token_RKT[0], strict=True)}
    for rollout in seen:
        kept_NG = (~rollout.mask_RBT[0]).sum(-1).unflatten(0, (4, 4))
        assert (kept_NG == kept_NG[:, :1]).all()
        assert (kept_NG[2:] == 0).all()
        assert ((kept_NG[:2] >= (1 if shortest else 2)) & (kept_NG[:2] <= 4)).all()
        for n, prompt in enumerate(rollout.prompt_RNQ[0].tolist()):
            kept = int(kept_NG[n, 0])
            assert rollout.token_RBT[0, 4 * n, :kept].tolist() == known[tuple(prompt)][:kept].tolist()


def test_stored_resets_go_to_the_answer_that_is_rewarded_most():
    found = SimpleNamespace(
        reward_RB=torch.tensor([[0.0, 1, 3, 2]]), token_RBT=torch.arange(8).reshape(1, 4, 2)
    )
    asked = SimpleNamespace(prompt_RNQ=np.zeros((1, 3, 2)), group=2, step=0, collect=lambda *_: found)
    assert dataset_resets.preferred(asked, 2).token_RNT.tolist() == [[[2, 3], [4, 5]]]


def test_lessons_on_traces_raise_their_likelihood():
    run = replace(TINY, steps=1, learning_rate=1e-9)
    right = []
    for lessons in (0, 60):
        right.append(float(trained(sparse_arms.known(run, lessons=lessons), (run,))["accuracy"][0]))
    assert right[1] > right[0]


def test_oneself_with_the_solution_in_view_is_a_teacher_and_without_it_none():
    run = replace(TINY, task="hinted-sum", group=1, steps=3)
    norms = [
        trained(Arm(run, distilled(shown=shown)), (run,))["actor/grad_norm"].to_numpy()
        for shown in (True, False)
    ]
    assert (norms[0] > 1e-3).all()
    assert norms[1][0] < 1e-6  # Adam takes whole steps of what rounding leaves


@pytest.mark.parametrize(("aim", "heat"), [(5.0, 1.2), (0.0, 0.8)])
def test_dcpo_weights_right_answers_by_the_ratio_of_its_target(aim, heat):
    logit_V, token_RBT = torch.tensor([0.3, -1.0, 0.8]).double(), torch.tensor([[[0, 2], [1, 2]]])

    class Heated:
        temperature = 1.0

        def logp(self, *_):
            return (logit_V / torch.as_tensor(self.temperature).flatten()).log_softmax(-1)[token_RBT]

    logp, adv, mask = Heated().logp(), torch.tensor([[[2.0] * 2, [-3.0] * 2]]), token_RBT >= 0
    right = torch.tensor([[1.0, 0.0]])
    batch = Batch(logp, adv, mask, right, torch.zeros(1, 2, dtype=torch.int64))
    seen = SimpleNamespace(
        mask_RBT=mask, logp_mu_RBT=logp, token_RBT=token_RBT, prompt_RNQ=None, reward_RB=right
    )
    world = SimpleNamespace(policy=Heated())
    found = targeted(aim, world, None, batch, seen).adv_BT
    a, hot = 0.1 / (0.1 + 0.5), (logit_V / heat).log_softmax(-1)[token_RBT]
    np.testing.assert_allclose(found[0, 0], (1 - a) * 2 + a * (hot - logp).exp()[0, 0])
    np.testing.assert_allclose(found[0, 1], (1 - a) * adv[0, 1])
