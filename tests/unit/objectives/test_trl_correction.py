"""TRL's correction for the sampler's engine, computed by TRL's own code, against tis and mis.

A real trainer generates with a tiny model and scores what it generated; only the sampler's
log-probabilities are made up, since no vLLM runs here. Its ratio then meets TRL's own loss.
"""

import pytest
import torch
from support.trl_stub import ACCUMULATION, STEPS_PER_GENERATION, batch_of_inputs, stub_trainer, tiny_trainer

from testbed.losses.aggregate import aggregate
from testbed.objectives import objective

trl = pytest.importorskip("trl")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

MODES = {
    "token_truncate": ({}, "tis", {"level": "token", "cap": 1.3}),
    "token_truncate, floor": ({"clip_min": 0.8}, "tis@openrlhf", {"low": 0.8, "high": 1.3}),
    "token_mask": ({}, "mis", {"level": "token", "high": 1.3}),
    "token_mask, floor": ({"clip_min": 0.8}, "mis", {"level": "token", "low": 0.8, "high": 1.3}),
    "sequence_truncate": ({}, "tis", {"level": "sequence", "cap": 1.3}),
    "sequence_mask": ({}, "mis", {"high": 1.3}),
    "sequence_mask, floor": ({"clip_min": 0.8}, "mis", {"low": 0.8, "high": 1.3}),
}


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """A trainer whose sampler reports its log-probabilities with an error of 0.3 nats."""
    folder = tmp_path_factory.mktemp("generator")
    trainer = tiny_trainer(trl.GRPOTrainer, folder, per_device_train_batch_size=8)
    trainer.model.double()
    generate = trainer._generate

    def with_logprobs(prompts):
        trainer.use_vllm = False  # transformers generates
        made = list(generate(prompts))
        trainer.use_vllm = True  # and vLLM is said to have
        draw = torch.Generator().manual_seed(4)
        made[4] = [(-2 + 0.3 * torch.randn(len(ids), generator=draw)).tolist() for ids in made[1]]
        made[2] = [[1] + [int(i % 3 != 1) for i in range(1, len(ids))] for ids in made[1]]
        return tuple(made)

    trainer._generate = with_logprobs
    return trainer


def scored(generator, mode, clip_max, clip_min=None):
    """TRL's inputs with its correction in a mode, and log-probabilities of a policy that has moved on."""
    generator.vllm_importance_sampling_mode = mode
    generator.vllm_importance_sampling_clip_max = clip_max
    generator.vllm_importance_sampling_clip_min = clip_min
    generator.model.train()
    torch.manual_seed(2)
    inputs = generator._generate_and_score_completions([{"prompt": f"{i // 4} 1"} for i in range(8)])
    anchor = inputs["old_per_token_logps"].double()
    inputs |= {"old_per_token_logps": anchor, "advantages": inputs["advantages"].double()}
    ratio = inputs["importance_sampling_ratio"]
    assert ratio.std() > 0.05
    draw = torch.Generator().manual_seed(9)
    noise = 0.3 * torch.randn(anchor.shape, generator=draw, dtype=torch.float64)
    return (anchor + noise).requires_grad_(), {**inputs, "ref_per_token_logps": anchor}


def assert_same(ours, theirs, logp):
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-6)
    expected = torch.autograd.grad(theirs, logp)[0]
    torch.testing.assert_close(torch.autograd.grad(ours, logp)[0], expected, rtol=1e-6, atol=1e-9)
    assert expected.abs().max() > 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_correction_and_loss_are_trls(generator, mode):
    options, name, hyper = MODES[mode]
    logp, inputs = scored(generator, mode.split(",")[0], 1.3, options.get("clip_min"))
    theirs = trl.GRPOTrainer._compute_loss(stub_trainer(logp, use_vllm=True), None, inputs)
    batch = batch_of_inputs(inputs)
    loss_BT = objective[name].bind(**hyper)(logp, batch)
    ours = aggregate(loss_BT, batch.mask_BT, "sequence_mean") / ACCUMULATION
    assert_same(ours, theirs, logp)


def test_vespo_with_trls_correction_untruncated_is_the_papers_ratio_to_the_sampler(generator):
    logp, inputs = scored(generator, "token_truncate", 1e9)
    trainer = stub_trainer(logp, use_vllm=True, loss_type="vespo")
    theirs = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    batch = batch_of_inputs(inputs)
    tokens = float(inputs["num_items_in_batch"]) * ACCUMULATION / STEPS_PER_GENERATION
    ours = aggregate(objective["vespo"].function(logp, batch), batch.mask_BT, "token_sum") / tokens
    assert_same(ours, theirs, logp)
