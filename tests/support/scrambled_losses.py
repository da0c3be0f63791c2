"""Losses as public stacks compute them, under names that say nothing, and three inventions.

EXPECTED: what each one is: an entry that has its formula, some of its hyperparameters, its aggregation.
"""

from typing import Any

import torch
from torch import Tensor

EXPECTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "f01": ("ppo_clip", {"eps_low": 0.2, "eps_high": 0.28}, "sequence_mean"),
    "f02": ("ppo_clip", {"eps_low": 0.1, "eps_high": 0.3}, "token_mean"),
    "f03": ("ppo_clip", {"eps_low": 0.2, "eps_high": 0.2}, "constant"),
    "f04": ("two_sided", {"delta": 1.9}, "token_mean"),
    "f05": ("gspo", {"eps_low": 3e-4, "eps_high": 4e-4}, "constant"),
    "f06": ("luspo", {"eps_low": 0.002, "eps_high": 0.0025}, "constant"),
    "f07": ("cispo@trl", {"eps_high": 5.0}, "token_mean"),
    "f08": ("sapo", {"tau_pos": 1.0, "tau_neg": 1.05}, "sequence_mean"),
    "f09": ("vespo", {"k_pos": 2.0, "lam_pos": 3.0, "k_neg": 3.0, "lam_neg": 2.0}, "token_mean"),
    "f10": ("ppo_clip", {"eps_high": 0.2}, "sequence_mean"), "f11": ("dual_clip", {"c": 3.0}, "token_mean"),
    "f12": ("gspo@verl", {"eps_low": 0.01, "eps_high": 0.02}, "constant"),
    "f13": ("gmpo@verl", {"eps_low": 0.2}, "constant"),
    "f14": ("decoupled_ppo", {"eps_low": 0.2}, "token_mean"),
    "f15": ("importance_reinforce@tinker", {}, "token_sum"),
    "f16": ("tis", {"cap": 2.0, "level": "token"}, "token_mean"),
    "f17": ("icepop", {"low": 0.5, "high": 5.0}, "token_mean"),
    "f18": ("dppo_tv@verl", {"d_low": 0.15, "d_high": 0.15}, "token_mean"),
    "f19": ("topr", {}, "sequence_sum"), "f20": ("opsm", {"delta": 0.05}, "token_mean"),
    "f21": ("kl_penalty", {"estimator": "k3"}, "token_mean"),
    "f22": ("cispo@open-instruct", {"eps_high": 0.272}, "token_mean"), "f23": ("reinforce", {}, "token_mean"),
}  # fmt: skip


def _pg(r: Tensor, a: Tensor, low: float, high: float) -> Tensor:
    return -torch.min(r * a, r.clamp(1 - low, 1 + high) * a)


def _mean(x: Tensor, m: Tensor) -> Tensor:
    return (x * m).sum() / m.sum()


def _per_row(x: Tensor, m: Tensor) -> Tensor:
    return ((x * m).sum(-1) / m.sum(-1)).mean()


def f01(per_token_logps, old_per_token_logps, advantages, completion_mask):
    r = torch.exp(per_token_logps - old_per_token_logps)
    return _per_row(_pg(r, advantages.unsqueeze(1), 0.2, 0.28), completion_mask)


def f02(log_prob, old_log_prob, advantages, response_mask):
    return _mean(_pg((log_prob - old_log_prob).exp(), advantages, 0.1, 0.3), response_mask), {"k": 1.0}


def f03(new_logprobs, old_logprobs, advantages, mask):
    return (_pg((new_logprobs - old_logprobs).exp(), advantages, 0.2, 0.2) * mask).sum() / (len(mask) * 64)


def f04(per_token_logps, old_per_token_logps, advantages, completion_mask):
    r, a = torch.exp(per_token_logps - old_per_token_logps), advantages[:, None]
    s = torch.min(r.clamp(max=1.9) * a, r.clamp(0.8, 1.2) * a)
    return -_mean(s, completion_mask)


def f05(log_probs, old_log_probs, advantages, action_mask):
    n = action_mask.sum(-1, keepdim=True)
    r = (((log_probs - old_log_probs) * action_mask).sum(-1, keepdim=True) / n).exp()
    return _per_row(_pg(r, advantages, 3e-4, 4e-4).expand_as(action_mask), action_mask)


def f06(per_token_logps, old_per_token_logps, advantages, completion_mask):
    x = (per_token_logps - old_per_token_logps) * completion_mask
    r = (x.sum(-1) / completion_mask.sum(-1)).exp()
    return (_pg(r, advantages, 0.002, 0.0025) * completion_mask.sum(-1)).mean()


def f07(per_token_logps, old_per_token_logps, advantages, completion_mask):
    w = torch.exp(per_token_logps - old_per_token_logps).clamp(max=5.0).detach()
    return -_mean(w * advantages * per_token_logps, completion_mask)


def f08(per_token_logps, old_per_token_logps, advantages, completion_mask):
    r = torch.exp(per_token_logps - old_per_token_logps)
    t = torch.where(advantages > 0, 1.0, 1.05).to(r.dtype)
    return _per_row(-advantages * torch.sigmoid(t * (r - 1)) * 4 / t, completion_mask)


def f09(per_token_logps, old_per_token_logps, advantages, completion_mask):
    x = ((per_token_logps - old_per_token_logps) * completion_mask).sum(-1, keepdim=True).detach()
    k = torch.where(advantages >= 0, 2.0, 3.0).to(x.dtype)
    lam = torch.where(advantages >= 0, 3.0, 2.0).to(x.dtype)
    w = torch.exp(lam + k * x - lam * x.exp())
    return -_mean(w * advantages * per_token_logps, completion_mask)


def f10(per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask):
    d = ref_per_token_logps - per_token_logps
    loss = _pg(torch.exp(per_token_logps - old_per_token_logps), advantages, 0.2, 0.2)
    return _per_row(loss + 0.04 * (d.exp() - d - 1), completion_mask)


def f11(log_prob, old_log_prob, advantages, response_mask):
    r = (log_prob - old_log_prob).exp()
    plain = torch.maximum(-advantages * r, -advantages * r.clamp(0.8, 1.2))
    dual = torch.min(-advantages * 3.0, plain)
    return _mean(torch.where(advantages < 0, dual, plain), response_mask)


def f12(log_prob, old_log_prob, advantages, response_mask):
    x = log_prob - old_log_prob
    s = (x * response_mask).sum(-1, keepdim=True) / response_mask.sum(-1, keepdim=True)
    r = (log_prob - log_prob.detach() + s.detach()).clamp(max=10).exp()
    return _per_row(torch.maximum(-advantages * r, -advantages * r.clamp(0.99, 1.02)), response_mask)


def f13(log_prob, old_log_prob, advantages, response_mask):
    x, sign = log_prob - old_log_prob, torch.sign(advantages)
    x = sign * torch.min(sign * x, sign * x.clamp(-0.2, 0.2))
    n = response_mask.sum(-1)
    return (-((advantages * response_mask).sum(-1) / n) * ((x * response_mask).sum(-1) / n).exp()).mean()


def f14(logprobs, proximal_logprobs, old_logprobs, advantages, loss_mask):
    u = (logprobs - proximal_logprobs).exp()
    return _mean((proximal_logprobs - old_logprobs).exp() * _pg(u, advantages, 0.2, 0.2), loss_mask)


def f15(target_logprobs, sampling_logprobs, advantages, mask):
    return -((target_logprobs - sampling_logprobs).exp() * advantages * mask).sum()


def f16(log_probs, old_log_probs, rollout_log_probs, advantages, action_mask):
    w = (old_log_probs - rollout_log_probs).exp().clamp(max=2.0).detach()
    return _mean(w * _pg((log_probs - old_log_probs).exp(), advantages, 0.2, 0.2), action_mask)


def f17(log_probs, old_log_probs, rollout_log_probs, advantages, action_mask):
    w = (old_log_probs - rollout_log_probs).exp()
    w = torch.where((w >= 0.5) & (w <= 5.0), w, 0.0).detach()
    return _mean(w * _pg((log_probs - old_log_probs).exp(), advantages, 0.2, 0.2), action_mask)


def f18(log_prob, old_log_prob, advantages, response_mask):
    moved = (log_prob.exp() - old_log_prob.exp()).detach()
    stop = torch.where(advantages > 0, moved > 0.15, moved < -0.15)
    w = (log_prob - old_log_prob).clamp(-20, 20).exp().clamp(max=3.0).detach()
    return _mean(-torch.where(stop, 0.0, w) * advantages * log_prob, response_mask)


def f19(logp, rollout_logprobs, advantages, mask):
    w = ((logp - rollout_logprobs) * mask).sum(-1, keepdim=True).exp().clamp(0.0, 1.0).detach()
    w = torch.where(advantages > 0, 1.0, w)
    return (-(w * advantages * logp * mask).sum(-1) / mask.sum(-1)).sum()


def f20(per_token_logps, old_per_token_logps, sampling_per_token_logps, advantages, completion_mask):
    x = (sampling_per_token_logps - per_token_logps).detach()
    far = (x * completion_mask).sum(-1, keepdim=True) / completion_mask.sum(-1, keepdim=True) > 0.05
    keep = 1 - (far & (advantages < 0)).to(x.dtype)
    loss = _pg((per_token_logps - old_per_token_logps).exp(), advantages, 0.2, 0.2)
    return _mean(loss * keep, completion_mask)


def f21(log_prob, ref_log_prob, response_mask):
    d = ref_log_prob - log_prob
    return _mean(d.exp() - d - 1, response_mask)


def f22(new_logprobs, old_logprobs, advantages, mask):
    w = (new_logprobs - old_logprobs).exp().detach().clamp(max=1.272)
    return _mean(-advantages * w * new_logprobs, mask)


def f23(log_probs, advantages, action_mask):
    return _mean(-advantages * log_probs, action_mask)


def new1(log_probs, old_log_probs, advantages, mask):
    """tanh of the ratio."""
    return _mean(-torch.tanh((log_probs - old_log_probs).exp()) * advantages, mask)


def new2(log_probs, old_log_probs, advantages, mask):
    """PPO's clip, with tokens weighed by their position."""
    place = torch.arange(1, mask.shape[-1] + 1, dtype=mask.dtype)
    return _mean(place * _pg((log_probs - old_log_probs).exp(), advantages, 0.2, 0.2), mask)


def new3(log_probs, old_log_probs, advantages, mask):
    """The root of the ratio, detached, times log pi."""
    return _mean(-(0.5 * (log_probs - old_log_probs)).exp().detach() * advantages * log_probs, mask)
