"""The token tree against brute force over all responses, hand-computed numbers and a dense MDP."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from references import reference_tokens as reference
from support.refusals import refuses

from envs.catalog import token_task, worlds
from envs.kernels import uniforms
from envs.tokens.token_task import TokenTask
from envs.tokens.token_tree import TokenTree
from envs.tokens.tree_kernel import walk


@dataclass
class Table(TokenTask):
    """A token task given by an arbitrary terminal reward per (prompt, response)."""

    vocabulary_size: int
    length: int
    end: int | None
    seed: int

    def __post_init__(self) -> None:
        self.symbols = tuple("abcdefgh"[: self.vocabulary_size])
        self.prompt_length, self.response_length, self.end_token = 1, self.length, self.end

    def prompts(self, rng, n):
        return rng.integers(0, self.vocabulary_size, size=(n, 1))

    def reward(self, prompt: int, response: tuple[int, ...]) -> float:
        return np.random.default_rng([self.seed, prompt, *response, len(response)]).random()

    def score(self, prompt_NQ, response_NT, mask_NT):
        self.check(prompt_NQ, response_NT, mask_NT)
        rows = zip(prompt_NQ[:, 0], response_NT, mask_NT, strict=True)
        return np.array([self.reward(int(p), tuple(r[m].tolist())) for p, r, m in rows])

    def teacher(self, prompt_NQ, rng, noise):
        raise AssertionError("a tree never asks its task to teach")


# end token: none, the last, the first and one in the middle, because branches are renumbered around it
SHAPES = [(3, 3, None), (3, 3, 2), (3, 3, 0), (4, 3, 1), (2, 5, 1), (2, 1, None), (2, 1, 1), (5, 2, None)]


def law(rng: np.random.Generator, shape: tuple[int, ...], sharpness: float = 1.0) -> np.ndarray:
    weight = np.exp(sharpness * rng.standard_normal(shape))
    return weight / weight.sum(-1, keepdims=True)


def brute_force(tree: TokenTree, task: Table, pi_SA: np.ndarray, mu_SA: np.ndarray) -> dict:
    reward = lambda n, response: task.reward(int(tree.prompt_NQ[n, 0]), response)  # noqa: E731
    return reference.truth(
        len(tree.prompt_NQ), task.vocabulary, task.response_length, task.end_token, reward, pi_SA, mu_SA
    )


@pytest.mark.parametrize(("vocabulary", "length", "end"), SHAPES)
def test_exact_quantities_agree_with_brute_force(vocabulary, length, end):
    task = Table(vocabulary, length, end, seed=1)
    tree = TokenTree(task, prompts=[[0], [1]])
    rng = np.random.default_rng(2)
    pi_SA, mu_SA = law(rng, (tree.states, tree.actions)), law(rng, (tree.states, tree.actions))
    truth = brute_force(tree, task, pi_SA, mu_SA)
    found = tree.divergence(pi_SA, mu_SA)
    close = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(tree.value(pi_SA), truth["value"], **close)
    np.testing.assert_allclose(tree.gradient(pi_SA), truth["gradient"], **close)
    for name in ("kl_pi_mu", "kl_mu_pi", "second_moment", "second_moment_prefix_T", "max_log_rho"):
        np.testing.assert_allclose(getattr(found, name), truth[name], **close, err_msg=name)
    np.testing.assert_allclose(found.second_moment_token, truth["rho2"] / truth["length"], **close)
    np.testing.assert_allclose(found.mean_rho_token, truth["rho"] / truth["length"], **close)


@pytest.mark.parametrize("end", [None, 0, 2])
def test_policies_with_zeros_agree_with_brute_force(end):
    task = Table(3, 3, end, seed=3)
    tree = TokenTree(task, prompts=[[0], [2]])
    rng = np.random.default_rng(4)
    mu_SA = law(rng, (tree.states, 3)) * (rng.random((tree.states, 3)) < 0.7)
    mu_SA[mu_SA.sum(-1) == 0] = 1.0
    mu_SA /= mu_SA.sum(-1, keepdims=True)
    pi_SA = mu_SA * rng.random((tree.states, 3)) * (rng.random((tree.states, 3)) < 0.8)
    pi_SA[pi_SA.sum(-1) == 0] = mu_SA[pi_SA.sum(-1) == 0]
    pi_SA /= pi_SA.sum(-1, keepdims=True)
    truth = brute_force(tree, task, pi_SA, mu_SA)
    found = tree.divergence(pi_SA, mu_SA)
    assert truth["kl_mu_pi"] == math.inf
    for name in ("kl_pi_mu", "kl_mu_pi", "second_moment", "second_moment_prefix_T", "max_log_rho"):
        np.testing.assert_allclose(getattr(found, name), truth[name], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(tree.gradient(pi_SA), truth["gradient"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["running-sum", "copy", "sorted", "length"])
def test_a_cataloged_task_becomes_a_tree_with_its_own_scores(name):
    tree = worlds()["tree"](task=name)
    small = {"digits": 3, "modulus": 3} if name != "length" else {"digits": 2, "modulus": 3, "limit": 4}
    task = token_task(name, small)
    pi_SA = np.full((tree.states, tree.actions), 1.0 / tree.actions)
    # Under the uniform policy the value is the enumerated mean score, weighted by V^-length.
    response_LT, mask_LT = task.enumerate()
    weight_L = float(tree.actions) ** -mask_LT.sum(axis=1)
    scores = [
        weight_L @ task.score(np.tile(prompt_Q, (len(response_LT), 1)), response_LT, mask_LT)
        for prompt_Q in tree.prompt_NQ
    ]
    assert len(tree.prompt_NQ) == 4
    np.testing.assert_allclose(tree.value(pi_SA), np.mean(scores), rtol=1e-12)


def test_leading_axes_are_independent_policies():
    tree = TokenTree(Table(3, 3, 1, seed=8), prompts=[[0], [1], [2]])
    rng = np.random.default_rng(9)
    pi_xSA, mu_xSA = law(rng, (2, 3, tree.states, 3)), law(rng, (2, 3, tree.states, 3))
    found = tree.divergence(pi_xSA, mu_xSA)
    assert tree.value(pi_xSA).shape == (2, 3)
    assert tree.gradient(pi_xSA).shape == pi_xSA.shape
    assert found.second_moment_prefix_T.shape == (2, 3, 3)
    alone = tree.divergence(pi_xSA[1, 2], mu_xSA[1, 2])
    for name in ("kl_pi_mu", "kl_mu_pi", "second_moment", "second_moment_token", "max_log_rho"):
        assert getattr(found, name)[1, 2] == getattr(alone, name), name
    assert (tree.gradient(pi_xSA)[1, 2] == tree.gradient(pi_xSA[1, 2])).all()


@pytest.mark.parametrize("end", [None, 0, 1, 2])
def test_simulated_responses_follow_the_policy_token_by_token(end):
    """Every drawn token is recomputed from its uniform and its state from its prefix."""
    task = Table(3, 3, end, seed=12)
    tree = TokenTree(task, prompts=[[0], [1]])
    pi_RSA = law(np.random.default_rng(13), (2, tree.states, 3))
    key_R = np.array([5, 6], dtype=np.uint64)
    start_RN = tree.start(uniforms(key_R, 0, 8, 1)[:, :, 0])
    episodes = tree.simulate(pi_RSA, start_RN, 5, key_R, step=3)
    uniform_RBT = uniforms(key_R, 3, 40, 3)
    number = {tree.prefix(s): s for s in range(tree.states)}
    for r in range(2):
        for b in range(40):
            prompt, prefix, alive = start_RN[r, b // 5] // tree.nodes, (), True
            for t in range(3):
                assert episodes.mask_RBT[r, b, t] == alive
                if not alive:
                    assert episodes.state_RBT[r, b, t] == episodes.action_RBT[r, b, t] == 0
                    assert episodes.reward_RBT[r, b, t] == 0.0
                    continue
                state = number[prompt, prefix]
                action = int(np.searchsorted(np.cumsum(pi_RSA[r, state]), uniform_RBT[r, b, t], side="right"))
                assert (episodes.state_RBT[r, b, t], episodes.action_RBT[r, b, t]) == (state, action)
                prefix = (*prefix, action)
                alive = action != end and t < 2
                expected = 0.0 if alive else task.reward(int(tree.prompt_NQ[prompt, 0]), prefix)
                assert episodes.reward_RBT[r, b, t] == expected


def test_an_action_without_mass_is_never_drawn():
    tree = TokenTree(Table(4, 3, None, seed=14), prompts=[[0]])
    pi_RSA = np.tile([0.0, 0.5, 0.0, 0.5], (1, tree.states, 1))
    episodes = tree.simulate(pi_RSA, np.zeros((1, 1), dtype=int), 2000, np.array([1], dtype=np.uint64), 0)
    assert set(np.unique(episodes.action_RBT)) == {1, 3}


def test_rounding_never_draws_an_action_without_mass():
    # Ten tenths add up to less than 1 and the largest uniform lies beyond: the last with mass is taken.
    pi_RSA = np.array([0.1] * 10 + [0.0]).reshape(1, 1, 11)
    uniform_RBT = np.full((1, 1, 1), 1.0 - 2.0**-53)
    assert np.cumsum(pi_RSA)[-1] <= uniform_RBT[0, 0, 0]
    state_RBT, action_RBT, mask_RBT = (
        np.zeros((1, 1, 1), int), np.zeros((1, 1, 1), int), np.zeros((1, 1, 1), bool),
    )  # fmt: skip
    walk(
        pi_RSA[:, None], np.zeros((1, 1, 1), int), np.zeros((1, 1), int), uniform_RBT, -1, state_RBT,
        action_RBT, mask_RBT, np.full((1, 1, 1), -1),
    )  # fmt: skip
    assert action_RBT[0, 0, 0] == 9


def test_starts_pick_prompts_uniformly_up_to_the_last():
    tree = TokenTree(Table(3, 2, None, seed=0), prompts=[[0], [1], [2]])
    start = tree.start(np.array([[0.0, 0.333, 0.334, 0.999999, 1.0 - 2.0**-53]]))
    assert (start // tree.nodes).tolist() == [[0, 0, 1, 2, 2]]
    assert (start % tree.nodes == 0).all()


def test_states_name_their_prefixes_in_the_reference_order():
    for vocabulary, length, end in SHAPES:
        tree = TokenTree(Table(vocabulary, length, end, seed=0), prompts=[[0], [1]])
        numbers = reference.state_numbers(2, vocabulary, length, end)
        assert {tree.prefix(s): s for s in range(tree.states)} == numbers


def test_prompts_asked_for_by_number_are_distinct_and_repeatable():
    first, again = (worlds()["tree"](prompts=8, seed=3).prompt_NQ for _ in range(2))
    assert (first == again).all()
    assert len(np.unique(first, axis=0)) == 8
    assert not np.array_equal(first, worlds()["tree"](prompts=8, seed=4).prompt_NQ)


def test_a_behavior_policy_that_cannot_take_the_targets_token_is_an_error_naming_both():
    tree = TokenTree(Table(3, 2, None, seed=0), prompts=[[0], [1]])
    pi_SA = np.full((tree.states, 3), 1 / 3)
    mu_SA = pi_SA.copy()
    mu_SA[5] = [0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"action 2 \('c'\) in state 5 \(prompt 'b', response so far 'a'\)"):
        tree.divergence(pi_SA, mu_SA)
    found = tree.divergence(pi_SA, mu_SA, unsupported="infinite")
    assert found.kl_pi_mu == found.second_moment == found.max_log_rho == math.inf
    assert np.isfinite(found.kl_mu_pi)
    pi_SA[4] = [0.0, 0.5, 0.5]  # state 5 is no longer reached
    assert np.isfinite(tree.divergence(pi_SA, mu_SA).kl_pi_mu)


@pytest.mark.parametrize(
    "call",
    [lambda t: t.value(np.ones((3, 3)) / 3), lambda t: t.value(np.ones((4, 3))),
     lambda t: t.value(np.full((4, 3), np.nan)), lambda t: t.value(np.tile([1.5, -0.5, 0.0], (4, 1))),
     lambda t: t.simulate(np.ones((1, 4, 3)) / 3, [[1]], 1, [0], 0),
     lambda t: t.simulate(np.ones((1, 4, 3)) / 3, [[4]], 1, [0], 0),
     lambda t: t.simulate(np.ones((1, 4, 3)) / 3, [[0]], 1, [0, 1], 0),
     lambda t: t.simulate(np.ones((1, 4, 3)) / 3, [[0]], 0, [0], 0), lambda t: TokenTree(t.task, prompts=4),
     lambda t: TokenTree(t.task, prompts=[[0, 1]]),
     lambda t: TokenTree(token_task("running-sum", {}), prompts=1),
     lambda t: t.simulate(np.ones((1, 1, 4, 3)) / 3, [[0]], 1, [0], 0),
     lambda t: t.simulate_versions(np.ones((1, 4, 3)) / 3, [[[0]]], [[0]], 1, [0], 0)],
)  # fmt: skip
def test_wrong_input_is_answered_with_what_was_expected(call):
    refuses(".", call, TokenTree(Table(3, 2, None, seed=0), prompts=[[0]]), error=ValueError)


@pytest.mark.parametrize(("vocabulary", "length", "end"), SHAPES)
def test_a_state_and_its_prefix_name_each_other(vocabulary, length, end):
    tree = TokenTree(Table(vocabulary, length, end, seed=0), 2)
    named = [tree.prefix(state) for state in range(tree.states)]
    assert len(set(named)) == tree.states
    assert [tree.state(*name) for name in named] == list(range(tree.states))
    assert [tree.state(p) for p in (0, 1)] == [0, tree.nodes]
    # What the walk visits is what the map says: the state of every simulated token is that of its prefix.
    pi = np.full((1, tree.states, tree.actions), 1 / tree.actions)
    found = tree.simulate(pi, np.array([[0, tree.nodes]]), 8, np.array([3], np.uint64), 0)
    for b, t in np.argwhere(found.mask_RBT[0]):
        tokens = found.action_RBT[0, b, :t].tolist()
        assert found.state_RBT[0, b, t] == tree.state(b // 8, tokens)


def test_a_prefix_that_no_state_has_is_refused():
    tree = TokenTree(Table(3, 3, 2, seed=0), 2)
    for prompt, tokens, message in (
        (2, (), "prompt is 2, expected 0 to 1"),
        (0, (0, 1, 0), "are a whole response; a state has at most 2"),
        (0, (2,), r"expected one of \[0, 1\], as 2 ends a response"),
        (0, (0, 7), r"token 7 in \[0, 7\] leads to no state"),
    ):
        refuses(message, tree.state, prompt, tokens, error=ValueError)
