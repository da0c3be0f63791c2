"""The adapter for verl against verl itself, where it is installed: losses, modes, and its registry."""

import pytest
import torch
from support.trl_stub import random_inputs

from testbed.adapters.verl import MODES, policy_loss, register

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")

PAIRS = {
    "vanilla": "dual_clip@verl", "gspo": "gspo@verl", "cispo": "cispo@verl", "geo_mean": "gmpo@verl",
    "sapo": "sapo",
}  # fmt: skip
CLIP = {"eps_low": 0.2, "eps_high": 0.2}


def config(**counts):
    from verl.workers.config import ActorConfig

    made = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    object.__setattr__(made, "global_batch_info", counts)
    return made


def gradient(function, mode, made):
    logp, inputs = random_inputs(3)
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    adv = inputs["advantages"][:, None].expand(mask.shape)
    loss, _ = function(inputs["old_per_token_logps"], logp, adv, mask, loss_agg_mode=mode, config=made)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


@pytest.mark.parametrize("theirs", PAIRS)
def test_an_adapted_objective_is_verls_own_loss(theirs):
    # What verl does whatever the mode: gspo and geo_mean mean over responses a loss that is spread over
    # tokens here, and sapo means over tokens first.
    spread = theirs in ("gspo", "geo_mean")
    mode = {"sapo": "seq-mean-token-mean"}.get(theirs, "seq-mean-token-sum" if spread else "token-mean")
    own = "seq-mean-token-mean" if theirs == "gspo" else mode
    hyper = {} if theirs == "sapo" else CLIP
    (_, mine), (_, expected) = (
        gradient(policy_loss(PAIRS[theirs], **hyper), mode, config()),
        gradient(core_algos.get_policy_loss_fn(theirs), own, config()),
    )
    torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-9)
    assert expected.abs().max() > 1e-4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("counts", [{}, {"dp_size": 2, "batch_num_tokens": 90, "global_batch_size": 16}])
def test_every_mode_divides_as_verl_does(mode, counts):
    made = config(**counts)
    mine = gradient(policy_loss("dual_clip@verl"), mode, made)
    expected = gradient(core_algos.get_policy_loss_fn("vanilla"), mode, made)
    torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-9)


def test_a_registered_objective_is_found_by_verl():
    register("testbed_gspo", policy_loss("gspo"))
    value, weights = gradient(core_algos.get_policy_loss_fn("testbed_gspo"), "seq-mean-token-sum", config())
    assert bool(torch.isfinite(value))
    assert weights.abs().max() > 0
