"""Score-function and ratio recipes: GRPO and its relatives."""

import math
from typing import Literal

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, StepRule, Term, pairs


@recipe("reinforce", source="Williams (1992); group-mean baseline as in Dr. GRPO, arXiv:2503.20783")
def reinforce() -> Recipe:
    """R - group mean, no importance weight, no clip, mean over sequences of token sums."""
    return Recipe("group_mean", "reinforce", "constant", length=1)


@recipe("grpo", source="Shao et al. (2024), arXiv:2402.03300, Eq. 3 (without the KL term)")
def grpo(
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    kl_limit: float = 0.0,
    entropy: float = 0.0,
    set_point: float = 0.0,
) -> Recipe:
    """Group-standardized advantage, PPO's clip, mean over tokens then over sequences.

    kl_limit: nats per token of KL(mu, pi) above which a step is skipped; 0 skips none. entropy: coefficient
    of an entropy bonus. set_point: nats per token above which the bonus is a penalty; 0 for none.
    """
    bonus = Term("entropy_bonus", entropy, pairs(set_point=set_point) if set_point else ())
    return Recipe(
        "group_std",
        "ppo_clip",
        "sequence_mean",
        objective_args=pairs(eps_low=eps_low, eps_high=eps_high),
        step_rule=StepRule(kl_limit=kl_limit),
        terms=(bonus,) if entropy else (),
    )


@recipe("dr_grpo", source="Liu et al. (2025), arXiv:2503.20783")
def dr_grpo(*, eps_low: float = 0.2, eps_high: float = 0.2) -> Recipe:
    """GRPO without the two divisions: R - group mean, token sums over a constant length."""
    args = pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_mean", "ppo_clip", "constant", objective_args=args)


@recipe("gspo", source="Zheng et al. (2025), arXiv:2507.18071, Eq. 5")
def gspo(*, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Recipe:
    """Group-standardized advantage, clip on the geometric sequence ratio, mean over sequences."""
    args = pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "gspo", "constant", length=1, objective_args=args)


@recipe("cispo", source="MiniMax (2025), arXiv:2506.13585, Eq. 4-5")
def cispo(*, eps_low: float = 1.0, eps_high: float = 0.28) -> Recipe:
    """Group-standardized advantage, clipped detached token ratio, mean over tokens."""
    args = pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "cispo", "token_mean", objective_args=args)


@recipe("m2po", source="Zheng et al. (2025), arXiv:2510.01161, Algorithm 1")
def m2po(*, tau: float = 0.04) -> Recipe:
    """Group-standardized advantage, second-moment trust region, mean over all tokens."""
    return Recipe("group_std", "m2po", "token_mean", objective_args=pairs(tau=tau))


@recipe("minpro", source="arXiv:2601.22718 (bounds unverified)")
def minpro(*, eps_low: float = 1.0, eps_high: float = 0.28) -> Recipe:
    """Group-standardized advantage, clipped min-prefix ratio, mean over tokens."""
    args = pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "minpro", "token_mean", objective_args=args)


@recipe("topr", source="Le Roux et al. (2025), arXiv:2503.14286, Eq. 6")
def topr(*, baseline: float = 0.5, scale: float = 2.0, low: float = 0.0) -> Recipe:
    """Rewards 0 and 1 become -1 and +1, no baseline, tapered negatives, mean over tokens then sequences.

    low: smallest weight of a negative; 1 is naive REINFORCE, without tapering.
    """
    args = pairs(baseline=baseline, scale=scale)
    return Recipe("raw", "topr", "sequence_mean", advantage_args=args, objective_args=pairs(low=low))


@recipe("vcpo", source="VCPO (2026), arXiv:2602.17616; constants from the authors' GSM8K script")
def vcpo(
    *,
    cap: float = 8.0,
    ess_reference: float = 1.0,
    baseline: str = "group_std",
    rule: Literal["sqrt", "linear"] = "sqrt",
) -> Recipe:
    """Truncated sequence weights, step size scaled by the ESS share.

    baseline: "group_std" standardizes within the group; "score" and "proxy" subtract the authors' optimal
    baseline, with true gradient norms (one backward pass per sequence) or their logit proxy.
    rule: "sqrt" or "linear" in ESS / ess_reference.
    """
    if baseline == "group_std":
        name, advantage_args = "group_std", pairs(std="population", eps=1e-8)
    else:
        name, advantage_args = "optimal_baseline", pairs(norm=baseline)
    return Recipe(
        name,
        "importance_reinforce",
        "sequence_mean",
        advantage_args=advantage_args,
        objective_args=pairs(level="sequence", cap=cap),
        step_rule=StepRule(ess_reference, rule),
    )


@recipe("importance", source="Precup, Sutton & Singh (2000), ICML, Eq. 2")
def importance(*, level: str = "sequence", cap: float = math.inf) -> Recipe:
    """R - group mean, importance weights at a level, mean over sequences of token sums."""
    args = pairs(level=level, cap=cap)
    return Recipe("group_mean", "importance_reinforce", "constant", length=1, objective_args=args)
