"""Recipes that change the loop: several passes, replay, averaged anchors, demonstrations."""

from dataclasses import replace

from testbed.objectives.mixture.chord import mu_schedule
from testbed.objectives.mixture.remix import kl_convex_weight
from testbed.objectives.mixture.self_imitation import replay_weight
from testbed.recipes import recipe
from testbed.recipes.composition import Baselines, HandOver, Recipe, Replay, Term, pairs


@recipe("sfpo", source="SFPO (2025), arXiv:2510.04072; Urheen/SFPO")
def sfpo(*, fast: int = 3, alpha: float = 0.8) -> Recipe:
    """GRPO with `fast` passes per batch, pulled back to the start by alpha, and one more slow pass.

    Omits the paper's entropy trigger, which returns to plain GRPO permanently.
    """
    return Recipe(
        "group_std", "ppo_clip", "sequence_mean", anchor="current", passes=fast + 1, reposition=alpha
    )


@recipe("ppo_ewma", source="Hilton, Cobbe & Schulman (2021), arXiv:2110.00641")
def ppo_ewma(*, decay: float = 0.889) -> Recipe:
    """Decoupled PPO with a debiased moving average of the weights as anchor; mean over tokens.

    decay 0.889: a center of mass eight steps back, the paper's choice for its PPG-like reuse of 8.
    """
    return Recipe("group_std", "decoupled_ppo", "token_mean", anchor="ewma", anchor_args=pairs(decay=decay))


@recipe("remix", source="ReMix (2025), arXiv:2507.06892")
def remix(
    *,
    share: float = 0.4,
    window: int = 2,
    passes: int = 2,
    reincarnation: int = 50,
    coefficient: float = 1e-3,
) -> Recipe:
    """Replay of earlier batches, clip around the anchor, KL to base and to the last policy, rebirth.

    At step `reincarnation` the base becomes the current weights, and training continues on-policy with one
    pass. The age distribution and the coefficient of the KL terms were not found; here uniform and 1e-3. Mean
    over tokens then sequences.
    """

    def base_share(step: int, _steps: int) -> float:
        return coefficient * kl_convex_weight(step)

    def last_share(step: int, _steps: int) -> float:
        return coefficient * (1 - kl_convex_weight(step))

    base = Term("kl_penalty", base_share, pairs(base="ref"))
    last = Term("kl_penalty", last_share, pairs(base="anchor"))
    late = Recipe("group_std", "ppo_clip", "sequence_mean", anchor="current", terms=(base, last))
    how = HandOver(reincarnation, late)
    return replace(late, objective="remix", replay=Replay(window, share), passes=passes, hand_over=how)


@recipe("spear", source="Qin et al. (2025), SPEAR, arXiv:2509.22601")
def spear(*, window: int = 10, share: float = 0.25, warm_up: int = 200) -> Recipe:
    """GRPO plus self-imitation of replayed successes, which grows over `warm_up` steps; mean over tokens.

    A replayed response counts by R minus the median of past baselines, if positive. The baselines of 1,280
    batches are kept, the paper's 10,240 at 8 prompts per batch.
    """

    def kappa(step: int, _steps: int) -> float:
        return replay_weight(step, full=warm_up)

    return Recipe(
        "group_std", "self_imitation", "token_mean", replay=Replay(window, share, advantage="recalibrated"),
        schedules=(("kappa", kappa),), baselines=Baselines(history=1280),
    )  # fmt: skip


@recipe("chord", source="CHORD (2025), arXiv:2508.11408")
def chord(
    *, share: float = 0.25, peak: float = 0.9, valley: float = 0.05, decay: int = 200, phi: str = "off"
) -> Recipe:
    """GRPO mixed with supervised learning on the teacher's answers, with falling weight; mean over tokens.

    phi "on" weighs an expert's token by p (1 - p): CHORD-phi, with peak and valley both 0.1.
    """

    def mu(step: int, _steps: int) -> float:
        return mu_schedule(step, warmup=0, decay=decay, peak=peak, valley=valley)

    return Recipe(
        "group_std", "chord", "token_mean", objective_args=pairs(phi=phi), demonstrations=share,
        schedules=(("mu", mu),),
    )  # fmt: skip


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
        "raw", "f_distillation", "token_mean", objective_args=pairs(divergence=divergence, beta=beta),
        demonstrations=share, taught=True,
    )  # fmt: skip
