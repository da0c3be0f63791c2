"""Three skills in one task, told apart by a mark."""

import numpy as np

from envs.tokens.three_skills import ThreeSkills

TASK = ThreeSkills(digits=3, modulus=4)


def test_each_mark_asks_for_its_own_answer():
    prompt = np.array([[mark, 3, 1, 2, 4] for mark in (5, 6, 7)])
    right = np.array([[3, 0, 2], [3, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(TASK.answer(prompt[:, :-1]), right)
    for k in range(3):
        score = TASK.score(prompt, right[[k] * 3], np.ones((3, 3), bool))
        assert score.tolist() == [float(k == j) for j in range(3)]


def test_marks_come_evenly_and_are_the_difficulty():
    level = TASK.difficulty(TASK.prompts(np.random.default_rng(0), 3000))
    assert np.allclose(np.bincount(level) / 3000, 1 / 3, atol=0.03)
