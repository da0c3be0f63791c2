"""Decoupled PPO: clip around the anchor, weigh by the ratio to the behavior policy."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives.decoupled.correction import TOKEN_MISMATCH, decoupled, log_mismatch_at, mismatch


@decoupled(
    "decoupled_ppo",
    source="Hilton, Cobbe & Schulman (2022), arXiv:2110.00641; Fu et al. (2025), arXiv:2505.24298 (AReaL)",
    weight=TOKEN_MISMATCH,
    defaults={"c": math.inf},
)
def decoupled_ppo() -> None:
    """L = -min((pi/mu) A, (anchor/mu) clip(pi/anchor, 1 - eps_low, 1 + eps_high) A).

    The ratio to mu corrects the estimate, the ratio to the anchor limits the update; with anchor = mu it is
    ppo_clip. Where the clip does not bind, the weight is pi/mu, unbounded. eps = 0.2 as in the authors' code.
    c: dual clip, pi/anchor <= c for A < 0; off by default.
    """


def below_largest_ratio(logp_BT: Tensor, batch: Batch, *, imp_samp_max: float = 100.0, **_: Any) -> Tensor:
    """Return log min(d, imp_samp_max / u)."""
    log_u_BT = log_token(logp_BT.detach(), batch, base="anchor")
    return torch.minimum(log_mismatch_at("token", batch), math.log(imp_samp_max) - log_u_BT)


@decoupled(
    "decoupled_ppo@author",
    source="openai/ppo-ewma 625dac7, ppo_ewma/ppo.py",
    weight=below_largest_ratio,
    max_weight="imp_samp_max",
)
def decoupled_ppo_author() -> None:
    """L = -sg[min(d, imp_samp_max / u)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    d = anchor/mu. Unlike the paper, log mu is raised (detached) until pi/mu <= imp_samp_max: the weight is
    bounded but keeps its gradient. The code clips in log space, at the same ratios.
    """


def below_cap(_logp_BT: Tensor, batch: Batch, *, level: str = "token", cap: float = 5.0, **_: Any) -> Tensor:
    """Return where d = anchor/mu at a level is at most the cap."""
    return log_mismatch_at(level, batch).exp() <= cap


@decoupled(
    "decoupled_ppo@areal",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py, areal/utils/functional",
    weight=mismatch,
    keep=below_cap,
    defaults={"c": math.inf},
)
def decoupled_ppo_areal() -> None:
    """L = -sg[d 1[d <= cap]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu, u = pi/anchor.

    Unlike the paper it drops tokens with d above the cap; the loss is still divided by all tokens. AReaL's
    "sequence" level is level "geometric" here: the geometric mean weighs and masks every token. c: dual clip,
    u <= c for A < 0; off by default.
    """
