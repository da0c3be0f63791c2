"""Objectives behind verl's policy-loss signature, against a stand-in for the part of verl that calls it."""

import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from testbed.adapters.verl import MODES, aggregated, policy_loss, register
from testbed.errors import UserError
from testbed.objectives import objective
from testbed.recipes.composition import Term

every_mode = pytest.mark.parametrize("mode", MODES)


def data(rows=6, width=7, seed=0, empty=()):
    """What verl's actor hands to a policy loss; float mask, rows named in `empty` without a token."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(width) < rng.integers(2, width + 1, size=(rows, 1))) & (rng.random((rows, width)) < 0.8)
    mask[:, 0] = True
    mask[list(empty)] = False
    old = -np.abs(rng.normal(size=(rows, width)))
    new = old + 0.3 * rng.normal(size=(rows, width))
    tensors = [torch.tensor(x) for x in (old, new, np.repeat(rng.normal(size=(rows, 1)), width, 1))]
    return {
        "old_log_prob": tensors[0], "log_prob": tensors[1].requires_grad_(), "advantages": tensors[2],
        "response_mask": torch.tensor(mask, dtype=torch.float32),
    }  # fmt: skip


def by_hand(loss, mask, mode, info):
    """verl's modes as loops over numbers, with its defaults for counts that are not given."""
    sums = [sum(x for x, m in zip(row, keep, strict=True) if m) for row, keep in zip(loss, mask, strict=True)]
    counts = [sum(bool(m) for m in keep) for keep in mask]
    sequences = info.get("global_batch_size") or sum(n > 0 for n in counts)
    scale = info.get("dp_size", 1)
    if mode == "token-mean":
        return sum(sums) / (info.get("batch_num_tokens") or sum(counts)) * scale
    if mode == "seq-mean-token-mean":
        sums = [s / n for s, n in zip(sums, counts, strict=True) if n]
    if mode == "seq-mean-token-sum-norm":
        sums = [s / (info.get("loss_scale_factor") or len(loss[0])) for s in sums]
    return sum(sums) / sequences * scale


def ppo_by_hand(given, low=0.2, high=0.2):
    u = np.exp((given["log_prob"] - given["old_log_prob"]).detach().numpy())
    adv = given["advantages"].numpy()
    return -np.minimum(u * adv, np.clip(u, 1 - low, 1 + high) * adv)


INFOS = {
    "local": {},
    "global": {"dp_size": 2, "batch_num_tokens": 90, "global_batch_size": 24, "loss_scale_factor": 16},
    "factor": {"dp_size": 1, "batch_num_tokens": None, "global_batch_size": None, "loss_scale_factor": 16},
}


@every_mode
@pytest.mark.parametrize("info", INFOS)
@pytest.mark.parametrize("empty", [(), (1, 4)], ids=["full", "rejected rows"])
def test_loss_has_verls_value_in_every_mode(mode, info, empty):
    given = data(empty=empty)
    config = SimpleNamespace(
        global_batch_info=INFOS[info], loss_scale_factor=INFOS[info].get("loss_scale_factor")
    )
    loss, metrics = policy_loss("ppo_clip")(**given, loss_agg_mode=mode, config=config)
    expected = by_hand(ppo_by_hand(given), given["response_mask"], mode, INFOS[info])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-9)
    assert all(isinstance(value, float) for value in metrics.values())


@every_mode
def test_micro_batches_of_one_update_add_up(mode):
    given = data(rows=8)
    # One width for both parts: verl pads all responses of a batch alike.
    info = {"batch_num_tokens": float(given["response_mask"].sum()), "global_batch_size": 8, "dp_size": 1}
    whole, _ = policy_loss("ppo_clip")(**given, loss_agg_mode=mode)
    parts = [policy_loss("ppo_clip")(**{name: value[rows] for name, value in given.items()},
                                     loss_agg_mode=mode, config={"global_batch_info": info})[0]
             for rows in (slice(0, 3), slice(3, 8))]  # fmt: skip
    torch.testing.assert_close(sum(parts), whole, rtol=1e-12, atol=0)


def test_gradient_and_metrics():
    given = data()
    loss, metrics = policy_loss("ppo_clip", eps_low=0.1, eps_high=0.15)(**given)
    (gradient,) = torch.autograd.grad(loss, given["log_prob"])
    mask = given["response_mask"].bool().numpy()
    u = np.exp((given["log_prob"] - given["old_log_prob"]).detach().numpy())
    adv = given["advantages"].numpy()
    cut = np.where(adv > 0, u > 1.15, u < 0.9)
    expected = np.where(mask & ~cut, -u * adv, 0.0) / mask.sum()
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-9)
    assert metrics["actor/pg_clipfrac"] == pytest.approx(cut[mask].mean(), rel=1e-6)
    assert 0 < metrics["actor/pg_clipfrac"] < 1
    assert metrics["actor/ppo_kl"] == pytest.approx(-np.log(u)[mask].mean(), rel=1e-5)


def test_verls_weights_multiply_the_objective_and_not_the_terms():
    given, weights = data(), torch.rand(6, 7, dtype=torch.float64) + 0.5
    bare, _ = policy_loss("ppo_clip")(**given, rollout_is_weights=weights)
    expected = by_hand(ppo_by_hand(given) * weights.numpy(), given["response_mask"], "token-mean", {})
    assert float(bare.detach()) == pytest.approx(float(expected), rel=1e-9)
    term = Term("kl_penalty@verl", 0.1)
    with pytest.raises(UserError, match="reads 'ref', which verl hands to no policy loss: verl adds"):
        policy_loss("ppo_clip", terms=[term])
    entropy = policy_loss("ppo_clip", terms=[Term("entropy_bonus", 0.1, (("gradient", "pathwise"),))])
    added, _ = entropy(**given, rollout_is_weights=weights)
    extra = by_hand(0.1 * given["log_prob"].detach().numpy(), given["response_mask"], "token-mean", {})
    assert float((added - bare).detach()) == pytest.approx(float(extra), rel=1e-9)


def test_a_term_that_reads_the_sampler_does_not_correct_the_objective():
    given, weights = data(), torch.full((6, 7), 1.7, dtype=torch.float64)
    rollout = given["old_log_prob"] - 0.2
    summed = policy_loss("ppo_clip", terms=[Term("tis", 0.5)])
    loss, _ = summed(**given, rollout_is_weights=weights, rollout_log_prob=rollout)
    tis = 0.5 * np.exp(0.2) * ppo_by_hand(given)
    expected = by_hand(1.7 * ppo_by_hand(given) + tis, given["response_mask"], "token-mean", {})
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-9)


def test_the_samplers_log_probabilities_are_asked_for_and_never_made_up():
    given = data()
    refuses(r"cispo reads the sampler's.*rollout_log_prob.*bypass_mode=True", policy_loss("cispo"), **given)
    rollout = given["old_log_prob"] - 0.2
    told, _ = policy_loss("cispo")(**given, rollout_log_prob=rollout)
    bypass, _ = policy_loss("cispo", old_is="mu")(**{**given, "old_log_prob": rollout})
    assert float(told.detach()) == float(bypass.detach())
    assert float(told.detach()) != float(policy_loss("cispo", old_is="mu")(**given)[0].detach())
    with pytest.raises(UserError, match="would do it twice"):
        policy_loss("tis")(**given, rollout_log_prob=rollout, rollout_is_weights=torch.ones(6, 7))


def test_anchor_and_sampler_are_kept_apart():
    given = data()
    rollout = given["old_log_prob"] - 0.2
    loss, _ = policy_loss("tis", cap=1.1)(**given, rollout_log_prob=rollout)
    expected = by_hand(1.1 * ppo_by_hand(given), given["response_mask"], "token-mean", {})  # d = e^0.2 > 1.1
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-9)


def test_a_batch_without_a_token_gives_zero_and_a_gradient():
    given = data(rows=3, empty=(0, 1, 2))
    loss, metrics = policy_loss("ppo_clip")(**given)
    (gradient,) = torch.autograd.grad(loss, given["log_prob"])
    assert float(loss.detach()) == 0
    assert metrics == {}
    assert (gradient == 0).all()


@pytest.mark.parametrize("name", sorted(objective))
def test_every_objective_either_runs_or_says_what_verl_lacks(name):
    missing = {"ref", "reward", "group", "turn", "origin"} & set(objective[name].promises["reads"])
    if missing:
        refuses("which verl hands to no policy loss", policy_loss, name)
        return
    loss, _ = policy_loss(name, old_is="mu")(**data(rows=4))
    assert torch.isfinite(loss)
    assert loss.requires_grad


def test_a_function_in_a_file_may_read_anything_and_is_told_what_it_gets(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def mine(logp_BT, batch):\n return -(logp_BT - batch.logp_mu_BT).exp() * batch.adv_BT\n")
    given = data()
    refuses("reads the sampler's log-probabilities", policy_loss(f"{path}:mine"), **given)
    loss, _ = policy_loss(f"{path}:mine", old_is="mu")(**given)
    u = np.exp((given["log_prob"] - given["old_log_prob"]).detach().numpy())
    expected = by_hand(-u * given["advantages"].numpy(), given["response_mask"], "token-mean", {})
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-9)


def test_unknown_names_are_errors():
    refuses("Did you mean 'token-mean'", policy_loss("ppo_clip"), **data(), loss_agg_mode="token_mean")
    refuses("Unknown old_is 'rollout'", policy_loss, "ppo_clip", old_is="rollout")
    refuses("no hyperparameter 'clip_ratio'", policy_loss, "ppo_clip", clip_ratio=0.2)
    with pytest.raises(UserError, match="dp_size=4, but global_batch_info has no batch_num_tokens"):
        aggregated(
            torch.ones(2, 3), torch.ones(2, 3).bool(), "token-mean", {"global_batch_info": {"dp_size": 4}}
        )


def test_registering_hands_the_function_to_verl(monkeypatch):
    known = {}
    core = types.ModuleType("verl.trainer.ppo.core_algos")
    core.register_policy_loss = lambda name: lambda function: known.setdefault(name, function)
    for name in ("verl", "verl.trainer", "verl.trainer.ppo"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, core.__name__, core)
    loss = policy_loss("gspo")
    register("testbed_gspo", loss)
    assert known == {"testbed_gspo": loss}
