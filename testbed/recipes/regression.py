"""Squared errors, mirror descent and preferences as recipes."""

from testbed.recipes import recipe
from testbed.recipes.composition import Baselines, Recipe, pairs


@recipe("oapl", source="Ritter et al. (2026), arXiv:2602.19362")
def oapl(*, beta1: float = 1.0, beta2: float = 1e-3) -> Recipe:
    """Regression of beta2 log W on the optimal advantage; mean over sequences.

    Its gradient is 2 beta2 times REINFORCE's near mu: with beta2 = 1e-3 scale the learning rate up, unless
    the optimizer is Adam.
    """
    return Recipe("group_mean", "oapl", "constant", length=1, objective_args=pairs(beta1=beta1, beta2=beta2))


@recipe("a_star_po", source="A*-PO (2025), arXiv:2505.20686")
def a_star_po(*, beta1: float = 0.5, beta2: float = 1e-3, samples: int = 8) -> Recipe:
    """Regression on R - V*, V* from `samples` responses of the starting policy; mean over sequences."""
    return Recipe(
        "optimal_value",
        "a_star_po",
        "constant",
        length=1,
        advantage_args=pairs(beta1=beta1),
        objective_args=pairs(beta2=beta2),
        baselines=Baselines(reference_group=samples),
    )


@recipe("rebel", source="Gao et al. (2024), arXiv:2404.16767")
def rebel(*, eta: float = 1.0) -> Recipe:
    """Regression of differences of log-ratios on differences of rewards; mean over sequences."""
    return Recipe("group_mean", "rebel", "constant", length=1, objective_args=pairs(eta=eta))


@recipe("opmd", source="Kimi k1.5 (2025), arXiv:2501.12599; Trinity-RFT")
def opmd(*, form: str = "kimi", tau: float = 1.0) -> Recipe:
    """Online policy mirror descent: form "kimi", "pairwise" or "min"; mean over sequences of token sums."""
    return Recipe("group_mean", f"{form}_opmd", "constant", length=1, objective_args=pairs(tau=tau))


@recipe("asymre", source="Arnal et al. (2025), arXiv:2506.20520")
def asymre(*, shift: float = -0.1) -> Recipe:
    """REINFORCE with the group mean shifted down; mean over sequences of token sums."""
    return Recipe("group_mean", "asymre", "constant", length=1, objective_args=pairs(shift=shift))


@recipe("tba", source="Bartoldson et al. (2025), arXiv:2503.18929")
def tba() -> Recipe:
    """Trajectory balance with log Z estimated from the group; mean over sequences."""
    return Recipe("group_mean", "tba", "constant", length=1)


@recipe("mdpo", source="Tomar et al. (2020), arXiv:2005.09814")
def mdpo(*, passes: int = 5) -> Recipe:
    """Several gradient steps on the ratio surrogate minus KL to the policy at the step's start."""
    return Recipe("group_std", "mdpo", "token_mean", anchor="current", passes=passes)


@recipe(
    "online_dpo", source="Guo et al. (2024), arXiv:2402.04792; Noukhovitch et al. (2024), arXiv:2410.18252"
)
def online_dpo(*, beta: float = 0.1) -> Recipe:
    """DPO on the best and the worst response of every group; mean over sequences."""
    return Recipe("group_mean", "online_dpo", "constant", length=1, objective_args=pairs(beta=beta))


@recipe(
    "rloo", source="Ahmadian et al. (2024), arXiv:2402.14740; Noukhovitch et al. (2024), arXiv:2410.18252"
)
def rloo(*, eps: float = 0.2) -> Recipe:
    """R - mean of the others, PPO's clip on the sequence ratio; mean over sequences."""
    return Recipe("leave_one_out", "rloo", "constant", length=1, objective_args=pairs(eps=eps))


@recipe("dpo", source="Rafailov et al. (2023), arXiv:2305.18290")
def dpo(*, beta: float = 0.1) -> Recipe:
    """DPO on every pair of a group with different rewards; mean over sequences."""
    return Recipe("group_mean", "dpo", "constant", length=1, objective_args=pairs(beta=beta))


@recipe("ipo", source="Azar et al. (2023), arXiv:2310.12036")
def ipo(*, beta: float = 0.1) -> Recipe:
    """IPO on every pair of a group with different rewards; mean over sequences."""
    return Recipe("group_mean", "ipo", "constant", length=1, objective_args=pairs(beta=beta))


@recipe("p3o", source="Wu et al. (2023), arXiv:2310.00212")
def p3o(*, eps: float = 0.2, clip: str = "separate") -> Recipe:
    """Pairwise PPO on sequence ratios; mean over sequences."""
    return Recipe("group_mean", "p3o", "constant", length=1, objective_args=pairs(eps=eps, clip=clip))


@recipe("dro", source="Richemond et al. (2024), arXiv:2405.19107")
def dro(*, tau: float = 1.0) -> Recipe:
    """Regression of log W on R - group mean, in place of the paper's learned value; sequence mean."""
    return Recipe("group_mean", "dro", "constant", length=1, objective_args=pairs(tau=tau))


@recipe("rec_k2", source="Yao et al. (2025), arXiv:2509.24203")
def rec_k2(*, c: float = 0.1) -> Recipe:
    """Group-mean REINFORCE with a squared token log-ratio; mean over tokens."""
    return Recipe("group_mean", "rec_k2", "token_mean", objective_args=pairs(c=c))
