"""The digit tasks and the length task, alone and as gymnasium environments.

Graded sums: easy and hard prompts in any mix.
Styled sums: two right styles, one of which a separator demands.
Three skills in one task, told apart by a mark.
"""

import warnings
from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from references import reference_tokens as reference
from support.refusals import refuses

from envs.catalog import token_task, worlds
from envs.tokens.graded_sum import GradedSum
from envs.tokens.length import Length
from envs.tokens.styled_sum import StyledSum
from envs.tokens.three_skills import ThreeSkills
from envs.tokens.token_gym_env import TokenEnv
from envs.tokens.token_task import TokenTask, arguments, corruption

FIXED = ["running-sum", "copy", "sorted"]
SMALL = [(name, {"digits": 3, "modulus": 3}) for name in FIXED]
SMALL += [("length", {"digits": 2, "modulus": 3, "limit": 4})]


def full(task: TokenTask, n: int) -> np.ndarray:
    return np.ones((n, task.response_length), dtype=bool)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, dtype=int)


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_length_task_has_the_shapes_of_its_arguments(name):
    task = worlds()[name](digits=12, modulus=8)
    assert (task.vocabulary, task.prompt_length, task.response_length) == (9, 13, 12)
    prompt_NQ = task.prompts(np.random.default_rng(0), 5)
    assert prompt_NQ.shape == (5, 13)
    assert prompt_NQ.dtype == np.int64
    assert (prompt_NQ[:, -1] == 8).all()
    assert prompt_NQ[:, :-1].max() < 8
    assert task.end_token is None
    assert task.pad_token is None


def test_prompts_use_every_digit_about_equally_often():
    digits = worlds()["copy"](digits=10, modulus=4).prompts(np.random.default_rng(0), 4000)[:, :-1]
    count = np.bincount(digits.ravel(), minlength=4)
    # 40,000 digits: the standard deviation of a count is 87; five of them, false alarm below 1e-5.
    assert np.abs(count - 10_000).max() < 435


@pytest.mark.parametrize("name", FIXED)
def test_vectorized_scores_agree_with_plain_python_on_every_response(name):
    task = worlds()[name](digits=3, modulus=3)
    response_LT, mask_LT = task.enumerate()
    assert len(response_LT) == 4**3
    for prompt_Q in task.prompts(np.random.default_rng(1), 6):
        expected = reference.right_answer(name, prompt_Q[:-1].tolist(), 3)
        score_L = task.score(np.tile(prompt_Q, (len(response_LT), 1)), response_LT, mask_LT)
        assert score_L.tolist() == [float(row.tolist() == expected) for row in response_LT]
        assert score_L.sum() == 1.0


@pytest.mark.parametrize("name", FIXED)
def test_a_response_with_a_missing_token_scores_zero(name):
    task = worlds()[name](digits=3, modulus=3)
    prompt_NQ = np.array([[0, 0, 0, 3]])
    mask_NT = full(task, 1)
    assert task.score(prompt_NQ, np.zeros((1, 3), dtype=int), mask_NT)[0] == 1.0
    mask_NT[0, 2] = False
    assert task.score(prompt_NQ, np.zeros((1, 3), dtype=int), mask_NT)[0] == 0.0


@pytest.mark.parametrize(("name", "args"), SMALL)
def test_a_teacher_scores_one_and_zero_where_it_corrupts_every_step(name, args):
    task = token_task(name, args)
    rng = np.random.default_rng(2)
    prompt_NQ = task.prompts(rng, 200)
    assert task.score(prompt_NQ, *task.teacher(prompt_NQ, rng, 0.0)).tolist() == [1.0] * 200
    assert task.score(prompt_NQ, *task.teacher(prompt_NQ, rng, 1.0)).sum() == 0.0


@pytest.mark.parametrize("name", FIXED)
def test_a_noisy_teacher_succeeds_as_often_as_no_step_is_corrupted(name):
    task = worlds()[name](digits=12, modulus=8)
    rng = np.random.default_rng(3)
    prompt_NQ = task.prompts(rng, 40_000)
    score = task.score(prompt_NQ, *task.teacher(prompt_NQ, rng, 0.2)).mean()
    # 0.8^12 = 0.0687, standard error 0.00126; four of them, false alarm 6e-5.
    assert abs(score - 0.8**12) < 0.0051


def test_a_corrupted_running_sum_goes_on_from_the_wrong_value():
    task = worlds()["running-sum"](digits=12, modulus=8)
    rng = np.random.default_rng(4)
    prompt_NQ = task.prompts(rng, 2000)
    response_NT, mask_NT = task.teacher(prompt_NQ, rng, 0.2)
    before_NT = np.concatenate([np.zeros((2000, 1), dtype=int), response_NT[:, :-1]], axis=1)
    step_right_NT = response_NT == (before_NT + prompt_NQ[:, :-1]) % 8
    # Judged step by step against its own last value the teacher errs at rate 0.2 (24,000 steps, 4 sigma).
    assert abs(step_right_NT.mean() - 0.8) < 0.0104
    assert mask_NT.all()
    assert response_NT.max() < 8


def test_corruption_is_always_wrong_and_nested_in_the_noise():
    noises = (0.0, 0.3, 0.7, 1.0)
    wrong = {noise: corruption((500, 4), np.random.default_rng(5), noise, 3) for noise in noises}
    assert not wrong[0.0].any()
    assert set(np.unique(wrong[1.0])) == {1, 2}
    assert ((wrong[0.3] > 0) <= (wrong[0.7] > 0)).all()
    refuses(r"from 0 to 1; got 1\.5", corruption, (1,), np.random.default_rng(0), 1.5, 3, error=ValueError)


@pytest.mark.parametrize(("name", "args"), SMALL)
def test_enumeration_lists_every_response_exactly_once(name, args):
    task = token_task(name, args)
    response_LT, mask_LT = task.enumerate()
    listed = [tuple(row[mask].tolist()) for row, mask in zip(response_LT, mask_LT, strict=True)]
    assert listed == reference.responses(task.vocabulary, task.response_length, task.end_token)
    assert (response_LT[~mask_LT] == 0).all()


def test_length_pays_chance_level_at_every_length_under_the_uniform_policy():
    """Sense 2 of the task's docstring, for every prompt and by enumeration: nothing is sampled."""
    task = Length(digits=2, modulus=3, limit=5)
    response_LT, mask_LT = task.enumerate()
    length_L = mask_LT.sum(axis=1)
    law_L = (1.0 / task.vocabulary) ** length_L
    assert law_L.sum() == pytest.approx(1.0, abs=1e-12)
    for prompt_Q in [(a, b) for a in range(3) for b in range(3)]:
        score_L = task.score(np.tile(prompt_Q, (len(response_LT), 1)), response_LT, mask_LT)
        for length in range(1, 6):
            here = length_L == length
            assert np.average(score_L[here], weights=law_L[here]) == pytest.approx(1 / 3, abs=1e-12)


def test_length_pays_the_same_at_every_length_once_the_first_token_is_known():
    """Sense 1: the reward is a function of the first token alone."""
    task = Length(digits=2, modulus=3, limit=5)
    response_LT, mask_LT = task.enumerate()
    score_L = task.score(np.tile([1, 1], (len(response_LT), 1)), response_LT, mask_LT)
    for first, reward in ((0, 0.0), (1, 0.0), (2, 1.0), (3, 1 / 3)):
        assert set(score_L[response_LT[:, 0] == first]) == {reward}


def test_the_length_teacher_gives_every_length_equally_often():
    task = Length(digits=2, modulus=4, limit=5)
    rng = np.random.default_rng(6)
    prompt_NQ = task.prompts(rng, 10_000)
    response_NT, mask_NT = task.teacher(prompt_NQ, rng, 0.0)
    ended_N = ((response_NT == 4) & mask_NT).any(axis=1)
    digits_N = mask_NT.sum(axis=1) - ended_N
    count = Counter(digits_N.tolist())
    # 10,000 teachers over 5 lengths: standard deviation 40, five of them.
    assert max(abs(count[n] - 2000) for n in range(1, 6)) < 200
    assert (response_NT[~mask_NT] == 0).all()
    assert (ended_N == (digits_N < 5)).all()


def test_text_prints_tokens_without_padding_and_masked_places():
    task = worlds()["running-sum"](digits=3, modulus=3)
    assert task.text([0, 1, 2, 3]) == "012="
    assert task.text([0, 1, 2], [True, True, False]) == "01"
    assert worlds()["copy"](digits=2, modulus=12).text([11, 1]) == "11 1"
    assert Length(digits=2, modulus=3).text([1, 0, 3]) == "10<end>"


@pytest.mark.parametrize(
    "call",
    [lambda t: t.score(zeros(1, 3), zeros(1, 3), full(t, 1)),
     lambda t: t.score(zeros(2, 4), zeros(1, 3), full(t, 1)),
     lambda t: t.score(zeros(1, 4), zeros(1, 3), full(t, 2)),
     lambda t: t.score(zeros(1, 4), zeros(1, 3) + 4, full(t, 1)),
     lambda t: t.teacher(np.full((1, 4), -1), np.random.default_rng(0), 0.1),
     lambda t: t.text(np.zeros((2, 2), int)), lambda t: type(t)(digits=0), lambda t: type(t)(modulus=1),
     lambda t: token_task("runing-sum", {}), lambda t: token_task("tree", {}),
     lambda _: worlds()["running-sum"]().enumerate(), lambda _: GradedSum(easy=8)],
)  # fmt: skip
def test_wrong_input_is_answered_with_what_was_expected(call):
    refuses(".", call, worlds()["running-sum"](digits=3, modulus=3), error=ValueError)


@pytest.fixture
def make_env():
    gymnasium.register("test/Token-v0", entry_point=TokenEnv)
    yield lambda **args: gymnasium.make("test/Token-v0", **args)
    del gymnasium.registry["test/Token-v0"]


@pytest.mark.parametrize(("name", "args"), SMALL)
def test_a_token_environment_passes_gymnasiums_checker_without_a_warning(make_env, name, args):
    env = make_env(task=name, render_mode="ansi", **args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_a_token_environment_pays_the_tasks_score_with_the_last_token(make_env):
    env = make_env(task="running-sum", digits=3, modulus=3).unwrapped
    observation, _ = env.reset(seed=7)
    assert observation[4:].tolist() == [4, 4, 4]
    answer = reference.right_answer("running-sum", observation[:3].tolist(), 3)
    outcomes = [env.step(np.int64(a)) for a in answer]
    assert [o[1] for o in outcomes] == [0.0, 0.0, 1.0]
    assert [o[2] for o in outcomes] == [False, False, True]
    assert outcomes[-1][0][4:].tolist() == answer
    refuses("call reset", env.step, np.int64(0), error=ValueError)
    assert env.reset()[0][4:].tolist() == [4, 4, 4]


def test_a_token_environment_ends_with_the_end_token(make_env):
    env = make_env(task="length", digits=2, modulus=3, limit=4).unwrapped
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(np.int64(3))
    assert (reward, terminated, truncated, info["text"]) == (1 / 3, True, False, "<end>")
    assert observation.tolist()[2:] == [3, 4, 4, 4]


def test_a_token_environment_refuses_an_action_outside_the_vocabulary(make_env):
    env = make_env(task="copy", digits=2, modulus=2).unwrapped
    env.reset(seed=0)
    refuses("expected an integer from 0 to 2", env.step, np.int64(3), error=ValueError)


def test_nested_arguments_can_be_written_as_text():
    assert arguments("max_digits=1 name=x flag=true ratio=0.5") == {
        "max_digits": 1, "name": "x", "flag": True, "ratio": 0.5,
    }  # fmt: skip
    assert arguments(None) == {}
    tree = worlds()["tree"]
    assert tree(task_args="digits=2 modulus=2").states == tree(task_args={"digits": 2, "modulus": 2}).states
    refuses("expected name=value", arguments, "digits", error=ValueError)


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


TASK = StyledSum(digits=3, modulus=4)
FREE, SUMS = [1, 2, 3, 4], [1, 2, 3, 5]
SUM, COMPLEMENT = [1, 3, 2], [2, 0, 1]
ALL = np.ones((1, 3), bool)


def test_both_styles_are_right_unless_sums_are_demanded():
    for prompt, response, reward in (
        (FREE, SUM, 1), (FREE, COMPLEMENT, 1), (SUMS, SUM, 1), (SUMS, COMPLEMENT, 0),
    ):  # fmt: skip
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


def test_an_erring_checker_corrects_too_early_or_keeps_the_error():
    task = StyledSum(digits=3, modulus=4, misjudged=1.0)
    prompt, begun = np.array([FREE] * 2), np.array([[1, 3, 0], [3, 0, 1]])
    mended = task.correction(prompt, begun, np.ones((2, 3), bool))[0]
    np.testing.assert_array_equal(mended, [COMPLEMENT, begun[1]])
    refuses("a probability", StyledSum, misjudged=1.5, error=ValueError)


def test_half_of_the_held_out_prompts_demand_sums_and_none_in_training():
    stream = np.random.default_rng(0)
    assert TASK.difficulty(TASK.held_out_prompts(stream, 8)).tolist() == [0, 1] * 4
    assert not TASK.difficulty(TASK.prompts(stream, 8)).any()


SKILLS = ThreeSkills(digits=3, modulus=4)


def test_each_mark_asks_for_its_own_answer():
    prompt = np.array([[mark, 3, 1, 2, 4] for mark in (5, 6, 7)])
    right = np.array([[3, 0, 2], [3, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(SKILLS.answer(prompt[:, :-1]), right)
    for k in range(3):
        score = SKILLS.score(prompt, right[[k] * 3], np.ones((3, 3), bool))
        assert score.tolist() == [float(k == j) for j in range(3)]


def test_marks_come_evenly_and_are_the_difficulty():
    level = SKILLS.difficulty(SKILLS.prompts(np.random.default_rng(0), 3000))
    assert np.allclose(np.bincount(level) / 3000, 1 / 3, atol=0.03)
