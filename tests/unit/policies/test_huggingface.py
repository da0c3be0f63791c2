"""Hugging Face policies: what is sampled is what is trained, and both are what transformers computes."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.refusals import refuses

from testbed.errors import UserError
from testbed.policies.hf import causal_model, common_prefix, options
from testbed.policies.hf.build_hf import build_hf
from testbed.policies.hf.flat_parameters import FlatParameters
from testbed.policies.hf.hf_decoder import inverse_cdf
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.model_probes import cache_works, packing_works, plain_head, sharing_works
from testbed.policies.hf.options import LOGP_TOLERANCE
from testbed.policies.optimizers import Adam

TASK = tiny_models.Echo()
PROMPTS, GROUP = 5, 4
B = PROMPTS * GROUP


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    configs = {name: make() for name, make in tiny_models.CONFIGS.items()}
    return {n: tiny_models.write_model(root / n.split(",")[0], config) for n, config in configs.items()}


@pytest.fixture(params=list(tiny_models.CONFIGS))
def folder(request, folders):
    return folders[request.param]


def prompts(n=PROMPTS, seed=0):
    return torch.as_tensor(TASK.prompts(np.random.default_rng(seed), n))[None]


def uniforms(seed=1, b=B):
    return np.random.default_rng(seed).random((1, b, TASK.response_length))


def reference(model, prompt_RNQ, token_RBT, mask_RBT, temperature=1.0):
    """Next-token log-probabilities of every response, one row at a time: no cache, no padding, no batch."""
    rows = []
    for b, (token_T, mask_T) in enumerate(zip(token_RBT[0], mask_RBT[0], strict=True)):
        prompt_Q = prompt_RNQ[0, b // GROUP]
        row = torch.cat([prompt_Q[prompt_Q != TASK.pad_token], token_T[mask_T]])
        logits = model(input_ids=row[None, :-1], use_cache=False).logits[0, -int(mask_T.sum()) :]
        law_TV = (logits[:, : TASK.vocabulary] / temperature).log_softmax(-1)
        rows.append((law_TV, token_T[mask_T]))
    return rows


def reference_logp(model, prompt_RNQ, token_RBT, mask_RBT, temperature=1.0):
    rows = reference(model, prompt_RNQ, token_RBT, mask_RBT, temperature)
    return torch.cat([law_TV.gather(1, token_T[:, None])[:, 0] for law_TV, token_T in rows])


def test_sampled_log_probabilities_are_those_of_training_within_the_documented_tolerance(folder):
    policy = HuggingFacePolicy(folder, TASK)
    theta_RP, prompt_RNQ = policy.initial([0]), prompts()
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    log_rho_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT) - logp_RBT
    assert log_rho_RBT.abs().max() <= LOGP_TOLERANCE[torch.float32]
    assert (~mask_RBT).any()
    assert logp_RBT[mask_RBT].max() < 0


def test_log_probabilities_and_gradient_are_those_of_each_row_alone_without_padding_or_cache(folder):
    policy = HuggingFacePolicy(folder, TASK)
    theta_RP, prompt_RNQ = policy.initial([0]).requires_grad_(), prompts()
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    logp_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    weight_M = torch.randn(int(mask_RBT.sum()), generator=torch.Generator().manual_seed(0))
    (grad_RP,) = torch.autograd.grad((logp_RBT[mask_RBT] * weight_M).sum(), theta_RP)

    model = tiny_models.open_model(folder)
    expected_M = reference_logp(model, prompt_RNQ, token_RBT, mask_RBT)
    (expected_M * weight_M).sum().backward()
    expected_P = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(logp_RBT[mask_RBT], expected_M, rtol=0, atol=1e-5)
    assert (grad_RP[0] - expected_P).norm() <= 1e-5 * expected_P.norm()
    assert (logp_RBT[~mask_RBT] == 0).all()


def test_responses_packed_into_their_prompts_row_are_those_on_top_of_its_cache(folder, monkeypatch):
    policy = HuggingFacePolicy(folder, TASK)
    # Windows shorter than a packed row forbid it.
    assert policy._model._packs == (folder.name not in ("mistral", "gemma2"))
    theta_RP, prompt_RNQ = policy.initial([0]).requires_grad_(), prompts()
    model = policy._model
    assert policy.with_hidden(lambda _, x_BTD: x_BTD)._model is not policy._model is model
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    found = []
    for most in (causal_model.PACKED, 0):
        monkeypatch.setattr(causal_model, "PACKED", most)
        logp_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
        found.append((logp_RBT.detach(), *torch.autograd.grad(logp_RBT.square().sum(), theta_RP)))
    (packed, packed_RP), (apart, apart_RP) = found
    torch.testing.assert_close(packed, apart, rtol=0, atol=1e-5)
    assert (packed_RP - apart_RP).norm() <= 1e-5 * apart_RP.norm()


@pytest.mark.parametrize("packed", [causal_model.PACKED, 0])
def test_what_all_prompts_begin_with_runs_once_and_changes_nothing(folder, monkeypatch, packed):
    policy = HuggingFacePolicy(folder, TASK)
    monkeypatch.setattr(causal_model, "PACKED", packed)
    model, theta_RP = policy._model, policy.initial([0]).requires_grad_()
    # Layers that see a window count columns, and a gap of padding would be in them.
    assert (model.least_common == common_prefix.LEAST) == (folder.name not in ("mistral", "gemma2"))
    head = torch.arange(common_prefix.LEAST + 1) % 10
    rows = [torch.cat([head, row_Q[row_Q != TASK.pad_token]]) for row_Q in prompts()[0]]
    for row in rows[2:]:
        row[common_prefix.LEAST] = 9  # the first two have a token more in common than all
    longest = max(map(len, rows))
    whole = [torch.nn.functional.pad(row, (longest - len(row), 0), value=TASK.pad_token) for row in rows]
    prompt_RNQ = torch.stack(whole)[None]
    token_RBT, mask_RBT, mu_RBT = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    found = []
    for least in (model.least_common, sys.maxsize):
        monkeypatch.setattr(model, "least_common", least)
        logp_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
        found.append((logp_RBT.detach(), *torch.autograd.grad(logp_RBT.square().sum(), theta_RP)))
    (shared, shared_RP), (apart, apart_RP) = found
    torch.testing.assert_close(shared, apart, rtol=0, atol=1e-5)
    torch.testing.assert_close(mu_RBT, apart, rtol=0, atol=LOGP_TOLERANCE[torch.float32])
    assert (shared_RP - apart_RP).norm() <= 1e-5 * apart_RP.norm()


def test_responses_without_a_counted_token_have_log_probabilities_of_0(folder):
    policy = HuggingFacePolicy(folder, TASK)
    token_RBT = torch.ones((1, B, TASK.response_length), dtype=torch.int64)
    logp_RBT = policy.logp(policy.initial([0]), prompts(), token_RBT, token_RBT > 1)
    assert not logp_RBT.any()


def test_weights_lie_end_to_end_and_a_tied_or_frozen_one_is_not_there_twice_or_at_all():
    module = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(3, 2), "c": torch.nn.Linear(1, 1)}
    )
    module["b"].bias, module["c"].bias = module["a"].weight, module["a"].bias
    module["c"].weight.requires_grad_(False)
    flat = FlatParameters(module)
    assert (flat.names, flat.sizes, flat.total) == (["a.weight", "a.bias", "b.weight"], [6, 3, 6], 15)
    wide_P = flat.gather(module, torch.float64)
    assert module["a"].weight.dtype == torch.float32
    theta_P = flat.gather(module, torch.float32)
    held = [module["a"].weight, module["a"].bias, module["b"].weight]
    assert torch.equal(theta_P, torch.cat([each.reshape(-1) for each in held]))
    assert torch.equal(wide_P.float(), theta_P)
    assert module["b"].weight.data_ptr() == theta_P[9:].data_ptr()
    views = flat.views(torch.stack([theta_P, theta_P + 1]))
    assert {n: v.shape for n, v in views.items()} == {
        "a.weight": (2, 3, 2),
        "a.bias": (2, 3),
        "b.weight": (2, 2, 3),
    }
    assert torch.equal(views["b.weight"][1], module["b"].weight + 1)
    for shape in ((14,), (15, 1)):
        with pytest.raises(
            ValueError, match=re.escape(f"theta has shape {shape}, but the model has 15 parameters.")
        ):
            flat.views(torch.zeros(shape))
    module.requires_grad_(False)
    assert FlatParameters(module).gather(module, torch.float64).shape == (0,)


def test_a_dtype_is_faster_by_the_times_of_a_product(monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(options, "_product_seconds", lambda d: {torch.bfloat16: slow, torch.float32: 2.0}[d])
    for slow, name in ((1.9, "bfloat16"), (2.0, "float32"), (8.0, "float32")):
        assert (options.bfloat16_slowdown(), options.faster_dtype()) == (slow / 2, name)
    assert threads == [1, 3] * 6


def test_what_prompts_have_in_common_is_cut_off_their_real_tokens():
    prompt_NQ = torch.tensor([[0, 0, 5, 6, 7, 8], [5, 6, 9, 9, 9, 3]])
    real_NQ = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    rest_NQ, real_NR = common_prefix.behind(2, prompt_NQ, real_NQ)
    assert (rest_NQ.tolist(), real_NR.tolist()) == (
        [[5, 6, 7, 8], [9, 9, 9, 3]], [[False, False, True, True], [True] * 4],
    )  # fmt: skip
    assert [x.tolist() for x in common_prefix.behind(0, prompt_NQ, real_NQ)] == [
        x.tolist() for x in (prompt_NQ, real_NQ)
    ]


def test_prompts_share_their_beginning_only_where_that_changes_nothing(folders, monkeypatch):
    model = HuggingFacePolicy(folders["llama"], TASK)._model
    assert sharing_works(model)
    for name in ("run_tokens", "run_responses"):
        run = getattr(model, name)
        off = lambda *given, run=run, **more: run(*given, **more) + (model.least_common == 3)  # noqa: E731
        monkeypatch.setattr(model, name, off)
        assert not sharing_works(model), name
        monkeypatch.setattr(model, name, lambda *_, **__: [][0])
        assert not sharing_works(model)
        monkeypatch.undo()


def test_what_prompts_have_in_common_leaves_each_a_token():
    prompts_NQ = torch.tensor([[0, 5, 6, 7], [4, 5, 6, 7], [0, 5, 6, 7]])
    common = [common_prefix.common_tokens(p, p > 0, 1).tolist() for p in (prompts_NQ[::2], prompts_NQ[:2])]
    assert common == [[5, 6], []]
    same_NQ = torch.tensor([[5, 6, 7], [5, 6, 7]])
    assert [common_prefix.common_tokens(p, p > 0, least).tolist() for p, least in (
        (same_NQ, 2), (same_NQ, 3), (same_NQ[:1], 1), (prompts_NQ[[0, 0]], 2), (prompts_NQ[[0, 0]], 3))
    ] == [[5, 6], [], [], [5, 6], []]  # fmt: skip


@pytest.mark.parametrize("wrong", [1, 2])
def test_a_cache_must_serve_tokens_read_together_and_one_by_one(folders, monkeypatch, wrong):
    model = HuggingFacePolicy(folders["llama"], TASK)._model
    assert cache_works(model)
    run = model.run_tokens
    monkeypatch.setattr(model, "run_tokens", lambda *given: run(*given) * (1 + (given[-1] == wrong)))
    assert not cache_works(model)


@pytest.mark.parametrize(
    ("dtype", "takes", "off", "works"),
    [
        (torch.float32, True, 0.9e-5, True),
        (torch.float32, True, 1.2e-5, False),
        (torch.float64, True, 0, True),
        (torch.float32, False, 0, False),
        (torch.bfloat16, True, 0, False),
    ],
)
def test_packing_works_where_every_response_has_the_same_results(dtype, takes, off, works):
    """A model whose results on a cache are 1 everywhere, and in a packed row off by so much."""
    seen = []

    def packed(_, token_NQ, real_NQ, token_BT, group, common_Q):
        seen.append((token_NQ.tolist(), real_NQ.tolist(), tuple(token_BT.shape), group, len(common_Q)))
        return torch.cat([torch.full((6, 1), 9.0), torch.full((6, 2), 1 + off)], 1).double()

    model = SimpleNamespace(
        dtype=dtype,
        takes_positions=takes,
        module=torch.nn.Linear(1, 1),
        rows=4,
        packed=packed,
        run_prompts=lambda *_: None,
        run_tokens=lambda *_, new: torch.ones(6, new).double(),
    )
    model.module.device = "cpu"
    assert packing_works(model, 10) is works
    wanted = ([[0, 1, 2], [3, 0, 1]], [[False, True, True], [True] * 3], (6, 2), 3, 0)
    assert seen == [wanted] * (takes and dtype != torch.bfloat16)
    model.run_prompts = lambda *_: [][0]
    assert not packing_works(model, 10)


def test_a_policy_of_one_rank_is_built_of_its_arguments_which_stay_as_they_are(folders):
    given = {"ranks": 1, "temperature": 2.0}
    task, policy = build_hf(TASK, str(folders["llama"]), "cpu", given)
    assert (given, task, type(policy)) == ({"ranks": 1, "temperature": 2.0}, TASK, HuggingFacePolicy)
    plain = HuggingFacePolicy(folders["llama"], TASK, temperature=2.0)
    drawn = [each.sample(plain.initial([0]), prompts(), GROUP, uniforms()) for each in (policy, plain)]
    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))
    refuses("^ranks is 0, expected how many", build_hf, TASK, "nowhere", "cpu", {"ranks": 0})


def test_short_responses_are_packed_after_prompt_and_response_are_found_to_fit(monkeypatch):
    monkeypatch.setattr(causal_model, "PACKED", 9)
    asked = []
    model = SimpleNamespace(
        _common=lambda prompt_NQ, real_NQ: prompt_NQ[0, :1],
        _packs=True,
        _change=None,
        _check_length=asked.append,
        packed=lambda *given: given[-1].tolist(),
        run_prompts=lambda *_: SimpleNamespace(feature_BH=torch.zeros(2, 1)),
        run_tokens=lambda weights, prefix, token_BT, new: torch.ones(2, new, 1),
    )

    def run(length, group):
        prompt_NQ = torch.tensor([[0, 7, 5, 4], [0, 7, 6, 3]])
        token_BT = torch.zeros(2, length, dtype=torch.int64)
        return causal_model.CausalModel.run_responses(model, {}, prompt_NQ, prompt_NQ > 0, token_BT, group)

    assert (run(2, 3), asked) == ([7], [3 + 2])  # the padding is cut; 3 - 1 + 3 * 2 = 8 columns
    assert run(7, 1) == [7]  # 9 columns
    assert run(4, 2).shape == (2, 5, 1)
    assert run(0, 2).shape == (2, 1, 1)
    assert asked == [5, 10]
    model._change = "noise"
    assert run(2, 3).shape == (2, 3, 1)


def test_windows_are_read_from_the_config_as_no_probe_is_as_long_as_most():
    kinds = ["sliding_attention", "full_attention"]
    for config, seen in (
        ({"layer_types": kinds, "sliding_window": None}, True), ({"sliding_window": 4096}, True), ({}, False),
        ({"layer_types": kinds[1:], "sliding_window": 4096}, False), ({"sliding_window": None}, False),
    ):  # fmt: skip
        assert common_prefix.windowed(SimpleNamespace(config=SimpleNamespace(**config))) is seen


def test_a_cap_on_logits_is_known_before_they_have_grown():
    shape = {**tiny_models.SHAPE, "head_dim": 8}
    for cap, plain in ((30.0, False), (None, True)):
        config = transformers.Gemma2Config(**shape, final_logit_softcapping=cap)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        assert (plain_head(model) is not None) is plain


@pytest.mark.slow
@pytest.mark.parametrize("name", tiny_models.MORE_CONFIGS)
def test_other_architectures_keep_the_same_contract(name, tmp_path):
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.MORE_CONFIGS[name]())
    test_sampled_log_probabilities_are_those_of_training_within_the_documented_tolerance(folder)
    test_log_probabilities_and_gradient_are_those_of_each_row_alone_without_padding_or_cache(folder)


def test_more_padding_changes_nothing(folder):
    policy = HuggingFacePolicy(folder, TASK)
    theta_RP, prompt_RNQ = policy.initial([0]), prompts()
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    once = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    # One prompt of full width keeps the margin from being cut.
    wide_RNQ = torch.cat([torch.full((1, PROMPTS, 7), TASK.pad_token), prompt_RNQ], dim=2)
    longest_RNQ = torch.cat([wide_RNQ, torch.ones(1, 1, wide_RNQ.shape[2], dtype=torch.int64)], dim=1)
    more = [torch.cat([x, x[:, :GROUP]], dim=1) for x in (token_RBT, mask_RBT)]
    padded = policy.logp(theta_RP, longest_RNQ, *more)[:, :B]
    torch.testing.assert_close(padded, once, rtol=0, atol=1e-5)
    assert torch.equal(policy.logp(theta_RP, wide_RNQ, token_RBT, mask_RBT), once)


def test_a_padding_symbol_inside_a_prompt_is_text(folders):
    policy = HuggingFacePolicy(folders["llama"], TASK)
    theta_RP = policy.initial([0])
    prompt_RNQ = torch.tensor([[[11, 11, 3, 11, 4, 5], [11, 11, 3, 2, 4, 5]]])
    token_RBT, mask_RBT = (
        torch.tensor([[[1, 2, 0, 0, 0]] * 2]),
        torch.tensor([[[True] * 2 + [False] * 3] * 2]),
    )
    logp_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    model = tiny_models.open_model(folders["llama"])
    law_V = model(input_ids=torch.tensor([[3, 11, 4, 5]])).logits[0, -1, : TASK.vocabulary].log_softmax(-1)
    torch.testing.assert_close(logp_RBT[0, 0, 0], law_V[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2, capped logits"])
def test_temperature_and_entropy_belong_to_the_policy(folders, name):
    policy = HuggingFacePolicy(folders[name], TASK, temperature=2.5)
    theta_RP, prompt_RNQ = policy.initial([0]), prompts()
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    model = tiny_models.open_model(folders[name])
    with torch.no_grad():
        rows = reference(model, prompt_RNQ, token_RBT, mask_RBT, temperature=2.5)
    expected = torch.cat([law_TV.gather(1, token_T[:, None])[:, 0] for law_TV, token_T in rows])
    entropy = torch.cat([-(law_TV.exp() * law_TV).sum(-1) for law_TV, _ in rows])
    torch.testing.assert_close(logp_RBT[mask_RBT], expected, rtol=0, atol=1e-5)
    trained_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    torch.testing.assert_close(trained_RBT[mask_RBT], expected, rtol=0, atol=1e-5)
    entropy_RBT = policy.entropy(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    torch.testing.assert_close(entropy_RBT[mask_RBT], entropy, rtol=0, atol=1e-5)
    assert (entropy_RBT[~mask_RBT] == 0).all()


@pytest.mark.parametrize("name", ["llama", "gemma2, capped logits"])
@pytest.mark.parametrize("micro_tokens", [0, 30])
def test_one_pass_gives_log_probabilities_gradient_and_entropy_bit_for_bit(folders, name, micro_tokens):
    policy = HuggingFacePolicy(folders[name], TASK, temperature=3.0, micro_tokens=micro_tokens)
    leaf_RP, prompt_RNQ = policy.initial([0]).requires_grad_(), prompts()
    token_RBT, mask_RBT, _ = policy.sample(leaf_RP, prompt_RNQ, GROUP, uniforms())
    given = (leaf_RP, prompt_RNQ, token_RBT, mask_RBT)
    logp_RBT, entropy_RBT = policy.logp_entropy(*given)
    alone_RBT = policy.logp(*given)
    assert torch.equal(logp_RBT, alone_RBT)
    assert torch.equal(entropy_RBT, policy.entropy(*given))
    assert not entropy_RBT.requires_grad
    grads = [torch.autograd.grad(value.square().sum(), leaf_RP)[0] for value in (logp_RBT, alone_RBT)]
    assert torch.equal(*grads)


def test_responses_end_with_the_end_token_and_are_zero_behind_it(folders):
    policy = HuggingFacePolicy(folders["llama"], TASK, temperature=3.0)
    token_BT, mask_BT, logp_BT = (
        x[0] for x in policy.sample(policy.initial([0]), prompts(64), 1, uniforms(b=64))
    )
    lengths = set()
    for token_T, mask_T, logp_T in zip(token_BT, mask_BT, logp_BT, strict=True):
        length = int(mask_T.sum())
        lengths.add(length)
        assert mask_T[:length].all()
        assert (token_T[: length - 1] != TASK.end_token).all()
        assert length == TASK.response_length or token_T[length - 1] == TASK.end_token
        assert (token_T[length:] == 0).all()
        assert (logp_T[length:] == 0).all()
    assert len(lengths) > 2
    assert token_BT.max() < TASK.vocabulary


def test_equal_uniforms_give_equal_tokens_and_no_global_generator_is_touched(folders):
    before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    policy = HuggingFacePolicy(folders["qwen3, tied"], TASK)
    theta_RP = policy.initial([0])
    first = policy.sample(theta_RP, prompts(), GROUP, uniforms())
    again = policy.sample(theta_RP, prompts(), GROUP, uniforms())
    other = policy.sample(theta_RP, prompts(), GROUP, uniforms(seed=2))
    policy.logp(theta_RP, prompts(), *first[:2])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_replicas_do_not_mix(folders):
    policy = HuggingFacePolicy(folders["llama"], TASK)
    theta_RP = policy.initial([0, 1])
    theta_RP[1] *= 0.9
    prompt_RNQ = torch.cat([prompts(seed=0), prompts(seed=1)])
    uniform_RBT = np.concatenate([uniforms(3), uniforms(4)])
    both = policy.sample(theta_RP, prompt_RNQ, GROUP, uniform_RBT)
    logp_RBT = policy.logp(theta_RP, prompt_RNQ, *both[:2])
    for r in range(2):
        own = policy.sample(theta_RP[r : r + 1], prompt_RNQ[r : r + 1], GROUP, uniform_RBT[r : r + 1])
        assert all(torch.equal(x[0], y[r]) for x, y in zip(own, both, strict=True))
        alone = policy.logp(theta_RP[r : r + 1], prompt_RNQ[r : r + 1], *own[:2])
        assert torch.equal(alone[0], logp_RBT[r])
    assert not torch.equal(both[0][0], both[0][1])


def test_a_float32_model_is_in_memory_once(folder):
    policy = HuggingFacePolicy(folder, TASK)
    theta_RP = policy.initial([0])
    own = [p.data_ptr() for p in policy._model.module.parameters()]
    shapes = {name: tuple(p.shape) for name, p in policy._model.module.named_parameters()}
    assert list(policy.layout.items()) == list(shapes.items())
    assert policy.parameters == sum(p.numel() for p in tiny_models.open_model(folder).parameters())
    start, end = theta_RP.data_ptr(), theta_RP.data_ptr() + theta_RP.nbytes
    assert own
    assert all(start <= place < end for place in own)


def test_bfloat16_keeps_float32_weights_and_stays_within_its_tolerance(folders):
    policy = HuggingFacePolicy(folders["llama"], TASK, dtype="bfloat16")
    theta_RP, prompt_RNQ = policy.initial([0]).requires_grad_(), prompts()
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompt_RNQ, GROUP, uniforms())
    trained_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    (grad_RP,) = torch.autograd.grad(trained_RBT.sum(), theta_RP)
    assert (trained_RBT - logp_RBT).abs().max() <= LOGP_TOLERANCE[torch.bfloat16]
    assert (trained_RBT.dtype, grad_RP.dtype) == (torch.float32, torch.float32)
    exact = HuggingFacePolicy(folders["llama"], TASK)
    (exact_RP,) = torch.autograd.grad(exact.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT).sum(), theta_RP)
    assert torch.cosine_similarity(grad_RP[0], exact_RP[0], dim=0) > 0.99


@pytest.mark.slow
def test_bfloat16_trains_by_steps_that_bfloat16_weights_alone_would_lose(folders):
    """Adam's steps of 5e-5 are below half the spacing of most of these weights in bfloat16."""
    rng = np.random.default_rng(5)
    prompt_NQ = TASK.prompts(rng, 32)
    prompt_RNQ, *answer = (torch.as_tensor(x)[None] for x in (prompt_NQ, *TASK.teacher(prompt_NQ, rng, 0.0)))

    def fall(dtype, kept=torch.float32):
        policy = HuggingFacePolicy(folders["llama"], TASK, dtype=dtype)
        theta_RP, losses = policy.initial([0]), []
        adam = Adam(theta_RP)
        for _ in range(40):
            leaf_RP = theta_RP.requires_grad_()
            loss = -policy.logp(leaf_RP, prompt_RNQ, *answer).sum() / answer[1].sum()
            (grad_RP,) = torch.autograd.grad(loss, leaf_RP)
            theta_RP = adam.step(leaf_RP.detach(), grad_RP, torch.tensor([5e-5])).to(kept).float()
            losses.append(float(loss.detach()))
        return losses[0] - losses[-1]

    full, mixed, lost = fall("float32"), fall("bfloat16"), fall("bfloat16", torch.bfloat16)
    assert full > 0.1
    assert mixed > 0.8 * full
    assert lost < 0.5 * full


def test_saved_weights_come_back(folder, tmp_path):
    policy = HuggingFacePolicy(folder, TASK)
    theta_RP = policy.initial([0]) * 2.0
    policy.save(theta_RP[0], tmp_path / "trained")
    again = HuggingFacePolicy(tmp_path / "trained", TASK)
    assert torch.equal(again.initial([0]), theta_RP)
    assert torch.equal(policy.initial([0]), theta_RP / 2.0)


def test_inverse_cdf_follows_the_law_and_never_draws_a_token_without_mass():
    law_V = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.125, 0.125, 0.0])
    count = 4096
    grid_B = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    token_B, logp_B = inverse_cdf(law_V.log().expand(count, -1), grid_B)
    share_V = torch.bincount(token_B, minlength=7) / count
    assert (share_V - law_V).abs().max() <= 1.5 / count
    torch.testing.assert_close(logp_B.exp(), law_V[token_B])
    # A uniform that was rounded to float32 on its way can be 1.
    edge_B = torch.tensor([0.0, 1 - 2**-53, 1.0], dtype=torch.float64)
    assert inverse_cdf(law_V.log().expand(3, -1), edge_B)[0].tolist() == [1, 5, 5]
    many_BV = torch.randn(500, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (many_BV.softmax(-1).cumsum(-1)[:, -1] < 1).any(), "rounded sums fall short of 1"
    assert (inverse_cdf(many_BV, torch.ones(500, dtype=torch.float64))[0] < 50).all()


def test_a_diverged_model_gives_nan_and_no_crash(folders):
    policy = HuggingFacePolicy(folders["llama"], TASK)
    theta_RP = policy.initial([0]) * float("nan")
    token_RBT, mask_RBT, logp_RBT = policy.sample(theta_RP, prompts(), GROUP, uniforms())
    assert logp_RBT[mask_RBT].isnan().all()
    assert 0 <= token_RBT.min() <= token_RBT.max() < TASK.vocabulary


def test_bad_arguments_are_refused_with_one_message(folders, monkeypatch):
    class Large(tiny_models.Echo):
        symbols = tuple(str(v) for v in range(100))

    refuses("knows 16 tokens, but the task uses 100", HuggingFacePolicy, folders["llama"], Large())
    with pytest.raises(UserError, match=r"Unknown dtype 'float23'.*Did you mean 'float32'"):
        HuggingFacePolicy(folders["llama"], TASK, dtype="float23")
    for value in (0.0, float("nan"), float("inf")):
        refuses(f"^temperature must be positive and finite, got {value}; 1 samples from the model itself.$",
                HuggingFacePolicy, folders["llama"], TASK, temperature=value)  # fmt: skip
    for given, told in (
        ({"dtype": "half"}, "Unknown dtype 'half'"),
        ({"micro_tokens": -1}, "micro_tokens is -1"),
        ({"lora": -1}, "lora is -1 and lora_alpha 0.0"),
        ({"lora": 2, "lora_alpha": -1.0}, "lora_alpha -1.0"),
        ({"lora": 2, "lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"lora_alpha": 32.0}, "policy_args has lora_alpha or lora_targets, but no lora"),
        ({"lora_targets": "q_proj"}, "policy_args has lora_alpha or lora_targets, but no lora"),
    ):
        refuses(f"^{told}|{told}", options.check_options, **given)
    options.check_options(lora=-1, adapter="folder", dtype=torch.float16, temperature=1e-9, other=3)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuses("finds no CUDA device", HuggingFacePolicy, folders["llama"], TASK, device="cuda")


def test_prompts_that_cannot_be_run_are_refused_with_one_message(folders):
    policy = HuggingFacePolicy(folders["gpt2"], TASK)
    theta_RP = policy.initial([0])
    refuses("padding only", policy.sample, theta_RP, torch.full((1, 2, 6), TASK.pad_token), 1, uniforms(b=2))
    with pytest.raises(UserError, match="reach 40 tokens, but the model has 32 positions"):
        policy.sample(theta_RP, torch.ones(1, 2, 40, dtype=torch.int64), 1, uniforms(b=2))


@pytest.mark.parametrize(
    "config",
    [transformers.RecurrentGemmaConfig(vocab_size=16, hidden_size=32, intermediate_size=96,
                                       num_hidden_layers=3, num_attention_heads=4),
     transformers.Lfm2Config(**{**tiny_models.SHAPE, "num_hidden_layers": 3}, full_attn_idxs=[1]),
     transformers.BertConfig(vocab_size=16, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                             num_attention_heads=4)], ids=["recurrent", "convolution", "encoder"],
)  # fmt: skip
def test_a_model_that_does_not_continue_from_a_cache_is_refused(tmp_path, config):
    tiny_models.write_model(tmp_path / "recurrent", config)
    refuses("key-value cache", HuggingFacePolicy, tmp_path / "recurrent", TASK)


@pytest.mark.slow
def test_a_training_cell_needs_no_front_end_package(folders):
    """All that a bare GPU image lacks is blocked: a toy must train, a model sample and give gradients."""
    program = f"""
import sys
blocked = "gymnasium numba pydantic ray reasoning_gym rich typer arviz_stats pandas matplotlib seaborn"
sys.modules.update(dict.fromkeys(blocked.split()))
from testbed.config.run import Run
from testbed.training.loop import train
assert len(train(Run(task="running-sum", policy="toy", steps=2, prompts=2, group=2))["step"]) == 2
import numpy as np, torch
sys.path.insert(0, {str(Path(tiny_models.__file__).parents[1])!r})
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from support import tiny_models
policy = HuggingFacePolicy({str(folders["llama"])!r}, tiny_models.Echo())
theta = policy.initial([0]).requires_grad_()
prompt = torch.as_tensor(policy.task.prompts(np.random.default_rng(0), 2))[None]
token, mask, _ = policy.sample(theta, prompt, 2, np.full((1, 4, 5), 0.5))
policy.logp(theta, prompt, token, mask).sum().backward()
print("fine", theta.grad.isfinite().all().item())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine True", done.stderr
