"""Truncated importance sampling: cap the engine mismatch, clip the update."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.batch_statistic import BatchStatistic
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import (
    capped,
    decoupled,
    no_outlier,
    no_vanished_token,
    truncated,
)


@decoupled(
    "tis",
    source="Yao et al. (2025), fengyao.notion.site/off-policy-rl; truncation: Ionides (2008), JCGS 17",
    weight=capped,
)
def tis() -> None:
    """L = -sg[min(d, cap)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu, u = pi/anchor.

    level: that of d, token or sequence (the product over tokens; stacks then cap at 2 to 10). cap = 2 is the
    default of verl, SkyRL, slime and open-instruct; without a cap it is decoupled_ppo. The authors' note
    could not be read; the form is that of verl's documentation.
    """


@decoupled(
    "tis@verl",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py, rollout_corr_helper.py",
    weight=capped,
    defaults={"c": 3.0},
)
def tis_verl() -> None:
    """L = -sg[min(d, cap)] dual_clip(u, A), d = anchor/mu, u = pi/anchor.

    Adds PPO's dual clip (u <= c for A < 0), which bounds the weight by cap * c.
    """


def capped_weights(logp_BT: Tensor, batch: Batch, *, level: str = "token", **hyper: Any) -> Tensor:
    """Return log min(d, cap), -inf outside the mask: one per token, or one per sequence; [..., 1, K]."""
    log_h_BT = capped(logp_BT, batch, level=level, **hyper).masked_fill(~batch.mask_BT, -torch.inf)
    return log_h_BT.flatten(-2).unsqueeze(-2) if level == "token" else log_h_BT.amax(-1).unsqueeze(-2)


def log_mean_weight(log_h_1K: Tensor, **_: Any) -> Tensor:
    """Return the log of the mean weight; [...]; 0 where the mean is at most 1e-8, unchanged in verl."""
    count = (log_h_1K > -torch.inf).sum(-1).to(log_h_1K.dtype)
    log_mean = (log_h_1K.logsumexp(-1) - count.log()).squeeze(-1)
    return torch.where(log_mean > math.log(1e-8), log_mean, torch.zeros_like(log_mean))


MEAN_WEIGHT = BatchStatistic(capped_weights, log_mean_weight)


def normalized(logp_BT: Tensor, batch: Batch, *, level: str = "token", cap: float = 2.0, **_: Any) -> Tensor:
    """Return log min(d, cap), less the log of its mean over the batch."""
    log_mean = MEAN_WEIGHT(logp_BT, batch, level=level, cap=cap)[..., None, None]
    return capped(logp_BT, batch, level=level, cap=cap) - log_mean


@decoupled(
    "tis@verl-normalized",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/rollout_corr_helper.py "
    "(rollout_is_batch_normalize)",
    weight=normalized,
    defaults={"c": 3.0},
    scope="batch",
    statistic=MEAN_WEIGHT,
)
def tis_verl_normalized() -> None:
    """L = -sg[min(d, cap) / mean of min(d, cap)] dual_clip(u, A), d = anchor/mu, u = pi/anchor.

    Self-normalized over the batch: the mean weight stays 1 despite truncation, so the step keeps its length,
    and a weight may exceed the cap. The mean is over tokens at level token and over sequences at level
    sequence, for every aggregation; after truncation, before any rejection.
    """


@decoupled(
    "tis@areal",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/utils/functional (rejection_sampling, 'clamp')",
    weight=truncated,
    defaults={"level": "geometric", "low": 0.9, "high": 1.1, "c": math.inf},
)
def tis_areal() -> None:
    """L = -sg[clip((prod_t d_t)^(1/T), low, high)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. It truncates d on both sides. AReaL's level "sequence" is the geometric
    mean: all tokens of a sequence share one weight, which does not grow with length. No token is dropped.
    low and high are an example; AReaL's default is [0, 5]. c: dual clip for A < 0, off by default.
    """


@decoupled(
    "tis@open-instruct",
    source="allenai/open-instruct e6c3044a 2026-08-20, open_instruct/grpo_utils.py",
    weight=partial(capped, level="token"),
    defaults={"eps_high": 0.272},
)
def tis_open_instruct() -> None:
    """L = -sg[min(d, cap)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), eps_high = 0.272.

    The clip is higher above than below, as in DAPO, so more tokens with A > 0 keep a gradient.
    """


@decoupled(
    "tis@openrlhf",
    source="OpenRLHF/OpenRLHF 3c3be623 2026-08-13, openrlhf/models/loss.py (PolicyLoss)",
    weight=partial(truncated, level="token"),
    defaults={"low": 0.5, "high": 5.0},
)
def tis_openrlhf() -> None:
    """L = -sg[clip(d, low, high)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu.

    Truncates below as well: a token that the sampler overestimated (small d) is weighed up to `low`.
    """


@decoupled(
    "tis@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/"
    "off_policy_correction_utils.py",
    weight=capped,
    keep=no_outlier,
)
def tis_skyrl() -> None:
    """L = -sg[min(d, cap) 1[all d in [outlier_low, outlier_high]]] min(u A, clip(u) A), d = anchor/mu.

    Drops every sequence that has one token outside the outlier bounds, and takes it out of the mask.
    SkyRL's sequence level has a cap of 5.
    """


@decoupled(
    "tis@slime",
    source="THUDM/slime 624b824a 2026-08-21, examples/train_infer_mismatch_helper/mis.py, mis.yaml",
    weight=capped,
    keep=no_vanished_token,
)
def tis_slime() -> None:
    """L = -sg[min(d, cap) 1[all d >= floor]] min(u A, clip(u) A), d = anchor/mu, u = pi/anchor.

    Drops every sequence that has one token with d below the floor, and takes it out of the mask.
    """


@objective.variant(
    "tis@roll",
    source="alibaba/ROLL 8eb27cc2 2026-08-18, pg_variant 'tis'",
    reads=("anchor", "adv"),
    detached=True,
    max_weight="high",
)
def tis_roll(logp_BT: Tensor, batch: Batch, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """L = -sg[clip(u, low, high)] A log pi, u = pi/anchor.

    Not TIS, despite the name: it truncates the update ratio and ignores mu; no weight exceeds 1.
    """
    weight_BT = log_token(logp_BT, batch, base="anchor").exp().clamp(low, high)
    return score_loss(weight_BT, logp_BT, batch)
