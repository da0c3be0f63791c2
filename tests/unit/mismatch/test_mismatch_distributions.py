"""Engine mismatch: distributions in closed form, engines of other weights, and what an engine samples."""

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
from testbed.mismatch.perturbed_engines import drawn_layers
from testbed.policies.toy.toy_transformer import LOGP_TOLERANCE, ToyTransformer

# Laws in closed form


def one_token(name: str, pi: np.ndarray, **hyper) -> np.ndarray:
    """mu of one softmax."""
    law = engine(name, **hyper).distribution
    return law(torch.from_numpy(np.log(pi))[None, None], Draw((0,)), 0).exp().numpy()[0, 0]


PI = np.array([0.5, 0.25, 0.15, 0.1])


def test_temperature_is_a_power_of_pi():
    mu = one_token("temperature", PI, temperature=2.0)
    np.testing.assert_allclose(mu, np.sqrt(PI) / np.sqrt(PI).sum(), rtol=1e-14)


def test_logit_noise_has_the_normalizer_of_its_own_noise():
    sigma, draw = 0.3, Draw(SEEDS, step=5, ticks=7)
    log_pi = torch.from_numpy(np.log(PI)).expand(2, 6, 4)
    log_mu = engine("logit-noise", sigma=sigma).distribution(log_pi, draw, 2)
    noise = draw.normal("logit-noise", 2, log_pi)
    expected = log_pi + sigma * noise - (log_pi + sigma * noise).exp().sum(-1, keepdim=True).log()
    torch.testing.assert_close(log_mu, expected, rtol=0, atol=1e-14)
    assert len(noise.flatten().unique()) == noise.numel()


def test_the_streams_normals_are_normal():
    # 200,000 draws: each bound is 5 standard errors, false alarm below 1e-6 each.
    n = 200_000
    z = Draw((1,)).normal("any", 0, torch.zeros(1, n, 1, dtype=torch.float64)).flatten()
    assert abs(z.mean().item()) < 5 / math.sqrt(n)
    assert abs(z.var().item() - 1) < 5 * math.sqrt(2 / n)
    assert abs((z**4).mean().item() - 3) < 5 * math.sqrt(96 / n)


def test_a_nucleus_holds_the_token_that_reaches_p_and_top_k_the_k_likeliest():
    np.testing.assert_allclose(one_token("top-p", PI, p=0.6), [2 / 3, 1 / 3, 0, 0], atol=1e-15)
    np.testing.assert_allclose(one_token("top-p", PI, p=0.49), [1, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(
        one_token("top-p", PI[::-1].copy(), p=0.8), np.array([0, 1, 5 / 3, 10 / 3]) / 6, atol=1e-15
    )
    np.testing.assert_allclose(one_token("top-k", PI, k=3), np.array([0.5, 0.25, 0.15, 0]) / 0.9, atol=1e-15)
    backwards = one_token("top-k", PI[::-1].copy(), k=1)
    np.testing.assert_allclose(backwards, [0, 0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(one_token("top-k", np.full(4, 0.25), k=2), [0.5, 0.5, 0, 0], atol=1e-15)


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
    # The scale is that of the whole matrix, wherever in it the large weights are.
    change, rows = engine("layer-noise", matrices="all").weights, torch.tensor([[1.0] * 3 + [0.0] * 3])
    above, below = (change(w, {"w": (2, 3)}, Draw((0,))) - w for w in (rows, rows.flip(-1)))
    torch.testing.assert_close(above, below)
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


def test_raw_log_probabilities_are_those_before_the_engine_changed_them():
    policy = toy(dtype=torch.float64)
    theta, (prompt, uniform) = toy_weights(policy), drawn(policy, TASK)
    given = torch.full(uniform.shape, -1)
    given[..., 0] = 0
    for name, hyper in (("temperature", {"temperature": 1.5}), ("top-p", {"p": 0.5})):
        processed, raw = (Behavior(policy, engine(f"{name}{more}", **hyper), SEEDS) for more in ("", "+raw"))
        token, mask, logp_mu = processed.sample(theta, prompt, 16, uniform, 0)
        same, _, logp_pi = raw.sample(theta, prompt, 16, uniform, 0)
        assert torch.equal(same, token)
        torch.testing.assert_close(logp_pi, policy.logp(theta, prompt, token, mask), rtol=0, atol=1e-12)
        assert (logp_pi - logp_mu).abs().max() > 0.01
        started = raw.sample(theta, prompt, 16, uniform, 0, given_RBT=given)[2]
        assert (started[..., 0] == 0).all()
    with pytest.raises(UserError, match="raw log-probabilities, which are not kept while weights change"):
        raw.sample_in_flight(theta[:, None], token, prompt, 16, uniform, 0, "kept")


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
    rollout = Rollout(torch.from_numpy(start)[..., None], token, mask, *[torch.zeros(1)] * 2, 3, state)
    expected = np.log(mu)[np.arange(2)[:, None, None], state, token]
    np.testing.assert_allclose(behavior.logp(theta, rollout, 0), np.where(mask, expected, 0.0), atol=1e-14)
    raw = Behavior(TABLE, engine("temperature+raw"), SEEDS)
    np.testing.assert_array_equal(
        raw.probabilities(theta, 0), Behavior(TABLE, engine("temperature"), SEEDS).probabilities(theta, 0)
    )
    assert torch.equal(raw.logp(theta, rollout, 0), TABLE.logp(theta, state, token, mask))


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
    from testbed.policies.hf.hf_policy import HuggingFacePolicy

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
