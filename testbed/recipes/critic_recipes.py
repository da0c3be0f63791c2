"""Recipes that need a critic: set `Run.critic` too."""

from testbed.errors import unknown
from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, Term, pairs

OVER = ("gae", "egae", "turn_gae", "bad", "v_trace")
LOSSES = ("ppo_clip", "turn_ppo", "s_ppo", "st_ppo", "gspo_token")


@recipe(
    "ppo", source="Schulman et al. (2017), arXiv:1707.06347, Eq. 7; parts as Zheng et al. (2023), 2307.04964"
)
def ppo(
    *,
    advantage: str = "gae",
    gamma: float = 1.0,
    lam: float = 0.95,
    loss: str = "ppo_clip",
    eps: float = 0.2,
    kl: float = 0.0,
    normalize: bool = False,
    passes: int = 1,
) -> Recipe:
    """A critic's advantage, PPO's clip at 1 - eps and 1 + eps, mean over tokens.

    advantage: gae, egae, turn_gae, bad or v_trace, with gamma and lam. normalize: standardize over the
    batch's tokens. loss: ppo_clip; turn_ppo, s_ppo or st_ppo by turns; gspo_token by the whole response. kl:
    coefficient of the k2 estimate of KL(pi, start weights). passes: updates per batch.
    """
    if advantage not in OVER:
        raise unknown("advantage", advantage, OVER)
    if loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    given = pairs(gamma=gamma, lam=lam)
    return Recipe(
        "standardized" if normalize else advantage,
        loss,
        "token_mean",
        advantage_args=pairs(of=advantage, gamma=gamma, lam=lam) if normalize else given,
        objective_args=pairs(eps_low=eps, eps_high=eps),
        terms=(Term("kl_penalty", kl, pairs(estimator="k2")),) if kl else (),
        passes=passes,
    )
