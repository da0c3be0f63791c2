"""Graded sums: easy and hard prompts in any mix."""

import numpy as np
import pytest

from envs.tokens.graded_sum import GradedSum


def test_training_has_its_share_of_easy_prompts_and_the_rest_is_alike_for_every_share():
    for share in (0.0, 0.3, 1.0):
        task = GradedSum(share=share)
        level = task.difficulty(task.prompts(np.random.default_rng(0), 4000))
        assert abs((level == 3).mean() - share) < 0.03
        assert task.difficulty(task.held_out_prompts(np.random.default_rng(0), 6)).tolist() == [3, 8] * 3
        assert task.difficulty(task.lessons(np.random.default_rng(0), 6)).tolist() == [3, 8] * 3


def test_easy_prompts_only_repeat_the_total_behind_their_digits():
    task = GradedSum()
    answer = task.answer(task.held_out_prompts(np.random.default_rng(1), 2)[:, :-1])
    assert len(set(answer[0, 2:])) == 1
    assert len(set(answer[1, 2:])) > 1


def test_as_many_easy_digits_as_there_are_are_refused():
    with pytest.raises(ValueError, match="from 1 to 7 digits"):
        GradedSum(easy=8)
