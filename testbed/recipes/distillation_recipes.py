"""Recipes that learn from a teacher: from its tokens, or its log-probabilities of the student's tokens."""

from testbed.recipes import recipe
from testbed.recipes.composition import HandOver, Recipe, Term, pairs


@recipe("sft", source="behavior cloning: Pomerleau (1991); sequence-level distillation: Kim & Rush (2016)")
def sft() -> Recipe:
    """Cross entropy of the teacher's answers, which fill all groups; mean over tokens."""
    return Recipe("raw", "sft", "token_mean", demonstrations=1.0)


@recipe("sft_then_grpo", source="SFT before RL: Ouyang et al. (2022), arXiv:2203.02155")
def sft_then_grpo(*, step: int = 50) -> Recipe:
    """Cross entropy of the teacher's answers until `step`, then GRPO."""
    later = Recipe("group_std", "ppo_clip", "sequence_mean")
    return Recipe("raw", "sft", "token_mean", demonstrations=1.0, hand_over=HandOver(step, later))


@recipe(
    "opd", source="Agarwal et al. (2024), GKD, arXiv:2306.13649; Lu et al. (2025), on-policy distillation"
)
def opd(*, divergence: str = "reverse", beta: float = 0.5, share: float = 0.0) -> Recipe:
    """An f-divergence to the teacher on the student's tokens; `share` of the groups use the teacher's."""
    return Recipe(
        "raw",
        "f_distillation",
        "token_mean",
        objective_args=pairs(divergence=divergence, beta=beta),
        demonstrations=share,
        taught=True,
    )


@recipe("dgrpo", source="dGRPO (2026), arXiv:2605.12227, abstract only, which names no coefficient")
def dgrpo(*, coefficient: float = 0.1) -> Recipe:
    """GRPO plus a multiple of on-policy distillation, KL(pi || teacher) by k1 in the score; sequence mean."""
    return Recipe(
        "group_std", "ppo_clip", "sequence_mean", terms=(Term("distillation", coefficient),), taught=True
    )
