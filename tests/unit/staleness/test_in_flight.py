"""Weights that change inside a sequence: who draws which token, from which law, with which cache."""

import itertools

import numpy as np
import pytest
import torch
from references import reference_mdp
from references.reference_transformer import changing_laws
from support.refusals import refuses
from support.small_mdps import SMALL, bare, policies
from torch import Tensor
from torch.testing import assert_close

from envs import kernels
from envs.catalog import token_task
from envs.tokens.token_tree import tree
from testbed.errors import UserError
from testbed.mismatch import Draw, engine
from testbed.policies.tabular_policy import TabularPolicy
from testbed.policies.token_versions import logp_by_version
from testbed.policies.toy.toy_sampler import inverse_cdf
from testbed.policies.toy.toy_transformer import LOGP_TOLERANCE, ToyTransformer
from testbed.staleness import schedule

R, N, GROUP, W = 2, 2, 4, 3
B = N * GROUP
KEYS = np.array([4, 9], dtype=np.uint64)
FIXED = token_task("running-sum", {"digits": 5, "modulus": 3})
WITH_END = token_task("length", {"digits": 2, "modulus": 3, "limit": 6})
CACHES = ("kept", "recomputed")


def toy(task=FIXED, dtype=torch.float64, **sizes) -> ToyTransformer:
    return ToyTransformer(task, **{"width": 16, "heads": 2, "dtype": dtype, **sizes})


def weights(policy: ToyTransformer, versions: int = W, scale: float = 2.0) -> Tensor:
    """Weights [R, W, P] of unrelated versions, large enough that their laws differ."""
    return scale * policy.initial(range(R * versions)).view(R, versions, -1)


def given(task=FIXED, group: int = GROUP) -> tuple[Tensor, Tensor]:
    """Prompts and uniforms."""
    prompt = np.stack([task.prompts(np.random.default_rng(r), N) for r in range(R)])
    uniform = torch.rand(
        R, N * group, task.response_length, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    return torch.from_numpy(prompt), uniform


def schedules(tokens: int, seed: int = 1) -> Tensor:
    """Versions [R, B, T] that change at other tokens in each sequence; sequence 0 never changes."""
    drawn = np.sort(np.random.default_rng(seed).integers(0, W, (R, B, tokens)), axis=-1)
    drawn[:, 0] = 1
    return torch.from_numpy(drawn)


def reference(policy: ToyTransformer, theta, version, prompt, token) -> Tensor:
    """Laws [R, B, T, V] of a plain transformer in which each token is read by the weights of its version."""
    laws = np.empty((*token.shape, policy.shape.vocabulary))
    Q = prompt.shape[2]
    for r, b in itertools.product(range(R), range(token.shape[1])):
        named = [{n: w.double().numpy()[0] for n, w in policy.shape.named(x[None]).items()} for x in theta[r]]
        own = [named[v] for v in version[r, b].tolist()]
        read = prompt[r, b // (token.shape[1] // N)].tolist() + token[r, b, :-1].tolist()
        pad = policy.task.pad_token
        start = next((k for k, t in enumerate(read[:Q]) if t != pad), Q)
        readers = ([own[0]] * (Q - start) + own[1:])[: len(read) - start]
        laws[r, b] = changing_laws(readers, policy.heads, start, read[start:], policy.temperature)[
            Q - start - 1 :
        ]
    return torch.from_numpy(laws)


def named(laws: Tensor, token: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, laws.gather(3, token[..., None])[..., 0], 0.0)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chosen", [0, 2])
def test_one_version_is_the_unmixed_sampler_bit_for_bit(cache, dtype, chosen):
    policy = toy(WITH_END, dtype)
    theta, (prompt, uniform) = weights(policy), given(WITH_END)
    versions = torch.full((R, 1, 1), chosen)
    own = policy.sample(theta[:, chosen], prompt, GROUP, uniform)
    mixed = policy.sample_in_flight(theta, versions, prompt, GROUP, uniform, cache)
    assert all(map(torch.equal, mixed, own))
    alone = policy.sample_in_flight(theta[:, chosen, None], 0 * versions, prompt, GROUP, uniform, cache)
    assert all(map(torch.equal, alone, own))


@pytest.mark.parametrize("task", [FIXED, WITH_END], ids=["fixed-length", "with-end"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_a_recomputed_cache_each_token_has_the_policys_law_at_its_version(task, dtype):
    policy = toy(task, dtype)
    theta, (prompt, uniform) = weights(policy), given(task)
    version = schedules(task.response_length)
    token, mask, logp = policy.sample_in_flight(theta, version, prompt, GROUP, uniform, "recomputed")
    every = torch.stack([policy.log_distribution(theta[:, v], prompt, token) for v in range(W)], 3)
    laws = every.gather(3, version[..., None, None].expand(-1, -1, -1, 1, every.shape[-1]))[..., 0, :]
    tolerance = 10 * LOGP_TOLERANCE if dtype == torch.float32 else 1e-13
    assert_close(logp, named(laws, token, mask), atol=tolerance, rtol=0)
    if dtype == torch.float64:
        drawn = inverse_cdf(laws.flatten(0, 2)[..., None], uniform.view(-1, 1)).view_as(token)
        assert torch.equal(torch.where(mask, drawn, 0), token)


@pytest.mark.parametrize("task", [FIXED, WITH_END], ids=["fixed-length", "with-end"])
@pytest.mark.parametrize("heads", [1, 8], ids=["compiled", "dense"])
def test_a_kept_cache_is_that_of_a_plain_transformer_whose_tokens_are_read_once(task, heads):
    policy = toy(task, torch.float32, heads=heads, temperature=0.8)
    theta, (prompt, uniform) = weights(policy), given(task)
    version = schedules(task.response_length)
    token, mask, logp = policy.sample_in_flight(theta, version, prompt, GROUP, uniform, "kept")
    laws = reference(policy, theta, version, prompt, token)
    assert_close(logp.double(), named(laws, token, mask), atol=3e-6, rtol=0)
    exact = ToyTransformer(task, width=16, heads=heads, temperature=0.8, dtype=torch.float64)
    token, mask, logp = exact.sample_in_flight(theta.double(), version, prompt, GROUP, uniform, "kept")
    laws = reference(exact, theta.double(), version, prompt, token)
    assert_close(logp, named(laws, token, mask), atol=1e-12, rtol=0)
    drawn = inverse_cdf(laws.flatten(0, 2)[..., None], uniform.view(-1, 1)).view_as(token)
    assert torch.equal(torch.where(mask, drawn, 0), token)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sequence_does_not_notice_when_others_change(cache, dtype):
    policy = toy(WITH_END, dtype)
    theta, (prompt, uniform) = weights(policy), given(WITH_END)
    version = schedules(WITH_END.response_length)
    mixed = policy.sample_in_flight(theta, version, prompt, GROUP, uniform, cache)
    for b in range(B):
        alike = policy.sample_in_flight(theta, version[:, b : b + 1], prompt, GROUP, uniform, cache)
        for ours, theirs in zip(mixed, alike, strict=True):
            assert torch.equal(ours[:, b], theirs[:, b])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recorded_log_probabilities_are_reproduced_from_the_versions(cache, dtype):
    policy = toy(WITH_END, dtype)
    theta, (prompt, uniform) = weights(policy), given(WITH_END)
    version = schedules(WITH_END.response_length)
    token, mask, logp = policy.sample_in_flight(theta, version, prompt, GROUP, uniform, cache)
    again = policy.logp_in_flight(theta, version, prompt, token, mask, cache)
    if cache == "kept":
        assert torch.equal(again, logp)
    else:
        assert_close(again, logp, atol=10 * LOGP_TOLERANCE if dtype == torch.float32 else 1e-13, rtol=0)
    other = "kept" if cache == "recomputed" else "recomputed"
    assert (policy.logp_in_flight(theta, version, prompt, token, mask, other) - logp).abs().max() > 1e-2


def test_the_gradient_of_a_token_reaches_its_own_version_only():
    policy = toy()
    prompt, _ = given()
    theta = weights(policy).requires_grad_()
    token = torch.zeros(R, B, 5, dtype=torch.int64)
    version = torch.tensor([0, 0, 0, 2, 2]).view(1, 1, 5)
    mask = torch.ones_like(token, dtype=torch.bool)
    logp = policy.logp_in_flight(theta, version, prompt, token, mask, "recomputed")
    (gradient,) = torch.autograd.grad(logp[..., 3:].sum(), theta)
    assert gradient[:, :2].abs().max() == 0
    leaf = theta.detach()[:, 2].requires_grad_()
    (own,) = torch.autograd.grad(policy.logp(leaf, prompt, token, mask)[..., 3:].sum(), leaf)
    assert_close(gradient[:, 2], own, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("cache", CACHES)
def test_an_engines_law_is_drawn_from_whatever_the_version(cache):
    policy = toy()
    theta, (prompt, uniform) = weights(policy), given()
    version, change = schedules(5), engine("temperature", temperature=2.0).distribution
    law = lambda log_pi, t: change(log_pi.transpose(1, 2), Draw((0, 1)), t).transpose(1, 2)  # noqa: E731
    token, _, logp = policy.sample_in_flight(theta, version, prompt, GROUP, uniform, cache, distribution=law)
    hot = toy(temperature=2.0).sample_in_flight(theta, version, prompt, GROUP, uniform, cache)
    assert torch.equal(token, hot[0])
    assert_close(logp, hot[2], atol=1e-13, rtol=0)


WORLDS = {**SMALL, "tree": tree(task="length", prompts=2), "tree-fixed": tree(task="running-sum", prompts=2)}
FIELDS = ("state_RBT", "action_RBT", "reward_RBT", "mask_RBT")


def starts(world) -> np.ndarray:
    return world.start(kernels.uniforms(KEYS, 99, N, 1)[..., 0])


@pytest.mark.parametrize("name", WORLDS)
def test_one_version_of_a_table_is_simulate_bit_for_bit(name):
    world = WORLDS[name]
    pi, start = policies(world, R, W), starts(world)
    for v in range(W):
        own = world.simulate(pi[:, v], start, GROUP, KEYS, 5)
        mixed = world.simulate_versions(pi, np.full((R, 1, 1), v), start, GROUP, KEYS, 5)
        for field in FIELDS:
            assert np.array_equal(getattr(mixed, field), getattr(own, field)), field


@pytest.mark.parametrize("name", WORLDS)
def test_a_slice_of_a_batch_draws_what_it_would_draw_in_the_whole(name):
    world = WORLDS[name]
    pi, start = policies(world, R, W), starts(world)
    version = np.random.default_rng(3).integers(0, W, (R, B, 1))
    mixed = world.simulate_versions(pi, version, start, GROUP, KEYS, 5)
    whole = [world.simulate(pi[:, v], start, GROUP, KEYS, 5) for v in range(W)]
    for r, b in itertools.product(range(R), range(B)):
        for field in FIELDS:
            own = getattr(whole[version[r, b, 0]], field)[r, b]
            assert np.array_equal(getattr(mixed, field)[r, b], own), field


@pytest.mark.parametrize("name", SMALL)
def test_each_step_is_drawn_by_the_table_of_its_version(name):
    world = SMALL[name]
    pi, start = policies(world, R, W), starts(world)
    version = schedules(world.horizon).numpy()
    episodes = world.simulate_versions(pi, version, start, GROUP, KEYS, 2)
    for r, key in enumerate(KEYS):
        expected = reference_mdp.simulate(
            bare(world), pi[r][version[r]], start[r], GROUP, int(key), 2, world.noise, world.noise_std
        )
        for b, steps in enumerate(expected):
            state, action, reward = (np.array(column) for column in zip(*steps, strict=True))
            assert episodes.mask_RBT[r, b].sum() == len(steps)
            assert np.array_equal(episodes.state_RBT[r, b, : len(steps)], state)
            assert np.array_equal(episodes.action_RBT[r, b, : len(steps)], action)
            assert episodes.reward_RBT[r, b, : len(steps)] == pytest.approx(reward, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ["tree", "tree-fixed"])
def test_each_token_of_a_tree_is_drawn_by_the_table_of_its_version(name):
    world = WORLDS[name]
    pi, start, version = policies(world, R, W), starts(world), schedules(world.horizon).numpy()
    episodes = world.simulate_versions(pi, version, start, GROUP, KEYS, 2)
    uniform = kernels.uniforms(KEYS, 2, B, world.horizon)
    number = {world.prefix(s): s for s in range(world.states)}
    for r, b in itertools.product(range(R), range(B)):
        prompt, prefix = start[r, b // GROUP] // world.nodes, ()
        for t in np.flatnonzero(episodes.mask_RBT[r, b]):
            state = number[prompt, prefix]
            law = pi[r, version[r, b, t], state]
            action = int(np.searchsorted(np.cumsum(law), uniform[r, b, t], side="right"))
            assert (episodes.state_RBT[r, b, t], episodes.action_RBT[r, b, t]) == (state, action)
            prefix = (*prefix, action)
        assert prefix[-1] == world.end_token or len(prefix) == world.horizon


def test_log_probabilities_by_version_are_those_of_the_table_that_drew():
    world = SMALL["terminal"]
    table = TabularPolicy(world.states, world.actions)
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((R, W, table.parameters)))
    pi = table.probabilities(theta.flatten(0, 1)).reshape(R, W, world.states, world.actions)
    version = schedules(world.horizon)
    episodes = world.simulate_versions(pi, version.numpy(), starts(world), GROUP, KEYS, 0)
    state, action, mask = (
        torch.from_numpy(getattr(episodes, name)) for name in ("state_RBT", "action_RBT", "mask_RBT")
    )
    logp = logp_by_version(lambda row: table.logp(row, state, action, mask), theta, version, mask)
    replica = np.arange(R)[:, None, None]
    expected = np.log(pi[replica, version.numpy(), state.numpy(), action.numpy()])
    np.testing.assert_allclose(logp, np.where(mask, expected, 0.0), atol=1e-13)


@pytest.mark.parametrize(
    ("version", "words"),
    [(torch.tensor([0, 1, 1, 0, 2]).view(1, 1, 5), r"falls at \[0, 0, 3\] from 1 to 0"),
     (torch.full((1, 1, 5), W), f"from 0 to {W - 1}"), (torch.full((1, 1, 5), -1), "from -1 to -1"),
     (torch.zeros(1, 1, 5), "torch.float32"),
     (torch.zeros(1, 3, 5, dtype=torch.int64), r"expected \(2, 8, 5\)"),
     (torch.zeros(5, dtype=torch.int64), r"shape \(5,\)")],
)  # fmt: skip
def test_versions_that_do_not_fit_are_refused(version, words):
    policy = toy()
    theta, (prompt, uniform) = weights(policy), given()
    refuses(words, policy.sample_in_flight, theta, version, prompt, GROUP, uniform)
    token = torch.zeros(R, B, 5, dtype=torch.int64)
    for cache in CACHES:
        refuses(words, policy.logp_in_flight, theta, version, prompt, token, token == 0, cache)


def test_other_caches_and_tables_are_refused():
    policy = toy()
    theta, (prompt, uniform) = weights(policy), given()
    with pytest.raises(UserError, match="expected 'kept' or 'recomputed'"):
        policy.sample_in_flight(theta, torch.zeros(1, 1, 5).long(), prompt, GROUP, uniform, "dropped")
    world = SMALL["terminal"]
    pi, start = policies(world, R, W), starts(world)
    for version, words in (
        (np.full((R, 1, 1), W), "from 3 to 3, expected whole numbers from 0 to 2"),
        (np.zeros((R, 1, 1)), "float64"),
        (np.zeros((R, 3, 1), int), r"expected \(2, 8, 3\)"),
    ):
        refuses(words, world.simulate_versions, pi, version, start, GROUP, KEYS, 0, error=ValueError)
    with pytest.raises(ValueError, match="W policies a replica"):
        world.simulate_versions(pi[:, 0], np.zeros((R, 1, 1), int), start, GROUP, KEYS, 0)
    with pytest.raises(ValueError, match="W policies a replica"):
        WORLDS["tree"].simulate_versions(
            policies(WORLDS["tree"], R), np.zeros((R, 1, 1), int), starts(WORLDS["tree"]), GROUP, KEYS, 0
        )


@pytest.mark.parametrize("wrong", [{"lag": -1}, {"tokens": 0}, {"versions": -1}])
def test_a_schedule_in_flight_has_its_least_numbers(wrong):
    least = {"lag": 0, "tokens": 1, "versions": 0}
    assert schedule["in-flight"].bind(tokens=1, versions=0)(0).tokens == 1
    given = least | wrong
    told = f"lag {given['lag']}, tokens {given['tokens']} and versions {given['versions']}"
    refuses(
        told, schedule["in-flight"].bind(tokens=given["tokens"], versions=given["versions"]), given["lag"]
    )
