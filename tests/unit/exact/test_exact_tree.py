"""The oracle on token trees against sums written out over responses, autograd and finite differences."""

import itertools

import numpy as np
import pytest
import torch
from support.refusals import refuses

from envs.tokens.token_tree import TokenTree
from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.exact.gradient_report import Bench, gradient_report, optimal_baselines, plain_ratio
from testbed.exact.group import group_report, multisets
from testbed.exact.response_tree import (
    RewardTable,
    check_size,
    enumerate_leaves,
    random_policies,
    random_tree,
    reward_tree,
    softmax,
    tree_facts,
)
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective


def two_prompts():
    """3 tokens, responses of 3 that token 2 may end, 2 prompts with rewards of their own."""

    class Task(RewardTable):
        def check_prompts(self, prompt_NQ):
            return np.asarray(prompt_NQ, dtype=np.int64)

        def score(self, prompt_NQ, response_NT, mask_NT):
            return super().score(prompt_NQ, response_NT, mask_NT) * (1.0 + prompt_NQ[:, 0])

    rewards = np.random.default_rng(5).normal(size=27)
    return TokenTree(Task(rewards, 3, 3, end_token=2), [[0], [1]])


WORLDS = {
    "plain": lambda: random_tree(3, 2, seed=1),
    "deep": lambda: random_tree(2, 3, seed=3),
    "end token and two prompts": two_prompts,
}


def test_the_rewards_of_a_seed_stay_and_chunks_of_responses_change_no_weight(monkeypatch):
    tree = random_tree(2, 3, seed=3)
    assert enumerate_leaves(tree).reward_L.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    whole = gradient_report("ppo_clip", Bench(tree, *random_policies(tree, 0.7)))
    monkeypatch.setattr("testbed.exact.gradient_report.CHUNK", 3)
    parts = gradient_report("ppo_clip", Bench(tree, *random_policies(tree, 0.7)))
    np.testing.assert_allclose(parts.mean_SA, whole.mean_SA, atol=1e-15)


@pytest.fixture(params=WORLDS, scope="module")
def bench(request):
    tree = WORLDS[request.param]()
    return Bench(tree, *random_policies(tree, 0.7, seed=4))


def small_bench(drift=0.7, vocabulary=2, length=2, seed=0):
    tree = random_tree(vocabulary, length, seed)
    return Bench(tree, *random_policies(tree, drift, seed))


def responses(bench):
    """Every response as (prompt, tokens, mu, pi, reward), from the task and the tables alone."""
    tree = bench.tree
    for prompt, given in enumerate(tree.prompt_NQ):
        for tokens in itertools.product(range(tree.actions), repeat=tree.horizon):
            end = tokens.index(tree.end_token) + 1 if tree.end_token in tokens else tree.horizon
            if any(tokens[end:]):
                continue
            mu = pi = 1.0 / len(tree.prompt_NQ)
            for t in range(end):
                mu *= bench.mu_SA[state_of(tree, prompt, tokens[:t]), tokens[t]]
                pi *= bench.pi_SA[state_of(tree, prompt, tokens[:t]), tokens[t]]
            mask = (np.arange(tree.horizon) < end)[None]
            reward = tree.task.score(given[None], np.array([tokens]), mask)[0]
            yield prompt, tokens[:end], mu, pi, reward


def state_of(tree, prompt, tokens):
    return next(s for s in range(tree.states) if tree.prefix(s) == (prompt, tuple(tokens)))


def by_autograd(name, bench, chosen, adv, mode="constant", **hyper):
    """Gradient in the logits of one batch of responses: aggregate, then backward; -> [S, A]."""
    tree, width = bench.tree, bench.tree.horizon
    logits = torch.tensor(np.log(bench.pi_SA), requires_grad=True)
    log_pi, log_mu = logits.log_softmax(-1), torch.tensor(np.log(bench.mu_SA))
    rows_pi, rows_mu, mask = [], [], []
    for prompt, tokens, *_ in chosen:
        states = [state_of(tree, prompt, tokens[:t]) for t in range(len(tokens))]
        pad = [torch.zeros((), dtype=torch.float64)] * (width - len(tokens))
        rows_pi.append(torch.stack([log_pi[s, a] for s, a in zip(states, tokens, strict=True)] + pad))
        rows_mu.append(torch.stack([log_mu[s, a] for s, a in zip(states, tokens, strict=True)] + pad))
        mask.append([t < len(tokens) for t in range(width)])
    mask, mu = torch.tensor(mask), torch.stack(rows_mu)
    whole = torch.zeros(mask.shape, dtype=torch.int64)
    reward = torch.tensor([each[4] for each in chosen], dtype=torch.float64)
    adv_BT = torch.where(mask, torch.as_tensor(adv, dtype=torch.float64)[:, None], 0.0)
    batch = Batch(mu, adv_BT, mask, reward, whole[:, 0], mu, mu, whole, None, whole[:, 0])
    function = plain_ratio(name[6:]) if name.startswith("ratio:") else objective[name].bind(**hyper)
    length = 1.0 if mode == "constant" else 0.0
    aggregate(function(torch.stack(rows_pi), batch), mask, mode, length).backward()
    return -logits.grad.numpy()


def moments(weighted):
    """Mean and trace of the covariance of gradients given as (probability, gradient)."""
    mean = sum(p * g for p, g in weighted)
    return mean, sum(p * (g**2).sum() for p, g in weighted) - (mean**2).sum()


def test_the_leaves_are_the_responses_each_once_with_their_probability_and_reward(bench):
    found = bench.leaves
    expected = list(responses(bench))
    assert len(found.reward_L) == len(expected)
    for number, (prompt, tokens, mu, pi, reward) in enumerate(expected):
        mask = found.mask_LT[number]
        assert tuple(found.action_LT[number][mask]) == tokens
        assert [bench.tree.prefix(s) for s in found.state_LT[number][mask]] == [
            (prompt, tokens[:t]) for t in range(len(tokens))
        ]
        np.testing.assert_allclose(bench.law_L[number], mu, rtol=1e-12)
        np.testing.assert_allclose(found.probability(bench.pi_SA)[number], pi, rtol=1e-12)
        assert found.reward_L[number] == reward


def test_the_target_is_the_derivative_of_the_value():
    bench = small_bench(vocabulary=3)
    logits, step = np.log(bench.pi_SA), 1e-6

    def value(moved):
        return bench.leaves.probability(softmax(moved)) @ bench.leaves.reward_L

    for s, a in itertools.product(*map(range, logits.shape)):
        up, down = logits.copy(), logits.copy()
        up[s, a] += step
        down[s, a] -= step
        np.testing.assert_allclose((value(up) - value(down)) / (2 * step), bench.target_SA[s, a], atol=1e-9)


@pytest.mark.parametrize(
    "name", ["ppo_clip", "gspo", "minpro", "m2po", "cispo", "topr", "oapl", "ratio:prefix", "ratio:suffix"]
)
def test_mean_and_variance_are_those_of_every_single_response_by_autograd(name, bench):
    each = list(responses(bench))
    mean, variance = moments([(r[2], by_autograd(name, bench, [r], [r[4] - 0.3])) for r in each])
    found = gradient_report(name, bench, signal="R-b", baseline=0.3)
    np.testing.assert_allclose(found.mean_SA, mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)
    shift = sum(r[2] * by_autograd(name, bench, [r], [1.0]) for r in each)
    np.testing.assert_allclose(found.shift_SA, shift, atol=1e-12)


@pytest.mark.parametrize("mode", ["token_mean", "sequence_mean"])
def test_an_aggregation_divides_as_it_does_in_training(mode):
    bench = Bench(two_prompts(), *random_policies(two_prompts(), 0.7, seed=4))
    each = list(responses(bench))
    mean, variance = moments([(r[2], by_autograd("ppo_clip", bench, [r], [r[4]], mode)) for r in each])
    found = gradient_report("ppo_clip", bench, aggregation=mode)
    np.testing.assert_allclose(found.mean_SA, mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "size", "mode"),
    [("m2po", 2, "constant"), ("m2po", 3, "token_mean"), ("ppo_clip", 2, "constant"),
     ("rebel", 2, "constant")],
)  # fmt: skip
def test_batches_are_every_tuple_of_responses(name, size, mode):
    bench = small_bench(drift=1.0)
    each = list(responses(bench))
    weighted = [
        (np.prod([r[2] for r in chosen]), by_autograd(name, bench, chosen, [r[4] for r in chosen], mode))
        for chosen in itertools.product(each, repeat=size)
    ]
    mean, variance = moments(weighted)
    aggregation = None if mode == "constant" else mode
    found = group_report(name, bench, size=size, aggregation=aggregation)
    np.testing.assert_allclose(found.mean_SA, mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)


def test_a_group_answers_one_prompt_and_shares_its_mean():
    tree = two_prompts()
    bench = Bench(tree, *random_policies(tree, 0.4, seed=4))
    each = list(responses(bench))
    weighted = []
    for chosen in itertools.product(each, repeat=2):
        if chosen[0][0] == chosen[1][0]:
            rewards = np.array([r[4] for r in chosen])
            mass = 2 * chosen[0][2] * chosen[1][2]  # 1/2 the prompt, once
            weighted.append((mass, by_autograd("ppo_clip", bench, chosen, rewards - rewards.mean())))
    assert sum(p for p, _ in weighted) == pytest.approx(1.0)
    mean, variance = moments(weighted)
    found = group_report("ppo_clip", bench, size=2, advantage="group_mean")
    np.testing.assert_allclose(found.mean_SA, mean, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-9)


def test_the_parts_of_a_bias_are_those_of_the_plain_ratios(bench):
    found = {level: gradient_report(f"ratio:{level}", bench) for level in ("token", "prefix", "suffix")}
    np.testing.assert_allclose(found["token"].split["state"], found["suffix"].bias_SA, atol=1e-13)
    np.testing.assert_allclose(found["prefix"].split["suffix"], found["prefix"].bias_SA, atol=1e-13)
    clipped = gradient_report("ppo_clip", bench)
    both = clipped.split["state"] + clipped.split["suffix"]
    np.testing.assert_allclose(both, found["token"].bias_SA, atol=1e-13)
    np.testing.assert_allclose(sum(clipped.split.values()), clipped.bias_SA, atol=1e-13)
    assert sum(clipped.shares.values()) == pytest.approx(clipped.relative_bias)
    assert gradient_report("ppo_clip", bench, signal="A").split["suffix"] == pytest.approx(0.0, abs=1e-13)


def test_facts_are_sums_over_responses(bench):
    each = list(responses(bench))
    mu, pi, reward = (np.array([r[i] for r in each]) for i in (2, 3, 4))
    found = tree_facts(bench.tree, bench.mu_SA, bench.pi_SA)
    assert found.leaves == len(each)
    assert found.prefixes == bench.tree.states
    assert (found.value_mu, found.value_pi) == pytest.approx((mu @ reward, pi @ reward))
    assert found.kl_pi_mu == pytest.approx(pi @ np.log(pi / mu))
    assert found.kl_mu_pi == pytest.approx(mu @ np.log(mu / pi))
    assert found.chi2 == pytest.approx(mu @ (pi / mu) ** 2 - 1)
    assert found.renyi2 == pytest.approx(np.log(pi @ (pi / mu)))
    assert found.ess_sequence == pytest.approx(1 / (mu @ (pi / mu) ** 2))
    assert found.ess_perplexity == pytest.approx(np.exp(-found.kl_pi_mu))
    assert found.ess_max == pytest.approx((mu / pi).min())
    ratio_LT = np.exp(bench.logp_pi_LT - bench.logp_mu_LT)
    prefix_T = 1 / (bench.law_L @ ratio_LT.cumprod(-1) ** 2)
    assert found.ess_prefix_T == pytest.approx(tuple(prefix_T))
    mass = bench.law_L[:, None] * bench.leaves.mask_LT
    pooled = (mass * ratio_LT).sum() ** 2 / ((mass * ratio_LT**2).sum() * mass.sum())
    assert found.ess_token == pytest.approx(pooled)


@pytest.mark.parametrize("name", ["ratio:sequence", "ratio:geometric", "reinforce"])
def test_no_baseline_is_better_than_the_best_even_where_it_moves_the_mean(name, bench):
    best = optimal_baselines(bench, name)
    least = gradient_report(name, bench, signal="R-b").variance
    for b in (-1.0, best.scalar - 1e-3, best.scalar + 1e-3, 2.0):
        there = gradient_report(name, bench, signal="R-b", baseline=b).variance
        assert there - least == pytest.approx((b - best.scalar) ** 2 * best.curvature, rel=1e-6)

    def spread(b):
        weighted = [(r[2], by_autograd(name, bench, [r], [r[4] - b])[0, 1]) for r in responses(bench)]
        mean = sum(p * g for p, g in weighted)
        return sum(p * (g - mean) ** 2 for p, g in weighted)

    at, above, below = (spread(best.coordinate_SA[0, 1] + off) for off in (0.0, 0.05, -0.05))
    assert at < min(above, below)
    assert above == pytest.approx(below)  # a parabola around its minimum


def test_a_weight_that_reads_the_sign_of_the_advantage_has_no_single_best_baseline():
    with pytest.raises(UserError, match="ppo_clip is not linear in the advantage"):
        gradient_report("ppo_clip", small_bench(drift=1.0), signal="R-b")


def variants_slow(names):
    """Parameters of which those with "@", lines on their base's formula, are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * ("@" in name)) for name in names]


@pytest.mark.parametrize("name", variants_slow(objective))
def test_every_registered_objective_has_a_report(name):
    found = gradient_report(name, small_bench(drift=0.3))
    assert np.isfinite(found.mean_SA).all()
    assert found.variance >= -1e-15
    assert set(found.split) == {"state", "suffix", "clipping"}


def test_multisets_are_the_distinct_draws_with_their_orderings():
    index, orders = multisets(3, 4)
    counted = {}
    for drawn in itertools.product(range(3), repeat=4):
        counted[tuple(sorted(drawn))] = counted.get(tuple(sorted(drawn)), 0) + 1
    assert {tuple(map(int, row)): int(n) for row, n in zip(index, orders, strict=True)} == counted


def test_bad_input_is_answered_with_one_sentence():
    refuses(r"1,073,741,824 leaves.*limit is 8,388,608", check_size, 8, 10)
    refuses("limit is 8,388,608", random_tree, 30, 9)
    refuses("got a TokenTree; give it Bench", group_report, "ppo_clip", random_tree(2, 2), size=2)
    tree = random_tree(2, 2)
    mu, pi = random_policies(tree, 0.1)
    zero = mu.copy()
    zero[1] = [0.0, 1.0]
    refuses(r"mu gives probability 0 to action 0 in state 1 .*\[0\]", Bench, tree, zero, pi)
    refuses("pi has shape", Bench, tree, mu, pi[:1])
    refuses("is not a distribution; pass probabilities", Bench, tree, np.log(mu), pi)
    refuses("needs mu_SA and pi_SA", gradient_report, "reinforce", tree)
    refuses("Unknown signal 'Q'", gradient_report, "reinforce", tree, mu, pi, signal="Q")
    refuses("Unknown ratio level 'tokn'.*token", gradient_report, "ratio:tokn", tree, mu, pi)
    refuses("has no hyperparameter 'eps'", gradient_report, "ppo_clip", tree, mu, pi, eps=0.1)
    refuses(r"shape \(3,\), expected \[V\^T\] = \[4\]", reward_tree, np.zeros(3), 2, 2)
    refuses("not finite", reward_tree, [0.0, np.nan, 0.0, 0.0], 2, 2)
    with pytest.raises(UserError, match="the limit is 524,288"):
        group_report("reinforce", Bench(random_tree(4, 4), *random_policies(random_tree(4, 4), 0.1)), size=4)
    refuses("'gae' needs value_BT", group_report, "reinforce", Bench(tree, mu, pi), size=2, advantage="gae")


@pytest.mark.parametrize("given", [{}, {"mu_SA": np.ones((1, 2)) / 2}, {"pi_SA": np.ones((1, 2)) / 2}])
def test_a_report_on_a_tree_needs_both_policies(given):
    refuses("needs mu_SA and pi_SA next to a tree", gradient_report, "reinforce", object(), **given)
