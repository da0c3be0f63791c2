"""Engine mismatch: engines of other weights, and the behavior engine that samples what it says."""

import math

import numpy as np
import pytest
import torch
from support import tiny_models
from support.mismatch_setting import (
    LAYERS,
    SEEDS,
    TABLE,
    TASK,
    VISIBLE,
    WITH_END,
    WORLD,
    drawn,
    table_behavior,
    table_weights,
    toy,
    toy_weights,
)

from testbed import rng
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch import Draw, engine
from testbed.mismatch.behavior import Behavior
from testbed.mismatch.perturbed import drawn_layers
from testbed.policies.toy.transformer import LOGP_TOLERANCE, ToyTransformer

# Weights


def test_a_skipped_layer_adds_nothing():
    policy = toy(dtype=torch.float64)
    theta, (prompt, uniform) = toy_weights(policy), drawn(policy, TASK)
    token, mask, _ = policy.sample(theta, prompt, 16, uniform)
    skipping = Behavior(policy, engine("skip-layers", ratio=1.0), SEEDS)
    rollout = Rollout(prompt, token, mask, torch.zeros(token.shape), torch.zeros(token.shape[:2]), 16)
    shallow = ToyTransformer(TASK, width=8, heads=2, layers=1, dtype=torch.float64)
    named = policy.shape.named(theta)
    kept = {n: named[n].clone() for n in shallow.shape.matrices()}
    for name in kept:
        if name.endswith((".qkv", ".out", ".up", ".down")):
            kept[name].zero_()
    bare = torch.cat([w.flatten(1) for w in kept.values()], 1)
    torch.testing.assert_close(
        skipping.logp(theta, rollout, 0), shallow.logp(bare, prompt, token, mask), rtol=0, atol=1e-12
    )


def test_each_batch_skips_its_own_layers_and_all_equally_often():
    draw = [drawn_layers(Draw((0,), step=s), 4, 1)[0] for s in range(400)]
    count = np.sum(draw, 0)
    assert (np.sum(draw, 1) == 1).all()
    # Binomial(400, 1/4) has standard deviation 8.7; five of them: false alarm 2e-6.
    assert (abs(count - 100) < 44).all()
    kept = [drawn_layers(Draw((0,), step=s), 4, 1, redraw=False)[0] for s in range(20)]
    assert all(np.array_equal(row, kept[0]) for row in kept)


def test_skipping_touches_the_chosen_blocks_only():
    policy = toy()
    theta = toy_weights(policy)
    behavior = Behavior(policy, engine("skip-layers", ratio=0.5), SEEDS)
    before, after = (policy.shape.named(x) for x in (theta, behavior.weights(theta, 3)))
    skipped = drawn_layers(Draw(SEEDS, step=3), LAYERS, 2)
    for name in before:
        for r in range(len(SEEDS)):
            inside = name.startswith("layers.") and name.endswith((".out", ".down"))
            if inside and skipped[r, int(name.split(".")[1])]:
                assert (after[name][r] == 0).all()
            else:
                assert torch.equal(before[name][r], after[name][r])


def test_layer_noise_is_relative_fixed_and_scaled_by_layer():
    policy = toy()
    theta = 5 * toy_weights(policy)
    fixed = Behavior(policy, engine("layer-noise", sigma=0.1, scales=(0.0, 2.0)), SEEDS)
    first, later = (policy.shape.named(fixed.weights(theta, step)) for step in (0, 9))
    before = policy.shape.named(theta)
    assert torch.equal(first["layers.0.up"], before["layers.0.up"])
    assert torch.equal(first["layers.1.up"], later["layers.1.up"])
    for layer, factor in ((1, 2.0), (2, 1.0)):
        names = [f"layers.{layer}.{part}" for part in ("qkv", "out", "up", "down")]
        added = [(first[n] - before[n]).square().mean() / before[n].square().mean() for n in names]
        normals = min(before[n].numel() for n in names) * len(names)
        # 5 standard errors of a mean of squared normals: one false alarm in 2e6 seeds.
        near = pytest.approx((0.1 * factor) ** 2, rel=5 * (2 / normals) ** 0.5)
        assert torch.stack(added).mean().item() == near
    redrawn = Behavior(policy, engine("layer-noise", sigma=0.1, redraw=True), SEEDS)
    assert not torch.equal(redrawn.weights(theta, 0), redrawn.weights(theta, 9))


def test_a_stale_copy_is_old_where_it_says_so():
    policy = toy()
    theta, past = toy_weights(policy), 2 * toy_weights(policy)
    whole = Behavior(policy, engine("stale-copy"), SEEDS).weights(theta, 0, past)
    assert torch.equal(whole, past)
    partly = policy.shape.named(
        Behavior(policy, engine("stale-copy", matrices="linear"), SEEDS).weights(theta, 0, past)
    )
    assert torch.equal(partly["head"], policy.shape.named(theta)["head"])
    assert torch.equal(partly["layers.1.up"], policy.shape.named(past)["layers.1.up"])


# The behavior engine samples what it says


@pytest.mark.parametrize("name", ["temperature", "logit-noise", "top-p", "top-k", "fp8-block", "skip-layers"])
@pytest.mark.parametrize("task", [TASK, WITH_END], ids=["fixed-length", "with-end"])
def test_recorded_log_mu_is_reproduced_by_logp(name, task):
    policy = toy(task)
    theta, (prompt, uniform) = toy_weights(policy), drawn(policy, task)
    behavior = Behavior(policy, engine(name, **VISIBLE.get(name, {})), SEEDS)
    token, mask, logp_mu = behavior.sample(theta, prompt, 16, uniform, 4)
    rollout = Rollout(prompt, token, mask, logp_mu, torch.zeros(token.shape[:2]), 16)
    found = behavior.logp(theta, rollout, 4)
    assert (found - logp_mu).abs().max() < 10 * LOGP_TOLERANCE
    assert (found[~mask] == 0).all()
    assert (policy.logp(theta, prompt, token, mask) - logp_mu).abs().max() > 1e-3
    assert torch.isfinite(logp_mu).all()


def test_noise_is_fresh_for_every_sequence_and_token():
    policy = toy()
    theta, (prompt, _) = 0 * toy_weights(policy), drawn(policy, TASK)
    uniform = torch.full((2, 32, 3), 0.5, dtype=torch.float64)
    behavior = Behavior(policy, engine("logit-noise", sigma=0.5), SEEDS)
    logp_mu = behavior.sample(theta, prompt, 16, uniform, 0)[2]
    assert len(logp_mu.flatten().unique()) == logp_mu.numel()
    again = behavior.sample(theta, prompt, 16, uniform, 1)[2]
    assert not torch.isclose(again, logp_mu).any(dim=-1).all()


def test_tabular_log_mu_of_a_rollout_is_gathered_from_the_table():
    behavior, theta = table_behavior("temperature"), table_weights()
    mu = behavior.probabilities(theta, 0)
    start = np.zeros((2, 5), dtype=np.int64)
    episodes = WORLD.simulate(mu, start, 3, rng.keys(SEEDS, "test"), 0)
    state, token, mask = map(torch.from_numpy, (episodes.state_RBT, episodes.action_RBT, episodes.mask_RBT))
    rollout = Rollout(
        torch.from_numpy(start)[..., None], token, mask, torch.zeros(1), torch.zeros(1), 3, state
    )
    expected = np.log(mu)[np.arange(2)[:, None, None], state, token]
    np.testing.assert_allclose(behavior.logp(theta, rollout, 0), np.where(mask, expected, 0.0), atol=1e-14)


@pytest.mark.parametrize("name", ["off", "bf16"])
def test_tabular_engines_of_weights_use_the_policys_own_paths(name):
    behavior, theta = table_behavior(name), table_weights()
    changed = behavior.weights(theta, 0)
    assert np.array_equal(behavior.probabilities(theta, 0), TABLE.probabilities(changed))
    state, token = torch.zeros(2, 4, 1, dtype=torch.int64), torch.arange(4).view(1, 4, 1).repeat(2, 1, 1)
    mask = torch.ones_like(token, dtype=torch.bool)
    rollout = Rollout(state, token, mask, torch.zeros(1), torch.zeros(1), 4, state)
    assert torch.equal(behavior.logp(theta, rollout, 0), TABLE.logp(changed, state, token, mask))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_weight_engines_work_on_a_hugging_face_model(tmp_path, family):
    from testbed.policies.hf.policy import HuggingFacePolicy

    task = tiny_models.Echo()
    folder = tiny_models.write_model(tmp_path, tiny_models.CONFIGS[family]())
    policy = HuggingFacePolicy(folder, task)
    theta, (prompt, uniform) = policy.initial((0, 1)), drawn(policy, task)
    token, mask, logp = policy.sample(theta, prompt, 16, uniform)
    rollout = Rollout(prompt, token, mask, logp, torch.zeros(token.shape[:2]), 16)
    for name, hyper in (("fp8-block", {}), ("int8", {}), ("bf16", {}), ("skip-layers", {"ratio": 1.0})):
        behavior = Behavior(policy, engine(name, **hyper), SEEDS)
        assert (behavior.logp(theta, rollout, 0) - logp).abs().max() > 0
        changed = behavior.weights(theta, 0)
        start = 0
        for weight, shape in policy.layout.items():
            size = math.prod(shape)
            same = torch.equal(changed[:, start : start + size], theta[:, start : start + size])
            if name != "bf16" and ("embed" in weight or "norm" in weight):
                assert same, weight
            if name in ("fp8-block", "int8") and len(shape) == 2 and "proj" in weight:
                assert not same, weight
            start += size
    with pytest.raises(UserError, match="changes the forward pass"):
        Behavior(policy, engine("stale-kv"), SEEDS)
