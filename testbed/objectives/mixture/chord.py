"""CHORD: clipped policy gradient on rollouts, weighted imitation on expert sequences."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from testbed.data.batch import EXPERT, Batch
from testbed.errors import unknown
from testbed.losses.clipping import one_sided_clip
from testbed.losses.ratios import log_token
from testbed.objectives import objective
from testbed.objectives.mixture.origins import SHARES

Phi = Callable[[Tensor], Tensor]
PHI: dict[str, Phi] = {"on": lambda p: p * (1 - p), "off": torch.ones_like, "is": lambda p: p}
"""Weight of an expert token as a function of its probability."""


def expert_weight(logp_BT: Tensor, phi: str) -> Tensor:
    """Return a token's detached weight in the imitation loss: "on" p (1 - p), "off" 1, "is" p."""
    if phi not in PHI:
        raise unknown("phi of chord", phi, PHI)
    return PHI[phi](logp_BT.detach().clamp(max=0).exp())


def mu_schedule(
    step: int, *, warmup: int = 200, decay: int = 400, peak: float = 0.5, valley: float = 0.02
) -> float:
    """Return the weight of the expert loss at a step: linear from 0 to peak, then a cosine to valley.

    The defaults are those of the published mixed recipe; CHORD-mu alone is 0, 200, 0.9, 0.05 without phi.
    """
    if step < warmup:
        return peak * step / warmup
    if step >= warmup + decay:
        return valley
    return valley + (peak - valley) * (1 + math.cos(math.pi * (step - warmup) / decay)) / 2


@objective(
    "chord", source="Zhang et al. (2025), arXiv:2508.11408; Trinity-RFT, chord_policy_loss.py",
    on_policy=None, reads=("anchor", "adv", "origin"), scope="batch", sign=False, penalty=True,
    detached=True, statistic=SHARES,
)  # fmt: skip
def chord(
    logp_BT: Tensor,
    batch: Batch,
    *,
    mu: float = 0.1,
    phi: str = "on",
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensor:
    """L = (1 - mu) N/N_r PPO-clip on rollouts, mu N/N_e (-sg[p (1 - p)] log pi) on expert tokens, p = pi.

    N_r and N_e are the tokens of rollouts (replayed ones included) and of expert sequences, N all tokens:
    aggregated with token_mean, the loss is (1 - mu) times the mean over rollouts plus mu times the mean over
    expert tokens, as in the paper. The ratio is to the anchor; expert tokens have none. phi "off" is plain
    SFT (CHORD-mu, with mu from `mu_schedule`), "is" weighs by p. A constant mu = 0.1 is the published
    CHORD-phi.
    """
    expert_B = batch.require("origin_B", "chord") == EXPERT
    share = SHARES(logp_BT, batch)[..., EXPERT, None]
    # The share of a part without tokens is 0, but no sequence reads it.
    scale_B = torch.where(expert_B, mu / share, (1 - mu) / (1 - share))
    weight_BT = expert_weight(torch.where(batch.mask_BT, logp_BT, torch.zeros_like(logp_BT)), phi)
    # Expert tokens have no ratio: with advantage 0 none can overflow there.
    adv_BT = torch.where(expert_B.unsqueeze(-1), torch.zeros_like(batch.adv_BT), batch.adv_BT)
    clipped_BT = one_sided_clip(log_token(logp_BT, batch, base="anchor"), adv_BT, 1 - eps_low, 1 + eps_high)
    loss_BT = -torch.where(expert_B.unsqueeze(-1), weight_BT * logp_BT, clipped_BT * adv_BT)
    return scale_B.unsqueeze(-1).to(loss_BT.dtype) * loss_BT
