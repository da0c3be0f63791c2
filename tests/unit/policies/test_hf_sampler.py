"""The sampler of real models: engine distributions, finished rows, room for the cache, new weights."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import tiny_models
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.mismatch import Draw, engine
from testbed.mismatch.behavior import Behavior
from testbed.policies.hf import hf_decoder
from testbed.policies.hf.growing_cache import RoomyLayer
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.options import LOGP_TOLERANCE
from testbed.policies.token_versions import logp_by_version
from testbed.training.loop import train

TASK = tiny_models.Echo()
N, GROUP, T = 5, 4, TASK.response_length
B = N * GROUP
NEAR = {"rtol": 0, "atol": LOGP_TOLERANCE[torch.float32]}
LAWS = {"top-p": {"p": 0.6}, "logit-noise": {"sigma": 0.5}, "top-k+temperature": {"k": 3, "temperature": 1.5}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("m") / "llama", tiny_models.CONFIGS["llama"]())


@pytest.fixture(scope="module")
def policy(folder):
    return HuggingFacePolicy(folder, TASK, temperature=2.0)


@pytest.fixture(scope="module")
def versions(policy):
    """Three versions of the weights, [1, 3, P]."""
    start_RP = policy.initial([0])
    noise = torch.Generator().manual_seed(0)
    moved = [0.05 * i * torch.randn(start_RP.shape, generator=noise) for i in range(3)]
    return torch.stack([start_RP + step for step in moved], 1)


def prompts(seed=0, replicas=1):
    rng = np.random.default_rng(seed)
    return torch.as_tensor(np.stack([TASK.prompts(rng, N) for _ in range(replicas)]))


def uniforms(seed=1, replicas=1):
    return torch.as_tensor(np.random.default_rng(seed).random((replicas, B, T)))


@pytest.mark.parametrize("name", LAWS)
def test_an_engine_records_its_own_law_and_the_policy_keeps_the_raw_one(policy, name):
    made = engine(name, **LAWS[name])
    theta_RP, prompt_RNQ = policy.initial([0, 1]) * torch.tensor([[1.0], [0.9]]), prompts(replicas=2)
    behavior = Behavior(policy, made, (3, 4))
    token_RBT, mask_RBT, mu_RBT = behavior.sample(theta_RP, prompt_RNQ, GROUP, uniforms(replicas=2), step=5)
    rollout = Rollout(prompt_RNQ, token_RBT, mask_RBT, mu_RBT, torch.zeros(2, B), GROUP)
    raw_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    # What the engine's law makes of the raw law of every place, found by giving the responses one token each.
    for t in (0, 3):
        law_RVB = torch.full((2, TASK.vocabulary, B), -torch.inf)
        for v in range(TASK.vocabulary):
            forced_RBT = token_RBT[..., : t + 1].clone()
            forced_RBT[..., t] = v
            here = policy.logp(theta_RP, prompt_RNQ, forced_RBT, torch.ones_like(forced_RBT).bool())
            law_RVB[:, v] = here[..., t]
        draw = Draw((3, 4), 5, policy.positions)
        changed_RBV = made.distribution(law_RVB.transpose(1, 2), draw, t)
        expected_RB = changed_RBV.gather(2, token_RBT[..., t, None])[..., 0]
        inside_RB = mask_RBT[..., t]
        torch.testing.assert_close(mu_RBT[..., t][inside_RB], expected_RB[inside_RB], rtol=0, atol=1e-4)
    torch.testing.assert_close(behavior.logp(theta_RP, rollout, step=5), mu_RBT, **NEAR)
    assert ((raw_RBT - mu_RBT).abs()[mask_RBT] > 1e-3).any()


def test_rows_that_ended_leave_and_change_nothing(policy, monkeypatch):
    theta_RP, widths = policy.initial([0]), []
    run = policy._model.run_tokens

    def spy(weights, prefix, token_BT, new):
        widths.append(len(token_BT))
        return run(weights, prefix, token_BT, new)

    monkeypatch.setattr(policy._model, "run_tokens", spy)
    monkeypatch.setattr(hf_decoder, "LEAVE", 0.99)
    left = policy.sample(theta_RP, prompts(), GROUP, uniforms())
    monkeypatch.setattr(hf_decoder, "LEAVE", 0.0)
    stayed = policy.sample(theta_RP, prompts(), GROUP, uniforms())
    assert widths == sorted(widths[: T - 1], reverse=True) + [B] * (T - 1)
    assert widths[T - 2] == int(left[1][..., -1].sum()) < B
    assert torch.equal(left[0], stayed[0])
    assert torch.equal(left[1], stayed[1])
    torch.testing.assert_close(left[2], stayed[2], **NEAR)


def test_windowed_layers_of_a_cache_get_no_room():
    layers = [DynamicLayer(), DynamicSlidingWindowLayer(2)]
    for layer in layers:
        layer.update(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2))
    hf_decoder.make_room(cache := SimpleNamespace(layers=list(layers)), 2)
    assert [type(each).__name__ for each in cache.layers] == ["RoomyLayer", "DynamicSlidingWindowLayer"]


def test_a_cache_with_room_holds_what_a_plain_one_holds_and_moves_only_when_it_is_full():
    keys = torch.arange(108.0).view(2, 3, 9, 2)
    values = -keys
    plain = DynamicLayer()
    plain.update(keys[..., :2, :], values[..., :2, :])
    roomy = RoomyLayer(plain, 4)
    for stop, room in ((3, 4), (4, 4), (6, 12), (9, 12)):
        new = slice(roomy.keys.shape[-2], stop)
        found = roomy.update(keys[..., new, :], values[..., new, :])
        for each, whole in zip((*found, roomy.keys, roomy.values), (keys, values) * 2, strict=True):
            assert torch.equal(each, whole[..., :stop, :])
        assert [buffer.shape for buffer in roomy._buffers] == [(2, 3, room, 2)] * 2
    roomy.batch_select_indices(torch.tensor([1]))
    assert torch.equal(roomy.keys, keys[1:])
    assert torch.equal(roomy.values, values[1:])
    less = RoomyLayer(plain, 1)
    assert (less._buffers[1].shape[-2], less.keys.tolist()) == (2, keys[..., :2, :].tolist())


def test_in_flight_at_one_version_is_the_plain_sampler(policy, versions):
    version_RBT = torch.ones(1, 1, T, dtype=torch.int64)
    for cache in ("kept", "recomputed"):
        flown = policy.sample_in_flight(versions, version_RBT, prompts(), GROUP, uniforms(), cache)
        plain = policy.sample(versions[:, 1], prompts(), GROUP, uniforms())
        assert all(torch.equal(a, b) for a, b in zip(flown, plain, strict=True))


def courses() -> torch.Tensor:
    """Versions that differ from row to row: most change once or twice, some never."""
    start_B = torch.arange(B) % 3
    return ((torch.arange(T)[None] + start_B[:, None]) // 2).clamp(max=2)[None]


def test_a_recomputed_cache_gives_every_token_the_law_of_its_version(policy, versions):
    token_RBT, mask_RBT, logp_RBT = policy.sample_in_flight(
        versions, courses(), prompts(), GROUP, uniforms(), "recomputed"
    )
    expected_RBT = logp_by_version(
        lambda theta_RP: policy.logp(theta_RP, prompts(), token_RBT, mask_RBT), versions, courses(), mask_RBT
    )
    torch.testing.assert_close(logp_RBT, expected_RBT, **NEAR)
    assert mask_RBT[..., 2].any()


def test_a_kept_cache_holds_what_older_weights_left_there(policy, versions, folder):
    """Against transformers itself: one row at a time, a module per version, one cache handed on."""
    token_RBT, mask_RBT, logp_RBT = policy.sample_in_flight(
        versions, courses(), prompts(), GROUP, uniforms(), "kept"
    )
    modules = []
    for theta_P in versions[0]:
        module = tiny_models.open_model(folder)
        torch.nn.utils.vector_to_parameters(theta_P, module.parameters())
        modules.append(module)
    changed = 0
    for b in range(B):
        prompt_Q = prompts()[0, b // GROUP]
        given, cache = prompt_Q[prompt_Q != TASK.pad_token], DynamicCache()
        for t in range(int(mask_RBT[0, b].sum())):
            with torch.no_grad():
                module = modules[int(courses()[0, b, t])]
                logits_V = module(input_ids=given[None], past_key_values=cache).logits[
                    0, -1, : TASK.vocabulary
                ]
            given = token_RBT[0, b, t : t + 1]
            expected = (logits_V / 2.0).log_softmax(-1)[given[0]]
            torch.testing.assert_close(logp_RBT[0, b, t], expected, rtol=0, atol=1e-4)
        changed += int(courses()[0, b, 0] != courses()[0, b, t])
    assert changed > 3
    read_RBT = policy.logp_in_flight(versions, courses(), prompts(), token_RBT, mask_RBT, "kept")
    torch.testing.assert_close(read_RBT, logp_RBT, **NEAR)
    other_RBT = policy.logp_in_flight(versions, courses(), prompts(), token_RBT, mask_RBT, "recomputed")
    assert (other_RBT - logp_RBT).abs().max() > 1e-3


def test_a_law_reaches_responses_in_flight(policy, versions):
    law = lambda law_RVB, t: torch.where(  # noqa: E731
        law_RVB == law_RVB.amax(1, keepdim=True), 0.0, -torch.inf
    )
    drawn = policy.sample_in_flight(versions, courses(), prompts(), GROUP, uniforms(), "recomputed", law)
    greedy = policy.sample_in_flight(versions, courses(), prompts(), GROUP, 0 * uniforms(), "recomputed", law)
    assert torch.equal(drawn[0], greedy[0])
    assert (drawn[2] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments"), [("in-flight", {"tokens": 2}), ("partial", {"tokens": 2})])
def test_weights_that_change_inside_a_response_train_a_real_model(tmp_path, name, arguments):
    from envs.tokens.length import Length
    from testbed.policies.hf.tiny_model import save_random_model, save_tokenizer

    task = Length(digits=2, limit=5, modulus=2)
    save_tokenizer(tmp_path, task)
    save_random_model(tmp_path, task, 0, 16, 1)
    run = Run(
        task="length", task_args=(("digits", 2), ("limit", 5), ("modulus", 2)), policy="hf",
        model=str(tmp_path), recipe="reinforce", staleness=name, staleness_args=tuple(arguments.items()),
        steps=4, prompts=2, group=2, learning_rate=3e-2, optimizer="adam", log_every=1, evaluation_prompts=2,
    )  # fmt: skip
    table = train(run)
    assert table["staleness/age_max_token"][-1] >= 1
    assert not np.array(table["diverged"]).any()
    plain = train(dataclasses.replace(run, staleness="exact", staleness_args=()))
    assert not np.array_equal(table["actor/grad_norm"], plain["actor/grad_norm"])


def test_the_module_has_its_own_weights_back_after_sampling_under_others(policy, monkeypatch):
    own = {name: value.clone() for name, value in policy._model.module.named_parameters()}
    prompt_RNQ = torch.as_tensor(TASK.prompts(np.random.default_rng(0), 2))[None]
    other_RP = policy.initial([0]) + 1.0
    uniform_RBT = np.random.default_rng(1).random((1, 4, TASK.response_length))
    first = policy.sample(other_RP, prompt_RNQ, 2, uniform_RBT)
    for fails in (False, True):
        if fails:
            monkeypatch.setattr(type(policy._model), "run_tokens", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                policy.sample(other_RP, prompt_RNQ, 2, uniform_RBT)
        for name, value in policy._model.module.named_parameters():
            assert torch.equal(value, own[name])
    monkeypatch.undo()
    assert torch.equal(policy.sample(other_RP, prompt_RNQ, 2, uniform_RBT)[2], first[2])


def test_a_response_ends_with_an_end_token_at_its_last_place_or_with_a_stop_string():
    ends = SimpleNamespace(end_tokens=(3, 7), stops=())
    stops = SimpleNamespace(end_tokens=(7,), stops=("x",), stopped=lambda token_MT: token_MT[:, -1] == 3)
    for task in (ends, stops):
        token_MT = torch.tensor([[0, 3], [0, 7], [7, 0], [3, 5]])
        over_M = hf_decoder.ended_by(task)(token_MT, torch.arange(4), 1)
        assert over_M.tolist() == [True, True, False, False]


def test_a_choice_has_the_log_probability_of_its_token_in_its_own_row():
    logits_MV, row_M = torch.tensor([[1.0, 3, 2], [5.0, 0, 1], [0.0, 0, 4]]), torch.tensor([4, 0, 2])
    law_MV = logits_MV.log_softmax(-1)
    token_BT = torch.tensor([[9, 1], [9, 9], [9, 0], [9, 9], [9, 2]])
    for choose, tokens in ((hf_decoder.greedily, [1, 0, 2]), (hf_decoder.reading(token_BT), [2, 1, 0])):
        token_M, logp_M = choose(logits_MV, row_M, 1)
        assert token_M.tolist() == tokens
        torch.testing.assert_close(logp_M, law_MV[torch.arange(3), token_M])
    mask_BT = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    over = [hf_decoder.ended_with(mask_BT)(None, torch.tensor([2, 1, 0]), t).tolist() for t in range(3)]
    assert over == [[False, True, False], [False, True, True], [True, True, True]]


def test_what_is_read_back_ends_with_its_mask_alone(policy, versions):
    """Also behind an end token, as a prefix that another policy wrote may have one."""
    token_RBT = torch.full((1, B, T), TASK.end_token)
    every_RBT = torch.ones_like(token_RBT, dtype=torch.bool)
    read_RBT = policy.logp_in_flight(versions, courses() * 0, prompts(), token_RBT, every_RBT)
    torch.testing.assert_close(read_RBT, policy.logp(versions[:, 0], prompts(), token_RBT, every_RBT), **NEAR)
    first_RBT = torch.cat([every_RBT & (torch.arange(T) < 1), every_RBT])  # a replica ends before another
    both = (versions.expand(2, -1, -1), courses().expand(2, -1, -1) * 0, prompts().expand(2, -1, -1))
    read_RBT = policy.logp_in_flight(*both, token_RBT.expand(2, -1, -1), first_RBT)
    assert (read_RBT != 0).tolist() == first_RBT.tolist()


def test_a_token_of_chance_one_in_a_billion_has_its_share_of_the_uniforms():
    """In float32 the tokens before it already add up to 1."""
    logits_BV = torch.tensor([[0.0, np.log(1e-9)]], dtype=torch.float32).expand(2, 2)
    token_B, _ = hf_decoder.inverse_cdf(logits_BV, 1 - torch.tensor([2e-9, 5e-10], dtype=torch.float64))
    assert token_B.tolist() == [0, 1]


def test_greedy_responses_take_the_likeliest_token_at_every_place(policy):
    theta_RP, prompt_RNQ = policy.initial([0]), prompts()
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, 1, uniforms()[:, :N], greedy=True)
    for v in range(TASK.vocabulary):
        for t in range(T):
            other_RBT = token_RBT.clone()
            other_RBT[..., t] = v
            logp_RB = policy.logp(theta_RP, prompt_RNQ, other_RBT, mask_RBT)[..., t]
            assert (logp_RB <= logp_RBT[..., t] + 1e-4)[mask_RBT[..., t]].all()
