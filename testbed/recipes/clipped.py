"""GRPO with another ratio or another region: one change each."""

from testbed.objectives.clipped.holder import holder_exponent
from testbed.recipes import recipe
from testbed.recipes.composition import Dual, Recipe, pairs


@recipe("dapo", source="Yu et al. (2025), arXiv:2503.14476, Eq. 8-11")
def dapo(*, eps_low: float = 0.2, eps_high: float = 0.28) -> Recipe:
    """GRPO with a wider upper clip, mean over all tokens, groups of equal rewards left out.

    The paper's overlong shaping belongs to the reward, which the task computes here.
    """
    args = pairs(eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_std", "ppo_clip", "token_mean", objective_args=args, dynamic_sampling=True)


@recipe("gmpo", source="Zhao et al. (2025), arXiv:2507.20673")
def gmpo() -> Recipe:
    """Group-standardized advantage, geometric mean of clipped token ratios, mean over sequences."""
    return Recipe("group_std", "gmpo", "constant", length=1)


@recipe("holder", source="HölderPO (2026), arXiv:2605.12058")
def holder(*, start: float = 2.0, end: float = -2.0) -> Recipe:
    """Power-mean ratio with an exponent that moves linearly from start to end, mean over sequences."""

    def p(step: int, steps: int) -> float:
        return holder_exponent(step / max(steps - 1, 1), start=start, end=end)

    return Recipe("group_mean", "holder", "constant", length=1, schedules=(("p", p),))


@recipe("ctpo", source="CTPO (2026), arXiv:2605.07331")
def ctpo(*, p: float = 0.5, width: float = 1.0) -> Recipe:
    """Group-standardized advantage, prefix ratios in a window that widens with position^p, token mean.

    width: of the window, in those of the authors' script.
    """
    args = pairs(p=p, b_low=0.025 * width, b_high=0.05 * width, b_c=0.05 * width)
    return Recipe("group_std", "ctpo", "token_mean", objective_args=args)


@recipe("bapo", source="BAPO (2025), arXiv:2510.18927, Eq. 8 and Algorithm 1")
def bapo(*, target: float = 0.4, share: str = "value") -> Recipe:
    """Group-standardized advantage, clip bounds solved for every batch, mean over tokens.

    target: least share of tokens with A > 0. share: what it is a share of, the loss's "value" or "gradient",
    say; only with "gradient" do both bounds move.
    """
    return Recipe("group_std", "bapo", "token_mean", objective_args=pairs(target=target, share=share))


@recipe("dppo", source="DPPO (2026), arXiv:2602.04879")
def dppo() -> Recipe:
    """Group-standardized advantage, mask on the change of probability instead of the ratio, token mean."""
    return Recipe("group_std", "dppo_tv", "token_mean")


@recipe("sapo", source="SAPO (2025), arXiv:2511.20347")
def sapo(*, tau: float = 1.0) -> Recipe:
    """Group-standardized advantage, ratio gated by a sigmoid, mean over tokens then sequences.

    tau: temperature of the gate for A > 0; that for A < 0 is 1.05 tau, as in the paper.
    """
    args = pairs(tau_pos=tau, tau_neg=1.05 * tau)
    return Recipe("group_std", "sapo", "sequence_mean", objective_args=args)


@recipe("mhpo", source="MHPO (2026), arXiv:2603.16929")
def mhpo(*, lam_pos: float = 1.0, lam_neg: float = 0.8) -> Recipe:
    """Group-standardized advantage, log-ratio through tanh and a damping, mean over tokens then sequences.

    lam_pos, lam_neg: scales of the damping of ratios above and below 1; a large one disables it.
    """
    args = pairs(lam_pos=lam_pos, lam_neg=lam_neg)
    return Recipe("group_std", "mhpo", "sequence_mean", objective_args=args)


@recipe("r2vpo", source="R2VPO (2026), arXiv:2601.03320")
def r2vpo(*, lam: float = 0.04, dual_rate: float = 0.01, budget: float = 0.01, passes: int = 1) -> Recipe:
    """Group-standardized advantage, variance of the ratio held to a budget by a dual variable, token mean.

    The texts that could be read give no dual step size, budget or starting value; these are chosen here.
    passes: updates per batch, the paper's reuse. The dual variable moves once, after the last.
    """
    dual = Dual(dual_rate, budget)
    args = pairs(lam=lam)
    return Recipe("group_std", "r2vpo", "token_mean", objective_args=args, dual=dual, passes=passes)


@recipe("gbpo", source="Bounded ratio RL (2026), arXiv:2604.18578")
def gbpo() -> Recipe:
    """Group-mean advantage, ratio drawn towards a target on the clip bounds, mean over tokens."""
    return Recipe("group_mean", "gbpo", "token_mean")


@recipe("gspo_token", source="Zheng et al. (2025), arXiv:2507.18071, Section 4.3")
def gspo_token() -> Recipe:
    """GSPO's ratio with a gradient per token, for advantages that differ within a sequence; sequence mean."""
    return Recipe("group_std", "gspo_token", "constant", length=1)


@recipe("opsm", source="DeepSeek-AI (2025), DeepSeek-V3.2, arXiv:2512.02556")
def opsm() -> Recipe:
    """GRPO that drops wrong answers that the policy has moved away from; mean over tokens then sequences."""
    return Recipe("group_std", "opsm", "sequence_mean")


@recipe("luspo", source="LUSPO (2026), arXiv:2602.05261; bounds from TRL's documentation")
def luspo() -> Recipe:
    """Sequence losses of GSPO times their length, mean over sequences."""
    return Recipe("group_std", "luspo", "constant", length=1)


@recipe("tree_opo", source="Huang et al. (2025), Tree-OPO, arXiv:2509.09284; from secondary notes")
def tree_opo() -> Recipe:
    """GRPO with rewards projected onto the order of staged prefixes; the run's prefixes must be staged."""
    return Recipe("tree_opo", "ppo_clip", "sequence_mean")
