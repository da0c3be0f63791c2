"""CISPO: clip the detached importance weight but keep every gradient. Stacks differ in the window."""

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import Base, log_token
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective


@objective(
    "cispo",
    source="MiniMax (2025), arXiv:2506.13585, Eq. 4-5",
    reads=("mu", "adv"),
    detached=True,
    max_weight="1+eps_high",
)
def cispo(logp_BT: Tensor, batch: Batch, *, eps_low: float = 1.0, eps_high: float = 0.28) -> Tensor:
    """L = -sg[clip(rho, 1 - eps_low, 1 + eps_high)] A log pi, rho = pi/mu.

    Every token keeps a gradient of bounded weight. The paper switches the lower bound off (eps_low = 1) and
    tunes eps_high; its value was not found, 0.28 is Trinity-RFT's.
    """
    weight_BT = log_token(logp_BT, batch).exp().clamp(1 - eps_low, 1 + eps_high)
    return score_loss(weight_BT, logp_BT, batch)


def window(logp_BT: Tensor, batch: Batch, base: Base, low: float, high: float) -> Tensor:
    """Return -sg[clip(ratio, low, high)] A log pi for the token ratio to a base; bounds are absolute."""
    return score_loss(log_token(logp_BT, batch, base).exp().clamp(low, high), logp_BT, batch)


@objective.variant(
    "cispo@verl",
    source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py",
    reads=("anchor", "adv"),
)
def cispo_verl(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -sg[clip(u, 1 - eps_low, 1 + eps_high)] A log pi, u = pi/anchor: [0.8, 1.2].

    The lower bound, off in the paper, is on: a token that the policy has left keeps 0.8 of its gradient. The
    example script sets eps_low = 10, which is the paper's form.
    """
    return window(logp_BT, batch, "anchor", 1 - eps_low, 1 + eps_high)


@objective.variant(
    "cispo@nemo-rl",
    source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms/loss/loss_functions.py",
    reads=("anchor", "adv"),
)
def cispo_nemo_rl(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -sg[clip(u, 1 - eps_low, 1 + eps_high)] A log pi, u = pi/anchor: [0.8, 1.2].

    As cispo@verl: with the lower bound on, no weight falls below 0.8.
    """
    return window(logp_BT, batch, "anchor", 1 - eps_low, 1 + eps_high)


@objective.variant(
    "cispo@slime", source="THUDM/slime 624b824a 2026-08-21, slime/utils/ppo_utils.py", reads=("anchor", "adv")
)
def cispo_slime(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.2, eps_high: float = 0.2) -> Tensor:
    """L = -sg[clip(u, 1 - eps_low, 1 + eps_high)] A log pi, u = pi/anchor: PPO's eps on both sides.

    CISPO has no separate window there: changing PPO's clip changes the bound on the weight. The window [0.8,
    1.2] is that of eps = 0.2, the default of slime's --eps-clip (slime/utils/arguments.py).
    """
    return window(logp_BT, batch, "anchor", 1 - eps_low, 1 + eps_high)


@objective.variant(
    "cispo@roll",
    source="alibaba/ROLL 8eb27cc2 2026-08-18, the policy-gradient variant worker",
    reads=("anchor", "adv"),
)
def cispo_roll(logp_BT: Tensor, batch: Batch, *, eps_low: float = 0.1, eps_high: float = 0.1) -> Tensor:
    """L = -sg[clip(u, 1 - eps_low, 1 + eps_high)] A log pi, u = pi/anchor: [0.9, 1.1].

    The tightest window: close to REINFORCE without correction. Its optional mask is omitted.
    """
    return window(logp_BT, batch, "anchor", 1 - eps_low, 1 + eps_high)


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


@objective.variant(
    "cispo@tinker",
    source="thinking-machines-lab/tinker-cookbook 9dfcc3a2 2026-08-19, tutorials/202_loss_functions.py",
    max_weight="high",
)
def cispo_tinker(logp_BT: Tensor, batch: Batch, *, low: float = 0.0, high: float = 4.0) -> Tensor:
    """L = -sg[clip(rho, low, high)] A log pi, rho = pi/mu; absolute bounds [0, 4].

    A looser cap than in the paper: tokens that became three times as likely keep their full weight.
    """
    return window(logp_BT, batch, "mu", low, high)


@objective.variant(
    "cispo@open-instruct",
    source="allenai/open-instruct e6c3044a 2026-08-20, open_instruct/grpo_utils.py",
    reads=("anchor", "adv"),
)
def cispo_open_instruct(logp_BT: Tensor, batch: Batch, *, eps_high: float = 0.272) -> Tensor:
    """L = -sg[min(u, 1 + eps_high)] A log pi, u = pi/anchor: [0, 1.272].

    The paper's form, with the upper clip of its GRPO. The base of its ratio, sampler or trainer, could not be
    verified; the trainer is assumed here.
    """
    return window(logp_BT, batch, "anchor", 0.0, 1 + eps_high)


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
    kept_BT = inside_ppo_window(
        logp_BT, batch, eps_low=eps_low, eps_high=eps_high, mask_low=mask_low, mask_high=mask_high
    )
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
    return window(logp_BT, batch, ANCHORS[anchor], 1 - eps_low, 1 + eps_high)


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
