"""Losses as somebody ports them: rows with padding, one packed row, lists of tensors. All of them are right.

AS: what each one is, and how it counts. tests/unit/conformance/test_planted.py plants bugs in this text.
"""

from typing import Any

import torch
from torch import Tensor

AS: dict[str, dict[str, Any]] = {
    "padded_grpo": {"as_": "ppo_clip", "aggregation": "sequence_mean"},
    "padded_dapo": {"as_": "ppo_clip", "aggregation": "token_mean"},
    "padded_dr_grpo": {"as_": "ppo_clip", "aggregation": "constant", "length": 32.0},
    "padded_dual": {"as_": "dual_clip", "aggregation": "token_mean"},
    "padded_gspo": {"as_": "gspo", "aggregation": "constant", "length": 1.0},
    "padded_cispo": {"as_": "cispo@open-instruct", "aggregation": "token_mean"},
    "padded_sapo": {"as_": "sapo", "aggregation": "sequence_mean"},
    "padded_tis": {"as_": "tis", "aggregation": "token_mean"},
    "padded_decoupled": {"as_": "decoupled_ppo", "aggregation": "token_mean"},
    "padded_kl": {"as_": "kl_penalty", "aggregation": "token_mean"},
    "padded_rewards": {"as_": "grpo", "aggregation": "token_mean"},
    "padded_logits": {"as_": "ppo_clip", "aggregation": "token_mean"},
    "packed_dapo": {"as_": "ppo_clip", "aggregation": "token_mean"},
    "packed_grpo": {"as_": "ppo_clip", "aggregation": "sequence_mean"},
    "packed_gspo": {"as_": "gspo", "aggregation": "constant", "length": 1.0},
    "packed_cispo": {"as_": "cispo@trl", "aggregation": "token_sum"},
    "packed_varlen": {"as_": "gspo", "aggregation": "constant", "length": 1.0},
    "packed_global": {"as_": "ppo_clip", "aggregation": "token_mean"},
    "lists_grpo": {"as_": "ppo_clip", "aggregation": "sequence_mean"},
    "lists_dapo": {"as_": "ppo_clip", "aggregation": "token_mean"},
    "lists_gspo": {"as_": "gspo", "aggregation": "constant", "length": 1.0},
    "lists_gmpo": {"as_": "gmpo", "aggregation": "constant", "length": 1.0},
}


def padded_grpo(log_probs, old_log_probs, advantages, mask, clip_low=0.2, clip_high=0.28):
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    return -((surrogate * mask).sum(-1) / mask.sum(-1)).mean()


def padded_dapo(log_probs, old_log_probs, advantages, mask, clip_low=0.2, clip_high=0.28):
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    return -(surrogate * mask).sum() / mask.sum().clamp(min=1)


def padded_dr_grpo(log_probs, old_log_probs, advantages, mask, clip_eps=0.2, max_tokens=32):
    ratio = torch.exp(log_probs - old_log_probs)
    loss = torch.max(-ratio * advantages, -ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return (loss * mask).sum() / (mask.shape[0] * max_tokens)


def padded_dual(log_probs, old_log_probs, advantages, mask, clip_eps=0.2, clip_ratio_c=3.0):
    ratio = torch.exp(log_probs - old_log_probs)
    loss = torch.max(-ratio * advantages, -ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    capped = torch.min(loss, -clip_ratio_c * advantages)
    return (torch.where(advantages < 0, capped, loss) * mask).sum() / mask.sum()


def padded_gspo(log_probs, old_log_probs, advantages, mask, eps_low=3e-3, eps_high=4e-3):
    log_ratio = ((log_probs - old_log_probs) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    ratio, adv = log_ratio.exp(), advantages[:, 0]
    return -torch.min(ratio * adv, ratio.clamp(1 - eps_low, 1 + eps_high) * adv).mean()


def padded_cispo(log_probs, old_log_probs, advantages, mask, eps_high=0.272):
    weight = torch.exp(log_probs - old_log_probs).clamp(max=1 + eps_high).detach()
    return -(weight * advantages * log_probs * mask).sum() / mask.sum()


def padded_sapo(log_probs, old_log_probs, advantages, mask, tau_pos=1.0, tau_neg=1.05):
    ratio = torch.exp(log_probs - old_log_probs)
    positive = 4 / tau_pos * torch.sigmoid(tau_pos * (ratio - 1))
    negative = 4 / tau_neg * torch.sigmoid(tau_neg * (ratio - 1))
    gate = torch.where(advantages > 0, positive, negative)
    return -((gate * advantages * mask).sum(-1) / mask.sum(-1)).mean()


def padded_tis(log_probs, old_log_probs, rollout_log_probs, advantages, mask, clip_eps=0.2, cap=2.0):
    ratio = torch.exp(log_probs - old_log_probs)
    weight = torch.exp(old_log_probs - rollout_log_probs).clamp(max=cap)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return -(weight * surrogate * mask).sum() / mask.sum()


def padded_decoupled(logprobs, proximal_logprobs, behav_logprobs, advantages, mask, clip_eps=0.2):
    ratio = torch.exp(logprobs - proximal_logprobs)
    behavior = torch.exp(proximal_logprobs - behav_logprobs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return -(behavior * surrogate * mask).sum() / mask.sum()


def padded_kl(log_probs, ref_log_probs, mask):
    delta = ref_log_probs - log_probs
    return ((delta.exp() - delta - 1) * mask).sum() / mask.sum()


def padded_rewards(log_probs, old_log_probs, rewards, group_ids, mask, clip_eps=0.2):
    one = torch.nn.functional.one_hot(group_ids).to(rewards.dtype)
    size = one.sum(0)
    centered = rewards - one @ (one.T @ rewards / size)
    std = (one.T @ centered.square() / (size - 1).clamp(min=1)).sqrt()
    advantages = (centered / (one @ std + 1e-6))[:, None]
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return -(surrogate * mask).sum() / mask.sum()


def padded_logits(logits, labels, old_log_probs, advantages, mask, clip_eps=0.2):
    chunks = zip(logits.split(2, 1), labels.split(2, 1), strict=True)
    log_probs = torch.cat([c.log_softmax(-1).gather(-1, y[..., None])[..., 0] for c, y in chunks], 1)
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return -(surrogate * mask).sum() / mask.sum()


def packed_dapo(log_probs, old_log_probs, advantages, loss_mask, segment_ids, clip_low=0.2, clip_high=0.28):
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    return -(surrogate * loss_mask).sum() / loss_mask.sum()


def _segments(values: Tensor, ids: Tensor, count: int) -> Tensor:
    return torch.zeros(count, dtype=values.dtype).index_add(0, ids, values)


def packed_grpo(log_probs, old_log_probs, advantages, loss_mask, segment_ids, clip_eps=0.2):
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    count = int(segment_ids.max()) + 1
    total = _segments((surrogate * loss_mask).flatten(), segment_ids.flatten(), count)
    length = _segments(loss_mask.flatten(), segment_ids.flatten(), count)
    return -(total / length).mean()


def packed_gspo(log_probs, old_log_probs, advantages, loss_mask, position_ids, eps_low=3e-3, eps_high=4e-3):
    ids = (position_ids == 0).long().cumsum(-1).flatten() - 1
    count = int(ids.max()) + 1
    length = _segments(loss_mask.flatten(), ids, count)
    log_ratio = _segments(((log_probs - old_log_probs) * loss_mask).flatten(), ids, count) / length
    ratio, starts = log_ratio.exp(), (position_ids == 0).flatten()
    adv = advantages.flatten()[starts]
    return -torch.min(ratio * adv, ratio.clamp(1 - eps_low, 1 + eps_high) * adv).mean()


def packed_cispo(log_probs, old_log_probs, advantages, loss_mask, segment_ids, eps_high=5.0):
    weight = torch.exp(log_probs - old_log_probs).detach().clamp(max=eps_high)
    return -(weight * advantages * log_probs * loss_mask).sum()


def packed_varlen(log_probs, old_log_probs, advantages, loss_mask, cu_seqlens, eps_low=3e-3, eps_high=4e-3):
    losses = []
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        mask = loss_mask[..., start:end]
        gap = (log_probs - old_log_probs)[..., start:end]
        ratio, adv = ((gap * mask).sum() / mask.sum()).exp(), advantages[..., start]
        losses.append(-torch.min(ratio * adv, ratio.clamp(1 - eps_low, 1 + eps_high) * adv))
    return torch.stack(losses).mean()


def packed_global(log_probs, old_log_probs, advantages, loss_mask, segment_ids, num_tokens, clip_eps=0.2):
    ratio = torch.exp(log_probs - old_log_probs)
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    return -(surrogate * loss_mask).sum() / num_tokens


def lists_grpo(log_probs: list, old_log_probs: list, advantages: list, masks: list, clip_eps=0.2):
    losses = []
    for new, old, adv, mask in zip(log_probs, old_log_probs, advantages, masks, strict=True):
        ratio = (new - old).exp()
        surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
        losses.append(-(surrogate * mask).sum() / mask.sum())
    return torch.stack(losses).mean()


def lists_dapo(log_probs: list, old_log_probs: list, advantages: list, masks: list, clip_eps=0.2):
    new, old = torch.cat(log_probs), torch.cat(old_log_probs)
    adv, mask = torch.cat(advantages), torch.cat(masks)
    ratio = (new - old).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip_eps, 1 + clip_eps) * adv)
    return -(surrogate * mask).sum() / mask.sum()


def lists_gspo(log_probs, old_log_probs, advantages, masks, eps_low=3e-3, eps_high=4e-3):
    losses = []
    for new, old, adv, mask in zip(log_probs, old_log_probs, advantages, masks, strict=True):
        ratio = (((new - old) * mask).sum() / mask.sum()).exp()
        losses.append(-torch.min(ratio * adv[0], ratio.clamp(1 - eps_low, 1 + eps_high) * adv[0]))
    return sum(losses) / len(losses)


def lists_gmpo(log_probs, old_log_probs, advantages, masks, eps_low=0.4, eps_high=0.4):
    losses = []
    for new, old, adv, mask in zip(log_probs, old_log_probs, advantages, masks, strict=True):
        gap, sign = new - old, torch.sign(adv)
        clipped = sign * torch.min(sign * gap, sign * gap.clamp(-eps_low, eps_high))
        losses.append(-adv[0] * ((clipped * mask).sum() / mask.sum()).exp())
    return torch.stack(losses).mean()
