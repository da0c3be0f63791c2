"""Three policies: mu generated, the anchor is recomputed when a batch arrives, the target is trained.

With one pass the target starts at the anchor, so pi/anchor is 1 and anchor/mu holds all the staleness.
"""

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, pairs


@recipe("decoupled", source="Fu et al. (2025), AReaL, arXiv:2505.24298, Eq. 5")
def decoupled(*, passes: int = 4) -> Recipe:
    """Decoupled PPO with the anchor recomputed at the start of the step; mean over tokens."""
    return Recipe("group_std", "decoupled_ppo", "token_mean", anchor="current", passes=passes)


@recipe("tis", source="Yao et al. (2025), truncated importance sampling; verl docs/algo/rollout_corr.md")
def tis(*, level: str = "token", cap: float = 2.0, passes: int = 1) -> Recipe:
    """PPO's clip times min(anchor/mu, cap), mean over tokens."""
    args = pairs(level=level, cap=cap)
    return Recipe("group_std", "tis", "token_mean", objective_args=args, anchor="current", passes=passes)


@recipe("mis", source="huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_config.py")
def mis(*, passes: int = 1) -> Recipe:
    """PPO's clip times anchor/mu of a sequence, 0 above a cap; mean over all tokens."""
    return Recipe("group_std", "mis", "token_mean", anchor="current", passes=passes)


@recipe("icepop", source="IcePop (2025); verl docs/algo/rollout_corr.md")
def icepop(*, passes: int = 1) -> Recipe:
    """PPO's clip times anchor/mu inside a window, 0 outside; mean over all tokens."""
    return Recipe("group_std", "icepop", "token_mean", anchor="current", passes=passes)


@recipe("sequence_mask_tis", source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22")
def sequence_mask_tis() -> Recipe:
    """Token weights anchor/mu, sequences with a geometric mean outside a window dropped; token mean."""
    return Recipe("group_std", "sequence_mask_tis", "token_mean", anchor="current")


@recipe("geometric_rejection", source="verl-project/verl 1dda039b 2026-08-22, docs/algo/rollout_corr.md")
def geometric_rejection() -> Recipe:
    """Drop sequences with a geometric anchor/mu outside a window from loss and denominator; token mean."""
    return Recipe("group_std", "geometric_rejection", "token_mean", anchor="current", denominator="kept")


@recipe("kl_rejection", source="verl-project/verl 1dda039b 2026-08-22, docs/algo/rollout_corr.md")
def kl_rejection() -> Recipe:
    """Drop tokens with a large KL estimate of anchor/mu from loss and denominator; token mean."""
    return Recipe("group_std", "kl_rejection", "token_mean", anchor="current", denominator="kept")


@recipe("token_veto", source="verl-project/verl 1dda039b 2026-08-22, docs/algo/rollout_corr.md")
def token_veto() -> Recipe:
    """Drop sequences with a token of vanishing anchor/mu from loss and denominator; token mean."""
    return Recipe("group_std", "token_veto", "token_mean", anchor="current", denominator="kept")
