"""Decoupled PPO: clip around the anchor, weigh by the ratio to the behavior policy."""

import math
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.decoupled.correction import log_mismatch_at, weighted_clip


@objective(
    "decoupled_ppo",
    source="Hilton, Cobbe & Schulman (2022), arXiv:2110.00641; Fu et al. (2025), arXiv:2505.24298 (AReaL)",
    reads=("mu", "anchor", "adv"),
)
def decoupled_ppo(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2, c: float = math.inf
) -> Tensor:
    """L = -min((pi/mu) A, (anchor/mu) clip(pi/anchor, 1 - eps_low, 1 + eps_high) A).

    The ratio to mu corrects the estimate, the ratio to the anchor limits the update; with anchor = mu it is
    ppo_clip. Where the clip does not bind, the weight is pi/mu, unbounded. eps = 0.2 as in the authors' code.
    c: dual clip, pi/anchor <= c for A < 0; off by default.
    """
    log_d_BT = log_mismatch_at("token", batch)
    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, log_h_BT=log_d_BT, c=c)


@objective.variant(
    "decoupled_ppo@author", source="openai/ppo-ewma 625dac7, ppo_ewma/ppo.py", max_weight="imp_samp_max"
)
def decoupled_ppo_author(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    imp_samp_max: float = 100.0,
) -> Tensor:
    """L = -sg[min(d, imp_samp_max / u)] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), u = pi/anchor.

    d = anchor/mu. Unlike the paper, log mu is raised (detached) until pi/mu <= imp_samp_max: the weight is
    bounded but keeps its gradient. The code clips in log space, at the same ratios.
    """
    log_u_BT = log_token(logp_BT.detach(), batch, base="anchor")
    log_d_BT = torch.minimum(log_mismatch_at("token", batch), math.log(imp_samp_max) - log_u_BT)
    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, log_h_BT=log_d_BT)


def below_cap(_logp_BT: Tensor, batch: Batch, *, level: str = "token", cap: float = 5.0, **_: Any) -> Tensor:
    """Return where d = anchor/mu at a level is at most the cap."""
    return log_mismatch_at(level, batch).exp() <= cap


@objective.variant(
    "decoupled_ppo@areal",
    source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py, areal/utils/functional",
    keep=below_cap,
)
def decoupled_ppo_areal(
    logp_BT: Tensor,
    batch: Batch,
    *,
    level: str = "token",
    cap: float = 5.0,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    c: float = math.inf,
) -> Tensor:
    """L = -sg[d 1[d <= cap]] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A), d = anchor/mu, u = pi/anchor.

    Unlike the paper it drops tokens with d above the cap; the loss is still divided by all tokens. AReaL's
    "sequence" level is level "geometric" here: the geometric mean weighs and masks every token. c: dual clip,
    u <= c for A < 0; off by default.
    """
    return weighted_clip(
        logp_BT,
        batch,
        eps_low=eps_low,
        eps_high=eps_high,
        log_h_BT=log_mismatch_at(level, batch),
        keep_BT=below_cap(logp_BT, batch, level=level, cap=cap),
        c=c,
    )
