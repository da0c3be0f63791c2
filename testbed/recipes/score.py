"""Score-function recipes: log pi times a detached weight."""

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, pairs


@recipe("dispo", source="DISPO (2026), arXiv:2602.00983")
def dispo(
    *,
    eps_low_pos: float = 0.2,
    eps_high_pos: float = 10.0,
    eps_low_neg: float = 1.0,
    eps_high_neg: float = 100.0,
) -> Recipe:
    """Group-standardized advantage, detached ratio with separate bounds for each sign, token mean."""
    above = pairs(eps_high_pos=eps_high_pos, eps_high_neg=eps_high_neg)
    below = pairs(eps_low_pos=eps_low_pos, eps_low_neg=eps_low_neg)
    return Recipe("group_std", "dispo", "token_mean", objective_args=(*above, *below))


@recipe("vespo", source="VESPO (2026), arXiv:2602.10693")
def vespo() -> Recipe:
    """Group-standardized advantage, sequence weight W^k exp(lambda (1 - W)), mean over tokens."""
    return Recipe("group_std", "vespo", "token_mean")


@recipe("aipo", source="LlamaRL (2025), arXiv:2505.24034")
def aipo() -> Recipe:
    """R - group mean, token ratios truncated from above, mean over sequences of token sums."""
    return Recipe("group_mean", "aipo", "constant", length=1)


@recipe("rec", source="Yao et al. (2025), arXiv:2509.24203")
def rec(
    *, keep: str = "oneside", weight: str = "none", eps_low: float = 0.2, eps_high: float = 0.2
) -> Recipe:
    """Group-mean REINFORCE that drops tokens outside a region: oneside, twoside or ring; token mean."""
    args = pairs(weight=weight, eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_mean", f"rec_{keep}", "token_mean", objective_args=args)


@recipe("red", source="Yao et al. (2025), arXiv:2509.24203")
def red(*, how: str = "weight") -> Recipe:
    """Group-mean REINFORCE on reshaped data: "weight" by exp(A), "drop" surplus negatives; token mean."""
    return Recipe("group_mean", f"red_{how}", "token_mean")


@recipe("rapid", source="RAPID (2025), arXiv:2510.03515 (abstract and public reviews; they lack Eq. 4)")
def rapid(*, eta: float = 2.0) -> Recipe:
    """Importance-weighted group baseline, truncated sequence weights, mean over sequences of token sums."""
    return Recipe(
        "importance_mean",
        "importance_reinforce",
        "constant",
        length=1,
        advantage_args=pairs(eta=eta),
        objective_args=pairs(level="sequence", cap=eta),
    )


@recipe("remax", source="Li et al. (2023), arXiv:2310.10505")
def remax(*, kappa: float = 0.1) -> Recipe:
    """R - R of the greedy response, reward minus kappa times the KL to the reference, mean over tokens.

    The greedy response comes from the updated weights, so its baseline is never stale here.
    """
    return Recipe("remax", "remax", "token_mean", objective_args=pairs(kappa=kappa))


@recipe("opo", source="Hao et al. (2025), arXiv:2505.23585")
def opo() -> Recipe:
    """R - length-weighted mean of the group, on-policy REINFORCE, mean over sequences of token sums."""
    return Recipe("opo", "reinforce", "constant", length=1)


@recipe("max_at_k", source="Best of N Worlds (2025), arXiv:2510.23393, Section 4")
def max_at_k(*, k: int = 2, order: str = "exact") -> Recipe:
    """Policy gradient of the best of k samples, off-policy; mean over sequences of token sums."""
    return Recipe("group_mean", "max_at_k", "constant", length=1, objective_args=pairs(k=k, order=order))


@recipe("rec_gspo", source="Yao et al. (2025), arXiv:2509.24203; Trinity-RFT")
def rec_gspo(*, eps_low: float = 3e-4, eps_high: float = 4e-4) -> Recipe:
    """Group-mean REINFORCE that drops sequences by GSPO's one-sided clip; mean over tokens then sequences."""
    args = pairs(level="geometric", eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_mean", "rec_oneside", "sequence_mean", objective_args=args)
