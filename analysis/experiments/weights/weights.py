"""Claims about importance weights that a world with a known truth decides exactly."""

import numpy as np

from analysis.lab import Evidence, Experiment, exact
from envs.divergence import Divergence
from envs.finite_mdp import FiniteMDP

EXPERIMENT = Experiment(
    "weights",
    question="What is known of importance weights for all policies?",
    source="identities of second moments and Renyi entropies; sources with each claim",
)

PAIRS = 500
"""Random policy pairs behind a claim about all policies."""


@EXPERIMENT.claim(
    source="Martino, Elvira & Louzada (2017), Effective sample size for importance sampling based on "
    "discrepancy measures"
)
def ess_limits_two_arm_bandit() -> Evidence:
    """With mu = (3/4, 1/4) and pi = (1/4, 3/4) the ESS shares tend to 3/7 (Kish), 3^(-1/2) (perplexity) and
    1/3 (max weight).
    """
    bandit = FiniteMDP(
        transition_SAS=np.ones((1, 2, 1)), reward_SA=np.array([[0.0, 1.0]]), start_S=np.ones(1), horizon=1
    )
    found = bandit.divergence(np.array([[0.25, 0.75]]), np.array([[0.75, 0.25]]))
    gaps = [
        abs(float(found.ess_kish) - 3 / 7),
        abs(float(found.ess_perplexity) - 3**-0.5),
        abs(float(found.ess_max) - 1 / 3),
    ]
    return exact(gaps, 1e-12, "largest distance of a computed limit from its closed form")


@EXPERIMENT.claim(
    source="Rényi entropies fall as their order rises; names as in Martino, Elvira & Louzada (2017)"
)
def ess_order_max_kish_perplexity() -> Evidence:
    """In the limit, max-weight ESS <= Kish ESS <= perplexity ESS <= 1 for all policies."""
    found = random_divergences(horizon=8)
    rising = np.stack([found.ess_max, found.ess_kish, found.ess_perplexity, np.ones_like(found.ess_max)])
    return exact(
        rising[:-1] / rising[1:] - 1.0, 1e-9, f"largest excess over {PAIRS} random policy pairs, 8 steps"
    )


@EXPERIMENT.claim(source="Jensen's inequality, as the mean of rho_t given the past is 1")
def prefix_second_moment_never_falls() -> Evidence:
    """The second moment of the prefix ratio never falls as the prefix grows.

    Return the drops of E_mu (rho_1 … rho_t)^2 from one t to the next, relatively, over random pairs.
    """
    moment_RT = random_divergences(horizon=24).second_moment_prefix_T
    drop_RT = 1.0 - moment_RT[:, 1:] / moment_RT[:, :-1]
    return exact(drop_RT, 1e-9, f"largest relative drop over {PAIRS} random policy pairs, 24 steps")


def random_world(horizon: int) -> FiniteMDP:
    """Return a random world of 6 states and 3 actions."""
    rng = np.random.default_rng(20_260_101)
    return FiniteMDP(
        transition_SAS=rng.dirichlet(np.ones(6), size=(6, 3)),
        reward_SA=np.zeros((6, 3)),
        start_S=rng.dirichlet(np.ones(6)),
        horizon=horizon,
    )


def random_divergences(horizon: int) -> Divergence:
    """Return the exact divergences of random policy pairs in that world."""
    rng = np.random.default_rng(20_260_102)
    mu_RSA, other_RSA = rng.dirichlet(np.full(3, 2.0), size=(2, PAIRS, 6))
    # From equal policies, where all these inequalities are equalities, to unrelated ones.
    share_R11 = np.linspace(0.0, 1.0, PAIRS)[:, None, None]
    pi_RSA = (1.0 - share_R11) * mu_RSA + share_R11 * other_RSA
    return random_world(horizon).divergence(pi_RSA, mu_RSA)
