"""Recipes: an advantage, an objective, an aggregation and a step-size rule under one name.

A recipe is a function whose keyword-only arguments are what people tune; `Run.recipe_args` sets them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.aggregate import aggregate
from testbed.batch import Batch
from testbed.diagnostics import ess
from testbed.objectives import objective
from testbed.ratios import log_token
from testbed.registry import Registry
from testbed.rollout import Rollout
from testbed.signals import Signals

recipe = Registry("recipe")


@dataclass(frozen=True)
class Recipe:
    """What turns a rollout into a loss per replica and a step-size factor.

    ess_reference: ESS share that counts as on-policy for the step-size rule
    sqrt(min(1, ESS / reference)) of VCPO (arXiv:2602.17616); 0 leaves the step size alone.
    """

    advantage: str
    objective: str
    aggregation: str
    length: float = 0.0
    advantage_args: tuple[tuple[str, Any], ...] = ()
    objective_args: tuple[tuple[str, Any], ...] = ()
    ess_reference: float = 0.0

    def batch(self, rollout: Rollout) -> Batch:
        """Return the rollout as a batch with this recipe's advantages."""
        sequences = rollout.reward_RB.shape[-1]
        group_B = torch.arange(sequences, device=rollout.reward_RB.device) // rollout.group
        group_RB = group_B.expand(rollout.reward_RB.shape)
        assign = advantage[self.advantage].bind(**dict(self.advantage_args))
        adv_RB = assign(Signals(rollout.reward_RB, group_RB, rollout.mask_RBT))
        return Batch(
            logp_mu_BT=rollout.logp_mu_RBT,
            adv_BT=adv_RB[..., None].expand(rollout.mask_RBT.shape),
            mask_BT=rollout.mask_RBT,
            reward_B=rollout.reward_RB,
            group_B=group_RB,
        )

    def losses(self, logp_RBT: Tensor, batch: Batch) -> Tensor:
        """Return the per-token losses [R, B, T]."""
        loss: Tensor = objective[self.objective].bind(**dict(self.objective_args))(logp_RBT, batch)
        return loss

    def loss(self, logp_RBT: Tensor, batch: Batch) -> Tensor:
        """Return one loss per replica [R]."""
        return aggregate(self.losses(logp_RBT, batch), batch.mask_BT, self.aggregation, self.length)

    def step_factor(self, logp_RBT: Tensor, batch: Batch) -> Tensor:
        """Return what the learning rate is multiplied with [R]: 1, or sqrt(min(1, ESS / reference)).

        ESS is the Kish share of unclipped sequence ratios at the weights before the step.
        """
        log_w_RB = log_token(logp_RBT.detach(), batch).sum(-1)
        if self.ess_reference <= 0:
            return torch.ones_like(log_w_RB[..., 0])
        return (ess(log_w_RB) / self.ess_reference).clamp(max=1).sqrt()


def _pairs(**arguments: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(arguments.items())


@recipe("reinforce", source="Williams (1992); group-mean baseline as in Dr. GRPO, arXiv:2503.20783")
def reinforce() -> Recipe:
    """R - group mean, no importance weight, no clip, mean over sequences of token sums."""
    return Recipe("group_mean", "reinforce", "constant", length=1)


@recipe("grpo", source="Shao et al. (2024), arXiv:2402.03300, Eq. 3 (without the KL term)")
def grpo(*, eps_low: float = 0.2, eps_high: float = 0.2) -> Recipe:
    """Group-standardized advantage, PPO's clip, mean over tokens then over sequences."""
    args = _pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "ppo_clip", "sequence_mean", objective_args=args)


@recipe("dr_grpo", source="Liu et al. (2025), arXiv:2503.20783")
def dr_grpo(*, eps_low: float = 0.2, eps_high: float = 0.2) -> Recipe:
    """GRPO without the two divisions: R - group mean, token sums over a constant length."""
    args = _pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_mean", "ppo_clip", "constant", objective_args=args)


@recipe("gspo", source="Zheng et al. (2025), arXiv:2507.18071, Eq. 5")
def gspo(*, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Recipe:
    """Group-standardized advantage, clip on the geometric sequence ratio, mean over sequences."""
    args = _pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "gspo", "constant", length=1, objective_args=args)


@recipe("cispo", source="MiniMax (2025), arXiv:2506.13585, Eq. 4-5")
def cispo(*, eps_low: float = 1.0, eps_high: float = 0.28) -> Recipe:
    """Group-standardized advantage, clipped detached token ratio, mean over tokens."""
    args = _pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "cispo", "token_mean", objective_args=args)


@recipe("m2po", source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1")
def m2po(*, tau: float = 0.04) -> Recipe:
    """Group-standardized advantage, second-moment trust region, mean over all tokens."""
    return Recipe("group_std", "m2po", "token_mean", objective_args=_pairs(tau=tau))


@recipe("minpro", source="arXiv:2601.22718 (bounds unverified)")
def minpro(*, eps_low: float = 1.0, eps_high: float = 0.28) -> Recipe:
    """Group-standardized advantage, clipped min-prefix ratio, mean over tokens."""
    args = _pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "minpro", "token_mean", objective_args=args)


@recipe("topr", source="Le Roux et al. (2025), arXiv:2503.14286, Eq. 6")
def topr(*, baseline: float = 0.5, scale: float = 2.0) -> Recipe:
    """Rewards 0 and 1 read as -1 and +1, no baseline, tapered negatives, mean over tokens then sequences."""
    args = _pairs(baseline=baseline, scale=scale)
    return Recipe("raw", "topr", "sequence_mean", advantage_args=args)


@recipe("vcpo", source="VCPO (2026), arXiv:2602.17616; constants from the authors' GSM8K script")
def vcpo(*, cap: float = 8.0, ess_reference: float = 1.0) -> Recipe:
    """Group-standardized advantage, truncated sequence weights, step size scaled by sqrt(ESS share).

    The authors' optimal baseline is an option of theirs and is not part of this recipe.
    """
    args = _pairs(level="sequence", cap=cap)
    advantage_args = _pairs(std="population", eps=1e-8)
    return Recipe(
        "group_std",
        "importance_reinforce",
        "sequence_mean",
        advantage_args=advantage_args,
        objective_args=args,
        ess_reference=ess_reference,
    )


@recipe("importance", source="Precup, Sutton & Singh (2000), ICML, Eq. 2")
def importance(*, level: str = "sequence", cap: float = math.inf) -> Recipe:
    """R - group mean, importance weights at a level, mean over sequences of token sums."""
    args = _pairs(level=level, cap=cap)
    return Recipe("group_mean", "importance_reinforce", "constant", length=1, objective_args=args)
