"""Teachers and guides: who answers, what a student reads of it, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.config.run import Run
from testbed.data.batch import EXPERT, REPLAY
from testbed.execution.preflight import check_arguments
from testbed.staleness.schedule_plan import Generated
from testbed.teachers import build_teacher
from testbed.teachers.guides import GuidedSource, OwnSuccesses, failed, guide_for
from testbed.training.loop import train
from testbed.worlds.build_world import build_world

TREE = Run(
    task="tree", task_args=(("task", "running-sum"),), prompts=8, group=4, steps=60, log_every=20,
    learning_rate=1.0,
)  # fmt: skip
HINTED = Run(
    task="hinted-sum", task_args=(("digits", 3), ("modulus", 3)), policy="toy", prompts=2, group=3, steps=2
)


def placed(run: Run):
    world = build_world((run,))
    theta_RP = world.initial()
    return world, theta_RP, build_teacher((run,), world, theta_RP)


def changed(run: Run, **fields) -> Run:
    arguments = {k: tuple(v.items()) if isinstance(v, dict) else v for k, v in fields.items()}
    return dataclasses.replace(run, **arguments)


def test_the_soft_optimum_of_a_tree_beats_the_student_and_teaches_it():
    run = changed(TREE, recipe="opd", teacher="values")
    world, theta_RP, teacher = placed(run)
    best = world.truth(teacher.weights(theta_RP), theta_RP, 0, None)["exact/value"]
    logged = train(run)["exact/value"]
    assert best > 0.9 > 0.3 > logged[0]
    assert logged[-1] > 0.6


def test_saved_weights_teach_what_they_are(tmp_path):
    _, theta_RP, values = placed(changed(TREE, teacher="values", recipe="opd"))
    path = tmp_path / "teacher.npy"
    np.save(path, values.weights(theta_RP)[0].numpy())
    _, _, saved = placed(changed(TREE, teacher="file", teacher_args={"path": str(path)}, recipe="opd"))
    torch.testing.assert_close(saved.weights(theta_RP), values.weights(theta_RP))


@pytest.mark.parametrize("saved", [np.zeros(3), np.zeros((2, 2, 2)), np.full((1, 1), "a")])
def test_weights_that_do_not_fit_are_refused(tmp_path, saved):
    np.save(tmp_path / "teacher.npy", saved)
    refuses(".", placed, changed(TREE, teacher="file", teacher_args={"path": str(tmp_path / "teacher.npy")}))


@pytest.mark.parametrize("name", ["weights.npz", "empty.npy"])
def test_files_that_hold_no_single_array_are_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    if path.suffix == ".npz":
        np.savez(path, np.zeros(3))
    refuses("is not a .npy array", placed, changed(TREE, teacher="file", teacher_args={"path": str(path)}))


def test_a_hinted_teacher_sees_the_solution_and_its_answers_keep_the_students_prompts():
    world, theta_RP, teacher = placed(changed(HINTED, teacher="solution", recipe="opd"))
    rollout = world.generate(theta_RP, 0)
    seen = teacher.seen(rollout).prompt_RNQ
    solution = np.cumsum(rollout.prompt_RNQ[0, :, 3:6].numpy(), 1) % 3
    assert (rollout.prompt_RNQ[..., :3] == 4).all()
    assert (seen[0, :, :3].numpy() == solution).all()
    torch.testing.assert_close(teacher.answers(theta_RP, rollout, 0).prompt_RNQ, rollout.prompt_RNQ)


def test_a_hint_is_never_corrupted_and_plain_lessons_are():
    world, *_ = placed(HINTED)
    rng = np.random.default_rng(0)
    plain_NQ = world.task.prompts(rng, 400)
    for prompt_NQ, least, most in ((world.task.shown(plain_NQ), 1, 1), (plain_NQ, 0.05, 0.25)):
        score = world.task.score(prompt_NQ, *world.task.teacher(prompt_NQ, rng, 0.5)).mean()
        assert least <= score <= most


def test_rescues_come_to_failed_groups_alone_and_inserts_to_all():
    run = changed(TREE, teacher="values", recipe="grpo", guide="rescue")
    world, theta_RP, teacher = placed(run)
    rollout = world.generate(theta_RP, 0)
    bad_RN = failed(rollout)
    assert 0 < bad_RN.sum() < bad_RN.numel()
    for name, wanted_RN in (("rescue", bad_RN), ("insert", torch.ones_like(bad_RN))):
        helped, found_RN = guide_for(changed(run, guide=name)).help(
            rollout, lambda: teacher.answers(theta_RP, rollout, 0), 0
        )
        expert_RNG = (helped.origin_RB == EXPERT).unflatten(1, (-1, 4))
        assert (found_RN == wanted_RN).all()
        assert (expert_RNG[..., -1] == wanted_RN).all()
        assert not expert_RNG[..., :-1].any()
        torch.testing.assert_close(helped.token_RBT[:, ::4], rollout.token_RBT[:, ::4])


def test_own_successes_help_the_same_prompt_later_and_bring_their_old_log_probabilities():
    world, theta_RP, _ = placed(TREE)
    guide, first = OwnSuccesses(kept=64), world.generate(theta_RP, 0)
    empty, helped_RN = guide.help(first, lambda: first, 0)
    assert not helped_RN.any()
    torch.testing.assert_close(empty.reward_RB, first.reward_RB)
    later = next(r for r in (world.generate(theta_RP, s) for s in range(1, 9)) if guide.choose(r).any())
    helped, helped_RN = guide.help(later, lambda: later, 1)
    last_RN = torch.arange(8) * 4 + 3
    rescued_RB = helped.reward_RB[:, last_RN] > 0
    assert (rescued_RB[helped_RN]).all()
    assert (helped.origin_RB[:, last_RN] == REPLAY)[helped_RN].all()
    logp_RBT = world.logp(theta_RP, helped)
    torch.testing.assert_close(helped.logp_mu_RBT, logp_RBT)


def test_a_guided_source_counts_the_groups_it_helps():
    world, theta_RP, teacher = placed(changed(TREE, teacher="values", guide="insert"))

    class Fresh:
        def batch(self, theta_RP, step):
            return Generated(world.generate(theta_RP, step))

    made = GuidedSource(Fresh(), guide_for(changed(TREE, guide="insert")), teacher)
    assert made.batch(theta_RP, 0).counts["guide/helped_share"] == [1.0]


@pytest.mark.parametrize(
    "fields",
    [{"recipe": "dgrpo"}, {"recipe": "grpo", "teacher": "noisy"}, {"recipe": "grpo", "guide": "insert"},
     {"recipe": "opd", "teacher": "trained"}, {"recipe": "grpo", "guide": "own", "guide_args": {"kept": 0}},
     {"teacher": "noisy", "guide": "insert", "guide_args": {"count": 5}},
     {"teacher": "noisy", "guide": "insert", "too_old": "truncate", "age_limit": 2}],
)  # fmt: skip
def test_what_cannot_be_taught_is_refused_beforehand(fields):
    refuses(".", check_arguments, [changed(TREE, **fields)])


@pytest.mark.parametrize("scale", [-1.0, math.nan, math.inf])
def test_noise_on_a_teacher_has_a_finite_scale(scale):
    run = changed(TREE, recipe="opd", teacher="noisy", teacher_args={"scale": scale})
    refuses("expected a finite number of at least 0", placed, run)


def test_a_task_without_room_for_a_solution_or_that_cannot_mend_says_which_can():
    refuses("hinted-sum", placed, changed(HINTED, task="running-sum", teacher="solution", recipe="opd"))
    refuses("styled-sum", check_arguments, [changed(STYLED, task="guess", task_args={})])


STYLED = Run(
    task="styled-sum", task_args=(("digits", 3), ("modulus", 4)), policy="toy", prompts=4, group=4,
    policy_args=(("heads", 1), ("layers", 1), ("width", 8)), guide="splice",
)  # fmt: skip


def test_a_spliced_member_keeps_its_own_tokens_up_to_its_first_error():
    world, theta_RP, teacher = placed(STYLED)
    rollout = world.generate(theta_RP, 0)
    helped, helped_RN = guide_for(STYLED).help(rollout, lambda: teacher.corrections(rollout), 0)
    last_RN = torch.arange(4) * 4 + 3
    before, after = rollout.token_RBT[0, last_RN], helped.token_RBT[0, last_RN]
    prompt, mask = rollout.prompt_RNQ[0].numpy(), rollout.mask_RBT[0, last_RN].numpy()
    kept = world.task.first_error(prompt, before.numpy(), mask)
    assert helped_RN.any()
    for n in helped_RN[0].nonzero().ravel().tolist():
        assert (before[n, : kept[n]] == after[n, : kept[n]]).all()
    assert (helped.reward_RB[0, last_RN][helped_RN[0]] == 1).all()


def test_graded_rewards_fail_below_what_counts_as_a_success():
    world, theta_RP, _ = placed(changed(STYLED, verifier="steps"))
    rollout = world.generate(theta_RP, 0)
    loose, strict = (guide_for(changed(STYLED, guide_args=given)) for given in ({}, {"most": 0.99}))
    assert strict.choose(rollout).sum() > loose.choose(rollout).sum()
