"""Cloning and training on tables of prompts, by closed forms."""

import numpy as np

from analysis.experiments.lag import excess_cloning as cold_starts
from analysis.experiments.lag.excess_cloning import (
    ANSWERS,
    GROUP,
    PROMPTS,
    accuracy,
    cloned,
    course,
    demonstrations,
    softmax,
)
from testbed.rng import keys

KEYS = keys((0, 1), "cold starts")
SHOWN = demonstrations(KEYS)


def test_demonstrations_are_right_as_often_as_the_teacher_is():
    many = demonstrations(keys(tuple(range(400)), "demonstrations"))
    np.testing.assert_allclose(many.sum(-1), 1.0)
    assert abs(many[..., 0].mean() - cold_starts.SKILL) < 4.5 * np.sqrt(0.21 / (400 * PROMPTS * 3))


def test_long_cloning_ends_at_the_demonstrations_own_shares():
    np.testing.assert_allclose(softmax(cloned(SHOWN, 20_000)), SHOWN, atol=1e-3)
    np.testing.assert_allclose(accuracy(cloned(SHOWN, 0)), 1 / ANSWERS)


def test_an_update_is_grpos_gradient_of_the_groups_that_the_old_policy_drew():
    start = cloned(SHOWN, 20)
    moved = (course(start, KEYS, "reinforce", steps=1, rate=1.0)[-1] - start)[0]
    from envs.kernels import uniforms

    token = (
        uniforms(KEYS, 0, PROMPTS, GROUP)[0, ..., None] >= softmax(start)[0].cumsum(-1)[:, None, :-1]
    ).sum(-1)
    reward = (token == 0).astype(float)
    assert 0 < reward.mean() < 1
    for s in range(PROMPTS):
        score = np.eye(ANSWERS)[token[s]] - softmax(start)[0, s]
        wanted = ((reward[s] - reward[s].mean())[:, None] * score).mean(0)
        if np.abs(wanted).max() > 1e-9:
            # Scaled by the recipe's own normalization of advantages; the direction is the gradient's.
            cosine = moved[s] @ wanted / np.linalg.norm(moved[s]) / np.linalg.norm(wanted)
            assert cosine > 1 - 1e-9


def test_data_older_than_the_run_are_the_starts_and_a_step_back_is_one_policy_back():
    start = cloned(SHOWN, 20)
    ages = [course(start, KEYS, "grpo", steps=3, rate=0.3, age=age)[-1] for age in (0, 1, 3, 50)]
    np.testing.assert_array_equal(ages[2], ages[3])
    assert (ages[0] != ages[1]).any()
    assert (ages[1] != ages[2]).any()
    np.testing.assert_array_equal(
        course(start, KEYS, "grpo", steps=1, rate=0.3)[-1],
        course(start, KEYS, "grpo", steps=1, rate=0.3, age=9)[-1],
    )
