"""Adapters: they alone are trained, kept and sent; without them the model is the frozen one, bit for bit."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from support import tiny_models
from support.quick import quick
from support.refusals import refuses
from torch.testing import assert_close

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.mismatch import Draw, engine
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.model_folder import adapter_parameters, check_model_folder
from testbed.policies.hf.tiny_model import save_random_model, save_tokenizer
from testbed.staleness.versions import VersionBuffer
from testbed.worlds import build_world
from testbed.worlds.generation import engine_of
from testbed.worlds.rounded import around_frozen, of_precision

peft = pytest.importorskip("peft")

WORKED = "a worked example before every prompt"
TASK = tiny_models.Echo()
N, GROUP = 4, 3
NEAR = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {n: tiny_models.write_model(root / n[:4], make()) for n, make in tiny_models.CONFIGS.items()}


@pytest.fixture(scope="module")
def llama(folders):
    return HuggingFacePolicy(folders["llama"], TASK, lora=2)


def batch(policy, theta_RP):
    rng = np.random.default_rng(0)
    prompt_RNQ = torch.as_tensor(TASK.prompts(rng, N))[None]
    token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, GROUP, rng.random((1, N * GROUP, 5)))
    return prompt_RNQ, token_RBT, mask_RBT


def moved(policy, seed=0):
    """Adapters that do something: both matrices random."""
    theta_RP = policy.initial([0])
    return theta_RP + 0.1 * torch.randn(theta_RP.shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", tiny_models.CONFIGS)
def test_adapters_alone_are_trained_and_merge_into_a_plain_model_that_computes_the_same(
    name, folders, tmp_path
):
    policy = HuggingFacePolicy(folders[name], TASK, lora=2)
    frozen = [p.detach().clone() for p in policy._model._frozen.values()]
    assert all("lora_" in name for name in policy.layout)
    assert policy.parameters < sum(p.numel() for p in frozen) / 2
    theta_RP = moved(policy).requires_grad_()
    data = batch(policy, theta_RP.detach())
    logp_RBT = policy.logp(theta_RP, *data)
    (grad_RP,) = torch.autograd.grad(logp_RBT.sum(), theta_RP)
    for part_P in policy._model.flat.views(grad_RP[0]).values():
        assert part_P.abs().max() > 0
    own = {n: p.clone() for n, p in policy._model.module.named_parameters()}
    policy.save(theta_RP.detach()[0], tmp_path / "merged")
    assert all(torch.equal(p, own[n]) for n, p in policy._model.module.named_parameters())
    plain = HuggingFacePolicy(tmp_path / "merged", TASK)
    assert_close(plain.logp(plain.initial([0]), *data), logp_RBT.detach(), **NEAR)
    assert all(torch.equal(a, b) for a, b in zip(frozen, policy._model._frozen.values(), strict=True))
    assert adapter_parameters(folders[name], {"lora": 2}) == policy.parameters


@pytest.mark.parametrize("name", quick({"llama"}, [*tiny_models.CONFIGS, WORKED]))
def test_replicas_run_as_one_batch_and_each_gives_what_it_gives_alone(name, folders):
    policy = HuggingFacePolicy(folders.get(name, folders["llama"]), TASK, lora=2)
    theta_RP = torch.cat([moved(policy, seed) for seed in range(3)]).requires_grad_()
    rng = np.random.default_rng(0)
    prompt_RNQ = torch.as_tensor(np.stack([TASK.prompts(rng, N) for _ in range(3)]))
    if name not in folders:
        prompt_RNQ = torch.cat([prompt_RNQ[:1, :1, :1].expand(3, N, 20), prompt_RNQ], dim=2)
    uniform_RBT = rng.random((3, N * GROUP, 5))
    passes = []
    call, policy._model._call = policy._model._call, lambda *given: passes.append(given[1]) or call(*given)

    def asked(start, stop):
        theta, prompt, uniform = (value[start:stop] for value in (theta_RP, prompt_RNQ, uniform_RBT))
        drawn = policy.sample(theta.detach(), prompt, GROUP, uniform)
        logp, entropy = policy.logp_entropy(theta, prompt, *drawn[:2])
        greedy = policy.sample(theta.detach(), prompt, GROUP, uniform, greedy=True)[0]
        return *drawn, greedy, logp, entropy, torch.autograd.grad(logp.sum(), theta_RP)[0][start:stop]

    together = asked(0, 3)
    count = len(passes)
    alone = [asked(r, r + 1) for r in range(3)]
    assert len(passes) - count >= 2 * count
    for ours, theirs in zip(together, zip(*alone, strict=True), strict=True):
        assert_close(ours, torch.cat(theirs), **NEAR)


def test_the_start_is_the_frozen_model_bit_for_bit_so_the_reference_costs_no_second_model(llama, folders):
    base = HuggingFacePolicy(folders["llama"], TASK)
    data = batch(base, base.initial([0]))
    assert torch.equal(llama.logp(llama.initial([0]), *data), base.logp(base.initial([0]), *data))
    assert (llama.logp(moved(llama), *data) - base.logp(base.initial([0]), *data)).abs().max() > 1e-3


def test_the_scale_is_twice_the_rank_and_the_start_depends_on_no_other_draw(llama, folders):
    data, theta_RP = batch(llama, moved(llama)), moved(llama)
    for alpha, same in ((4.0, True), (2.0, False)):
        torch.manual_seed(int(alpha))
        given = HuggingFacePolicy(folders["llama"], TASK, lora=2, lora_alpha=alpha)
        assert torch.equal(given.initial([5]), llama.initial([0]))
        assert torch.equal(given.logp(theta_RP, *data), llama.logp(theta_RP, *data)) is same


def test_a_version_that_is_kept_has_the_size_of_the_adapters(llama, folders):
    buffer = VersionBuffer(llama.initial([0]), [9])
    assert buffer.slots_MP.shape == (9, llama.parameters)
    run = Run(task="jsonl", policy="hf", model=str(folders["llama"]), policy_args=(("lora", 2),))
    parameters, size, activations = build_world.policy_size(run)
    whole, _, without = build_world.policy_size(dataclasses.replace(run, policy_args=()))
    assert (parameters, size) == (llama.parameters, 4)
    assert activations - without == 4 * whole  # the frozen weights are there once


def test_a_saved_adapter_opens_in_peft_and_here(llama, folders, tmp_path):
    theta_RP = moved(llama, seed=3)
    llama.save_adapter(theta_RP[0], tmp_path / "adapter")
    again = HuggingFacePolicy(folders["llama"], TASK, adapter=str(tmp_path / "adapter"))
    assert torch.equal(again.initial([0]), theta_RP)
    model = peft.PeftModel.from_pretrained(tiny_models.open_model(folders["llama"]), tmp_path / "adapter")
    prompt_RNQ, token_RBT, _ = data = batch(llama, theta_RP)
    logp_RBT = llama.logp(theta_RP, *data)
    assert torch.equal(again.logp(theta_RP, *data), logp_RBT)
    for b in range(N * GROUP):
        prompt_Q = prompt_RNQ[0, b // GROUP]
        first = model(prompt_Q[prompt_Q != TASK.pad_token][None]).logits[0, -1, : TASK.vocabulary]
        expected = first.log_softmax(-1)[token_RBT[0, b, 0]]
        assert_close(logp_RBT[0, b, 0], expected, **NEAR)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    larger = HuggingFacePolicy(folders["llama"], TASK, lora=2, lora_alpha=4 * 2**0.5)  # alpha / sqrt(r)
    each = dict.fromkeys(config["target_modules"], 4 * 2**0.5)
    for change in ({"use_rslora": True}, {"alpha_pattern": each}):
        (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | change))
        other = HuggingFacePolicy(folders["llama"], TASK, adapter=str(tmp_path / "adapter"))
        assert_close(other.logp(theta_RP, *data), larger.logp(theta_RP, *data), **NEAR)
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 0}))
    off = HuggingFacePolicy(folders["llama"], TASK, adapter=str(tmp_path / "adapter"))
    assert torch.equal(off.logp(theta_RP, *data), off.logp(0 * theta_RP, *data))
    llama.save_adapter(torch.stack([theta_RP[0], theta_RP[0]], -1)[..., 0], tmp_path / "strided")
    files = [tmp_path / name / "adapter_model.safetensors" for name in ("adapter", "strided")]
    assert files[0].read_bytes() == files[1].read_bytes()
    (tmp_path / "adapter" / "config.json").write_text("{}")
    refuses("holds an adapter; merge it", check_model_folder, tmp_path / "adapter")


@pytest.mark.parametrize("change", [{"hidden_size": 64}, {"num_hidden_layers": 1}])
def test_an_adapter_of_another_model_is_refused(llama, tmp_path, change):
    llama.save_adapter(llama.initial([0])[0], tmp_path / "adapter")
    other = transformers.LlamaConfig(**{**tiny_models.SHAPE, **change}, tie_word_embeddings=False)
    tiny_models.write_model(tmp_path / "other", other)
    refuses(".", HuggingFacePolicy, tmp_path / "other", TASK, adapter=str(tmp_path / "adapter"))


@pytest.mark.parametrize(
    "change",
    [{"modules_to_save": ["lm_head"]}, {"use_dora": True}, {"peft_type": "IA3"}, None, {"rank_pattern": 3},
     {"r": "8"}, {"init_lora_weights": "pissa_niter_4"}],
)  # fmt: skip
def test_adapters_of_other_kinds_or_with_odd_settings_are_refused(llama, folders, tmp_path, change):
    llama.save_adapter(llama.initial([0])[0], tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, **(change or {})}))
    if change is None:
        (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    refuses(".", HuggingFacePolicy, folders["llama"], TASK, adapter=str(tmp_path))


def test_arguments_that_cannot_be_are_refused(folders):
    for arguments, says in [
        ({"lora": -1}, "lora is -1"), ({"lora": 2, "lora_alpha": -1.0}, "lora_alpha -1"),
        ({"lora": 2, "lora_targets": "q_proj, k_prj"},
         "layer in lora_targets 'k_prj'. Did you mean 'k_proj'"),
        ({"lora": 2, "lora_targets": "nothing"}, "LoRA cannot be added: Target modules"),
    ]:  # fmt: skip
        refuses(says, HuggingFacePolicy, folders["llama"], TASK, **arguments)
    with pytest.raises(UserError, match="has no adapters"):
        HuggingFacePolicy(folders["llama"], TASK).save_adapter(torch.zeros(1), "anywhere")


@pytest.mark.parametrize("name", ["q4-0", "int8", "bf16"])
def test_an_engine_rounds_the_frozen_model_and_leaves_the_adapters(name, llama):
    """The served model is the rounded model with the adapters of full precision, sampled and read alike."""
    theta_RP = moved(llama)
    served, left = around_frozen(llama, engine(name))
    prompt_RNQ, token_RBT, mask_RBT = batch(llama, theta_RP)
    rounded = {
        key: engine(name).weights(w.flatten()[None], {key: tuple(w.shape)}, Draw((0,))).view(w.shape)
        for key, w in llama._model._frozen.items()
    }
    own = dict(llama._model.module.named_parameters())
    before = {key: own[key].data for key in rounded}
    trained = llama.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    try:
        for key, value in rounded.items():
            own[key].data = value
        by_hand = llama.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    finally:
        for key, value in before.items():
            own[key].data = value
    found = served.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)
    assert_close(found, by_hand, **NEAR)
    assert left.weights is None
    assert (found - trained).abs().max() > 1e-4
    drawn = served.sample(theta_RP, prompt_RNQ, GROUP, np.full(token_RBT.shape, 0.37))
    assert_close(drawn[2], served.logp(theta_RP, prompt_RNQ, *drawn[:2]), **NEAR)
    assert torch.equal(llama.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT), trained)


def test_a_precision_rounds_the_frozen_model_of_sampler_and_trainer(llama):
    theta_RP = moved(llama)
    where = batch(llama, theta_RP)
    both = of_precision(llama, "q4-0")
    assert_close(both.logp(theta_RP, *where), around_frozen(llama, engine("q4-0"))[0].logp(theta_RP, *where))


def test_an_engine_that_changes_weights_anew_for_every_batch_is_refused_with_lora():
    for name in ("layer-noise", "skip-layers", "stale-copy"):
        with pytest.raises(UserError, match="changes the weights again for every batch, but with LoRA"):
            engine_of(Run(policy="hf", model="m", policy_args=(("lora", 2),), mismatch=name))


@pytest.mark.slow
def test_a_cell_trains_its_adapters_at_a_lag(tmp_path):
    from envs.tokens.length import Length
    from testbed.training.loop import train

    task = Length(digits=2, limit=5, modulus=2)
    save_tokenizer(tmp_path, task)
    save_random_model(tmp_path, task, 0, 16, 1)
    run = Run(
        task="length", task_args=(("digits", 2), ("limit", 5), ("modulus", 2)), policy="hf", lag=2, steps=6,
        model=str(tmp_path), recipe="kl", policy_args=(("lora", 4),), prompts=4, group=4, learning_rate=0.03,
        optimizer="adam", log_every=1, evaluation_prompts=4,
    )  # fmt: skip
    from testbed.recipes import recipe

    name = next(n for n in recipe if "ref" in recipe[n].bind()().reads)
    table = train(dataclasses.replace(run, recipe=name))
    assert not np.array(table["diverged"]).any()
    assert table["rollout_corr/kl_mu_pi_k3"][-1] > 0
