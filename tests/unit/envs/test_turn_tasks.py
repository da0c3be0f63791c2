"""A game of several turns with a tool, two roles, and the tree in which the tool writes too."""

import gymnasium
import numpy as np
import pytest

from envs import registration
from envs.catalog import token_task
from envs.tokens.token_tree import TurnTree, tree
from testbed.exact.response_tree import random_policies

SMALL = {"base": 2, "digits": 2, "turns": 3}


def game(**given):
    task = token_task("guess", {**SMALL, **given})
    prompt_NQ = task.prompts(np.random.default_rng(0), 200)
    return task, prompt_NQ, task.secret(prompt_NQ)


def test_the_tool_says_too_large_too_small_or_ends():
    task, prompt_NQ, secret_N = game()
    for guess in range(4):
        response_Nt = np.tile([guess // 2, guess % 2], (200, 1))
        answer_N = task.tool(prompt_NQ, response_Nt)
        assert (answer_N == np.where(secret_N == guess, task.end_token, secret_N > guess)).all()


def test_the_numbers_behind_names_are_all_about_equally_frequent():
    task = token_task("guess", {})
    count = np.bincount(task.secret(task.prompts(np.random.default_rng(1), 9000)), minlength=9)
    # 729 names, 81 expected for each of 9 numbers, of which a fixed function gives each a share; 5
    # deviations.
    assert np.abs(count / 9000 - 1 / 9).max() < 5 * np.sqrt(8 / 81 / 729)


def test_bisection_always_finds_the_number_and_noise_costs_it():
    task, prompt_NQ, _ = game()
    rng = np.random.default_rng(2)
    scores = [task.score(prompt_NQ, *task.teacher(prompt_NQ, rng, noise)).mean() for noise in (0, 0.3, 0.9)]
    assert scores[0] == 1.0
    assert scores[0] > scores[1] > scores[2]


def test_a_right_number_of_which_half_was_written_is_no_guess():
    task, prompt_NQ, secret_N = game()
    response_NT = np.full((200, task.response_length), task.end_token)
    response_NT[:, 0], response_NT[:, 1] = secret_N // 2, secret_N % 2
    mask_NT = np.zeros(response_NT.shape, dtype=bool)
    mask_NT[:, 0] = True
    assert task.score(prompt_NQ, response_NT, mask_NT).sum() == 0
    mask_NT[:, 1] = True
    assert task.score(prompt_NQ, response_NT, mask_NT).sum() == 200


def test_the_teacher_writes_what_the_tool_answers_outside_its_mask():
    task, prompt_NQ, _ = game()
    response_NT, mask_NT = task.teacher(prompt_NQ, np.random.default_rng(3), 0.5)
    there_N = mask_NT[:, 1]
    assert (response_NT[there_N, 2] == task.tool(prompt_NQ, response_NT[:, :2])[there_N]).all()
    assert not mask_NT[:, np.array(task.tool_T)].any()


def test_more_numbers_than_bisection_finds_are_refused():
    with pytest.raises(ValueError, match=r"16 = 4\^2 numbers takes more than 4 turns"):
        token_task("guess", {"base": 4, "digits": 2, "turns": 4})


def test_an_environment_lets_the_tool_answer_at_once():
    assert "testbed/Guess-v0" in registration.register_all()
    env = gymnasium.make("testbed/Guess-v0", **SMALL)
    task = env.unwrapped.task
    place, _ = env.reset(seed=5)
    secret = int(task.secret(place[None, : task.prompt_length])[0])
    wrong = (secret + 1) % 4
    env.step(wrong // 2)
    place, reward, ended, *_ = env.step(wrong % 2)
    Q = task.prompt_length
    assert (int(place[Q + 2]), reward, ended) == (int(secret > wrong), 0.0, False)
    env.step(secret // 2)
    _, reward, ended, *_ = env.step(secret % 2)
    assert (reward, ended) == (1.0, True)


def test_a_policy_does_not_decide_what_the_tool_writes():
    world = tree(task="guess", prompts=2)
    assert isinstance(world, TurnTree)
    pi_SA, other_SA = random_policies(world, 1.0, 0)
    mixed_SA = np.where(world.tool_S[:, None], other_SA, pi_SA)
    assert world.value(mixed_SA) == world.value(pi_SA)
    assert not world.gradient(pi_SA)[world.tool_S].any()
    assert world.divergence(pi_SA, mixed_SA).second_moment == pytest.approx(1, abs=1e-12)


def test_simulated_responses_mask_the_tool_and_succeed_as_often_as_expected():
    world = tree(task="guess", prompts=2)
    pi_SA, _ = random_policies(world, 0.0, 1)
    start_RN = world.start(np.linspace(0, 0.999, 1000)[None])
    found = world.simulate(pi_SA[None], start_RN, 4, np.array([7], np.uint64), 0)
    assert not found.mask_RBT[..., np.array(world.task.tool_T)].any()
    # 4000 responses: a standard error of at most 0.008; five of them, false alarm below 1e-6.
    assert found.reward_RBT.sum(-1).mean() == pytest.approx(float(world.value(pi_SA)), abs=0.04)


def test_the_checker_alone_is_paid_for():
    task = token_task("solver-checker", {"digits": 2, "modulus": 3})
    prompt_NQ = np.array([[1, 1, 3], [1, 1, 3], [1, 1, 3]])
    response_NT = np.array([[1, 2, 2], [0, 0, 2], [1, 2, 0]])
    assert task.score(prompt_NQ, response_NT, np.ones((3, 3), bool)).tolist() == [1.0, 1.0, 0.0]
    assert task.turn_T == (0, 0, 1)


def test_a_hinted_answer_that_stops_early_scores_nothing():
    from envs.tokens.hinted import Hinted

    task = Hinted(digits=3, modulus=4)
    prompt_NQ = task.prompts(np.random.default_rng(0), 2)
    answer_NT, mask_NT = task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)
    mask_NT[1, 2] = False
    assert task.score(prompt_NQ, answer_NT, mask_NT).tolist() == [1, 0]


@pytest.mark.parametrize("shown", [False, True])
def test_a_hinted_response_is_checked_and_corrected_by_its_digits_alone(shown):
    from envs.tokens.hinted import Hinted

    task = Hinted(digits=3, modulus=4)
    prompt_NQ = task.prompts(np.random.default_rng(0), 3)
    prompt_NQ[:, 3:6] = [[1, 2, 3], [0, 1, 0], [3, 3, 3]]
    prompt_NQ = task.shown(prompt_NQ) if shown else prompt_NQ
    right_NT, mask_NT = np.array([[1, 3, 2], [0, 1, 1], [3, 2, 1]]), np.ones((3, 3), dtype=bool)
    response_NT = right_NT.copy()
    response_NT[1, 1], mask_NT[2, 2] = 0, False
    assert task.first_error(prompt_NQ, response_NT, mask_NT).tolist() == [3, 1, 2]
    found_NT, whole_NT = task.correction(prompt_NQ, response_NT, mask_NT)
    assert found_NT.tolist() == right_NT.tolist()
    assert whole_NT.all()


def test_the_tasks_with_turns_are_these():
    from testbed.worlds.task_registry import tasks_with_turns

    assert tasks_with_turns() == ["guess", "solver-checker"]
