"""Claims about temporal differences, advantages, proxies and instruments, decided by linear algebra."""

import numpy as np
from scipy.optimize import brentq

from analysis.experiments.estimators.dynamics import WORLDS, random_world
from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs import infinite_horizon
from testbed.exact import bandit, value_learning

EXPERIMENT = Experiment(
    "value-learning",
    question="When do temporal differences, advantages, proxies and instruments find the truth?",
    source="papers of the methods, with each claim",
    systems={
        "Why target networks stabilise TD": Part(
            "the period that expected linear TD needs, on two examples; no sampled or nonlinear run",
            claims=("target-network-cannot-save-every-bootstrap",),
        ),
        "IV-OPE": Part(
            "when the instrument identifies one confounded step on its exact law; no samples, no MDP",
            claims=("instrument-identifies-the-effect-of-an-action",),
        ),
    },
)


@EXPERIMENT.claim(source="Baird (1995); Tsitsiklis & Van Roy (1997); Zhang, Yao & Whiteson (2021)")
def target_network_cannot_save_every_bootstrap() -> Evidence:
    """On Baird's star expected TD diverges iff discount > 15/17, and at 0.99 with step size 0.1 a target
    network needs 9 inner steps; on w -> 2w it diverges iff discount > 1/2 for every number of steps.
    """
    threshold = float(
        brentq(lambda discount: value_learning.baird_star(discount).td_abscissa(), 0.5, 0.99, xtol=1e-13)
    )
    star = value_learning.baird_star(0.99)
    radius = [star.target_radius(0.1, inner) for inner in range(1, 200)]
    gaps = [abs(threshold - 15 / 17), abs(star.fitted_radius() - 0.99)]
    # The abscissa's sign is that of what a small expected step does.
    for discount in (0.5, 0.85, 0.9):
        found_td = value_learning.baird_star(discount)
        gaps.append(0.0 if (found_td.td_abscissa() < 0) == (found_td.td_radius(1e-2) < 1) else 1.0)
        gaps.append(0.0 if (found_td.td_abscissa() < 0) == (discount < 15 / 17) else 1.0)
    gaps += [short_of(value, 1.0) for value in radius[:8]] + [max(0.0, value - 1.0) for value in radius[8:]]
    for discount in (0.3, 0.49, 0.51, 0.9):
        pair = value_learning.two_state(discount)
        for inner in (1, 2, 10, 1000):
            kept = (1 - 0.1) ** inner
            found = pair.target_radius(0.1, inner)
            gaps.append(abs(found - abs(kept + (1 - kept) * 2 * discount)))
            gaps.append(0.0 if (found > 1) == (discount > 0.5) else 1.0)
    return exact(gaps, 1e-10, "largest distance from 15/17, from the closed form, or of a radius across 1")


@EXPERIMENT.claim(source="Tsitsiklis & Van Roy (1997) for TD; examples found here", kind="enumerated")
def td_and_fitted_q_stability_are_independent() -> Evidence:
    """Stability of linear TD and of fitted Q evaluation do not imply each other: there are 3-state examples
    of TD stable with FQE divergent, and of TD divergent with FQE stable.
    """
    rng = np.random.default_rng(20_260_103)
    only_td, only_fitted, wrong = -np.inf, -np.inf, 0
    for _ in range(400):
        step_SS, weight_S = rng.dirichlet(np.ones(3), size=3), rng.dirichlet(np.ones(3))
        found = value_learning.linear_td(rng.normal(size=(3, 2)), weight_S, step_SS, 0.95)
        abscissa, radius = found.td_abscissa(), found.fitted_radius()
        wrong += abs(abscissa) > 1e-3 and (abscissa > 0) != (found.td_radius(1e-5) > 1)
        only_td = max(only_td, min(-abscissa, radius - 1))
        only_fitted = max(only_fitted, min(abscissa, 1 - radius))
    gaps = [short_of(only_td, 0.01), short_of(only_fitted, 0.01), float(wrong)]
    return exact(gaps, 0.0, f"margins of the best examples of 400: {only_td:.3g} and {only_fitted:.3g}")


@EXPERIMENT.claim(source="Laidlaw, Singhal & Dragan (2024), Correlated proxies")
def proxy_gain_bounds_true_gain() -> Evidence:
    """For a proxy with correlation r > 0 under the base occupancy, the true gain in standard deviations is at
    least (1/r) [proxy gain - sqrt((1 - r^2) chi2)], with equality at base (1 + t residual).
    """
    rng, gaps = np.random.default_rng(20_260_104), []
    for _ in range(50):
        base_X, reward_X = rng.dirichlet(np.ones(8)), rng.normal(size=8)
        proxy_X = reward_X + rng.normal(size=8)
        if base_X @ ((reward_X - base_X @ reward_X) * proxy_X) <= 0:
            proxy_X = -proxy_X
        for occupancy_X in rng.dirichlet(np.ones(8), size=10):
            gaps.append(-value_learning.proxy_slack(base_X, occupancy_X, reward_X, proxy_X))
        for size in (0.2, 1.0):
            tight_X = value_learning.tight_occupancy(base_X, reward_X, proxy_X, size)
            gaps.append(abs(value_learning.proxy_slack(base_X, tight_X, reward_X, proxy_X)))
    return exact(np.maximum(gaps, 0.0), 1e-9, "largest violation, or slack at the tight occupancy, 50 bases")


@EXPERIMENT.claim(
    source="Schulman et al. (2016), High-dimensional continuous control using GAE; bias derived"
)
def gae_bias_is_the_discounted_error_ahead() -> Evidence:
    """With Vhat = V + e, E[GAE | s, a] - A = -e(s) + discount (1 - lambda) sum_l (discount lambda)^l
    E[e(s_{t+l+1})]; the gradient is biased by the second term alone, and not at all at lambda = 1.
    """
    gaps: list[float] = []
    for seed in range(WORLDS):
        world, pi_SA, _, rng = random_world(seed)
        error_S = rng.normal(size=world.states)
        value_S = infinite_horizon.state_value(world, pi_SA)
        advantage_SA = infinite_horizon.q_value(world, pi_SA) - value_S[:, None]
        for lam in (0.0, 0.5, 0.95, 1.0):
            found_SA = value_learning.expected_gae(world, pi_SA, value_S + error_S, lam)
            bias_SA = value_learning.gae_bias(world, pi_SA, error_S, lam)
            gaps.append(float(np.abs(found_SA - advantage_SA - bias_SA).max()))
            centered_SA = bias_SA - (pi_SA * bias_SA).sum(axis=-1, keepdims=True)
            size = float(np.abs(pi_SA * centered_SA).max())
            gaps.append(size if lam == 1.0 else short_of(size, 1e-4))
    return exact(gaps, 1e-11, f"largest distance over {WORLDS} worlds and four lambdas")


@EXPERIMENT.claim(source="Newey & Powell (1987); Kostrikov et al. (2021), Implicit Q-learning, lemma 1")
def expectile_runs_from_mean_to_maximum() -> Evidence:
    """The expectile m_tau solves tau E(X - m)+ = (1 - tau) E(m - X)+, is the mean at tau = 1/2, increases
    with tau, and tends to the maximum without reaching it.
    """
    rng, gaps = np.random.default_rng(20_260_105), []
    for _ in range(50):
        value_K, mass_K = rng.normal(size=6), rng.dirichlet(np.ones(6))
        tau_T = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-9])
        found_T = np.array([value_learning.expectile(value_K, mass_K, tau) for tau in tau_T])
        above_T = np.maximum(value_K - found_T[:, None], 0.0) @ mass_K
        below_T = np.maximum(found_T[:, None] - value_K, 0.0) @ mass_K
        gaps += list(np.abs(tau_T * above_T - (1 - tau_T) * below_T))
        gaps += [abs(found_T[3] - mass_K @ value_K), max(0.0, -float(np.diff(found_T).min()))]
        gaps += [max(0.0, found_T[-1] - value_K.max()), short_of(found_T[-1], value_K.max() - 1e-5)]
    return exact(gaps, 1e-9, "largest residual, distance or fall over 50 laws and eight values of tau")


@EXPERIMENT.claim(
    source="Imani, Graves & White (2018), An off-policy policy gradient theorem using emphatic weightings"
)
def emphatic_weighting_gives_the_gradient() -> Evidence:
    """Emphatic weights m = (I - discount P_pi^T)^-1 i give the gradient of sum_s i(s) V(s); with the
    behavior's own state weights (OffPAC) it is wrong in general.
    """
    gaps, astray = [], []
    for seed in range(WORLDS):
        world, pi_SA, _, rng = random_world(seed)
        interest_S = rng.dirichlet(np.ones(world.states))
        truth_SA = value_learning.interest_gradient(world, np.log(pi_SA), interest_S)
        emphasis_S = value_learning.emphasis(world, pi_SA, interest_S)
        emphatic_SA = value_learning.off_policy_gradient(world, pi_SA, emphasis_S)
        plain_SA = value_learning.off_policy_gradient(world, pi_SA, interest_S)
        gaps.append(float(np.abs(emphatic_SA - truth_SA).max()))
        astray.append(float(np.linalg.norm(plain_SA - truth_SA) / np.linalg.norm(truth_SA)))
    gaps.append(short_of(min(astray), 0.1))
    note = f"largest distance; OffPAC is off by {min(astray):.2g} or more of the gradient's norm"
    return exact(gaps, 1e-11, note)


@EXPERIMENT.claim(
    source="Farajtabar, Chow & Ghavamzadeh (2018); non-uniqueness: docs/theory/linear-weights.md"
)
def mrdr_minimizer_is_not_unique() -> Evidence:
    """MRDR's criterion E_x Var_a[w (q - qhat)] is 0 at qhat = q + c(x) mu/pi for every c, and each of these
    models gives the doubly robust estimate the very variance that qhat = q gives.
    """
    rng, gaps = np.random.default_rng(20_260_106), []
    for _ in range(20):
        law = bandit.LoggedDistribution(
            context_S=rng.dirichlet(np.ones(3)),
            mu_SA=rng.dirichlet(np.full(4, 2.0), size=3),
            pi_SA=rng.dirichlet(np.full(4, 2.0), size=3),
            mean_SA=rng.random((3, 4)),
            variance_SA=rng.random((3, 4)),
        )
        right = bandit.linear_weight(law, law.weight_SA, law.mean_SA)
        for shift_S in (np.ones(3), rng.normal(size=3)):
            model_SA = law.mean_SA + shift_S[:, None] * law.mu_SA / law.pi_SA
            found = bandit.linear_weight(law, law.weight_SA, model_SA)
            gaps += [bandit.mrdr_objective(law, model_SA), abs(found.bias)]
            gaps.append(abs(found.n_variance / right.n_variance - 1))
        gaps.append(short_of(bandit.mrdr_objective(law, 0 * law.mean_SA), 1e-3))
    return exact(gaps, 1e-10, "largest criterion, bias or relative change of variance over 20 bandits")


@EXPERIMENT.claim(
    source="Xu et al. (2023), An instrumental variable approach to confounded off-policy evaluation"
)
def instrument_identifies_the_effect_of_an_action() -> Evidence:
    """With a binary instrument independent of the confounder, the ratio of reward to action differences is
    E[R | do(a)] when the instrument moves the action alike for all confounders, and not otherwise; E[R | A =
    a] is biased.
    """
    mean_AK = np.array([[0.2, 0.7], [0.35, 0.5]])
    alike = bandit.InstrumentDistribution(
        np.array([0.6, 0.4]), 0.5, np.array([[0.2, 0.6], [0.5, 0.9]]), mean_AK
    )
    differing = bandit.InstrumentDistribution(
        np.array([0.6, 0.4]), 0.5, np.array([[0.2, 0.6], [0.5, 0.7]]), mean_AK
    )
    gaps = [abs(alike.identified(a) - alike.effect(a)) for a in (0, 1)]
    gaps += [short_of(abs(differing.identified(a) - differing.effect(a)), 0.01) for a in (0, 1)]
    gaps += [short_of(abs(alike.naive(a) - alike.effect(a)), 0.01) for a in (0, 1)]
    return exact(gaps, 1e-13, "distance of the ratio from the effect, two actions; others off by over 0.01")
