"""Styled sums: two right styles, one of which a separator demands."""

import numpy as np

from envs.tokens.styled_sum import StyledSum

TASK = StyledSum(digits=3, modulus=4)
FREE, SUMS = [1, 2, 3, 4], [1, 2, 3, 5]
SUM, COMPLEMENT = [1, 3, 2], [2, 0, 1]
ALL = np.ones((1, 3), bool)


def test_both_styles_are_right_unless_sums_are_demanded():
    for prompt, response, reward in (
        (FREE, SUM, 1),
        (FREE, COMPLEMENT, 1),
        (SUMS, SUM, 1),
        (SUMS, COMPLEMENT, 0),
    ):
        assert TASK.score(np.array([prompt]), np.array([response]), ALL) == [reward]
    assert TASK.score(np.array([FREE]), np.array([[1, 3, 1]]), ALL) == [0]  # begun in one, ended in the other


def test_the_base_teacher_writes_sums_and_the_expert_complements_where_it_may():
    stream = np.random.default_rng(0)
    prompt = np.array([FREE, SUMS])
    np.testing.assert_array_equal(TASK.teacher(prompt, stream, 0.0)[0], [SUM, SUM])
    np.testing.assert_array_equal(TASK.expert(prompt, stream)[0], [COMPLEMENT, SUM])


def test_a_correction_keeps_the_style_that_was_begun():
    prompt, begun = np.array([FREE] * 3), np.array([[1, 3, 0], [2, 0, 3], [3, 0, 1]])
    mended = TASK.correction(prompt, begun, np.ones((3, 3), bool))[0]
    np.testing.assert_array_equal(mended, [SUM, COMPLEMENT, COMPLEMENT])
    np.testing.assert_array_equal(TASK.first_error(prompt, begun, np.ones((3, 3), bool)), [2, 2, 0])


def test_half_of_the_held_out_prompts_demand_sums_and_none_in_training():
    stream = np.random.default_rng(0)
    assert TASK.difficulty(TASK.held_out_prompts(stream, 8)).tolist() == [0, 1] * 4
    assert not TASK.difficulty(TASK.prompts(stream, 8)).any()
