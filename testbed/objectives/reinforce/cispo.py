"""CISPO: clip the detached importance weight but keep every gradient. Stacks differ in the window."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import Base, log_ratio, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "cispo", source="MiniMax (2025), arXiv:2506.13585, Eq. 4-5", reads=("mu", "adv"), detached=True,
    max_weight="1+eps_high",
)  # fmt: skip
def cispo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 1.0, eps_high: float = 0.28) -> Tensor:
    """L = -sg[clip(rho, 1 - eps_low, 1 + eps_high)] A log pi, rho = pi/mu.

    Every token keeps a gradient of bounded weight. The paper switches the lower bound off (eps_low = 1) and
    tunes eps_high; its value was not found, 0.28 is Trinity-RFT's.
    """
    return around(logp_BT, batch, base="mu", eps_low=eps_low, eps_high=eps_high)


def around(
    logp_BT: Tensor, batch: Batch, *, base: Base, eps_low: float, eps_high: float, level: str = "token"
) -> Tensor:
    """Return `window` with bounds at distances from 1."""
    return window(logp_BT, batch, base=base, low=1 - eps_low, high=1 + eps_high, level=level)


def window(
    logp_BT: Tensor, batch: Batch, *, base: Base, low: float, high: float, level: str = "token"
) -> Tensor:
    """Return -sg[clip(ratio, low, high)] A log pi for the ratio to a base; bounds are absolute."""
    return score_loss(log_ratio(level, logp_BT, batch, base).exp().clamp(low, high), logp_BT, batch)


@objective.variant(
    "cispo@trl",
    source="huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_trainer.py; bound: arXiv:2510.13786",
    reads=("anchor", "adv"),
    max_weight="eps_high",
)
def cispo_trl(logp_BT: Tensor, batch: Batch, *, eps_high: float = 5.0) -> Tensor:
    """L = -sg[min(u, eps_high)] A log pi, u = pi/anchor.

    eps_high is the bound itself, not its distance from 1: a paper's 0.28, given here, scales every on-policy
    token by 0.28. The default here is the value that TRL recommends (ScaleRL's); TRL's default, shared with
    PPO's clip, would scale in this way.
    """
    return score_loss(log_token(logp_BT, batch, "anchor").exp().clamp(max=eps_high), logp_BT, batch)


def inside_ppo_window(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 1.0,
    eps_high: float = 0.28,
    mask_low: float | None = None,
    mask_high: float | None = None,
) -> Tensor:
    """Return False for A > 0 above 1 + mask_high and A < 0 below 1 - mask_low; bool [..., B, T].

    mask_low, mask_high: eps_low and eps_high where they are None.
    """
    low = 1 - (eps_low if mask_low is None else mask_low)
    high = 1 + (eps_high if mask_high is None else mask_high)
    rho_BT = log_token(logp_BT.detach(), batch).exp()
    above_BT = (batch.adv_BT > 0) & (rho_BT > high)
    return ~(above_BT | (batch.adv_BT < 0) & (rho_BT < low))


@objective.variant(
    "cispo@trinity-mask",
    source="yanxi-chen/Trinity-RFT 9051d637 2026-04-09, policy_loss_fn/cispo_policy_loss.py",
    keep=inside_ppo_window,
)
def cispo_trinity_mask(
    logp_BT: Tensor,
    batch: Batch,
    *,
    eps_low: float = 1.0,
    eps_high: float = 0.28,
    mask_low: float | None = None,
    mask_high: float | None = None,
) -> Tensor:
    """L = -M sg[clip(rho, 1 - eps_low, 1 + eps_high)] A log pi, M = 0 where PPO's clip would cut.

    Without its optional mask Trinity-RFT's is plain cispo, [0, 1.28]. With the mask, positives beyond the
    bound lose their gradient, which CISPO is meant to keep; negatives keep theirs. mask_low and mask_high
    give the mask a separate window, [1 - mask_low, 1 + mask_high]; None: the weight's.
    """
    masks = {"mask_low": mask_low, "mask_high": mask_high}
    kept_BT = inside_ppo_window(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, **masks)
    return cispo(logp_BT, batch, eps_low=eps_low, eps_high=eps_high) * kept_BT


ANCHORS: dict[str, Base] = {"old": "anchor", "rollout": "mu"}


@objective.variant(
    "cispo@skyrl",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/ppo_utils.py",
    reads=("anchor", "adv"),
)
def cispo_skyrl(
    logp_BT: Tensor, batch: Batch, *, anchor: str = "old", eps_low: float = 1.0, eps_high: float = 4.0
) -> Tensor:
    """L = -sg[clip(u, 1 - eps_low, 1 + eps_high)] A log pi: [0, 5]; u = pi/anchor, or pi/mu.

    anchor: "old" is the trainer's recomputation, "rollout" the sampler. With "old" and one update per batch
    the ratio is 1 and the bound never binds, for data of any age.
    """
    if anchor not in ANCHORS:
        raise unknown("anchor", anchor, ANCHORS)
    return around(logp_BT, batch, base=ANCHORS[anchor], eps_low=eps_low, eps_high=eps_high)


def strictly_inside(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """Return where 1 - eps_low < rho < 1 + eps_high, bounds excluded; bool [..., B, T]."""
    rho_BT = log_token(logp_BT.detach(), batch).exp()
    return (rho_BT > 1 - eps_low) & (rho_BT < 1 + eps_high)


@objective.variant(
    "cispo@skyrl-rollout-is",
    source="NovaSky-AI/SkyRL a9564572 2026-08-21, skyrl/backends/skyrl_train/utils/ppo_utils.py",
    keep=strictly_inside,
)
def cispo_skyrl_rollout_is(
    logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2
) -> Tensor:
    """L = -sg[rho 1(1 - eps_low < rho < 1 + eps_high)] A log pi, rho = pi/mu.

    Its docstring calls it CISPO on sampler ratios with the same gradient. It is not: a token outside the
    window loses its gradient on both sides and for both signs, where CISPO would bound its weight.
    """
    kept_BT = strictly_inside(logp_BT, batch, eps_low=eps_low, eps_high=eps_high)
    rho_BT = log_token(logp_BT, batch).exp()
    return score_loss(torch.where(kept_BT, rho_BT, torch.zeros_like(rho_BT)), logp_BT, batch)
