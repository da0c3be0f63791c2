"""Claims about value estimators for whole episodes, decided by writing down every episode of small worlds."""

import dataclasses
import math

import numpy as np

from analysis.lab import Evidence, Experiment, exact
from analysis.worlds.trajectory_worlds import (
    dyadic_world,
    exact_log,
    law_of_transitions,
    noisy_world,
    pairs,
    random_log,
    random_transitions,
    singles,
    two_steps,
)
from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.estimators.abstraction import recent_weights, star
from testbed.estimators.dice import dice, dice_solution
from testbed.estimators.doubly_robust_trajectory import (
    more_robust_q,
    trajectory_dm,
    trajectory_dr,
    trajectory_mrdr,
    wdr,
)
from testbed.estimators.fqe import fqe, fqe_finite
from testbed.estimators.magic import bootstrap_wdr, contributions, mixture
from testbed.estimators.marginal import marginalized_is, marginalized_is_counts
from testbed.estimators.trajectory import cwpdis, pdis, trajectory_is, trajectory_wis
from testbed.exact import mdp

EXPERIMENT = Experiment(
    "trajectory-estimators",
    question="Which promises do value estimators for episodes keep, over every episode of small worlds?",
    source="papers of the estimators, with each claim",
)

ROUNDING = 1e-12


@EXPERIMENT.claim(source="evaluation practice; several public implementations fail it")
def trajectory_on_policy_reduction() -> Evidence:
    """With pi = mu, IS, WIS, PDIS, CWPDIS, counted marginal IS and every abstract chain equal the mean return
    in every data set, and DR and WDR the mean return with the model as control variate.
    """
    episodes = random_log(same=True)
    mean = episodes.return_N.mean(-1)
    plain = (trajectory_is, trajectory_wis, pdis, cwpdis, marginalized_is_counts, star)
    gaps = [np.abs(estimate(episodes).value - mean) for estimate in plain]
    gaps.append(np.abs(star(episodes, abstraction_S=np.zeros(3, dtype=np.int64)).value - mean))
    control_N = (episodes.demand("v_NT") - episodes.demand("q_NT")) @ episodes.discount_T
    gaps += [
        np.abs(estimate(episodes).value - mean - control_N.mean(-1)) for estimate in (trajectory_dr, wdr)
    ]
    return exact(np.stack(gaps), ROUNDING, "largest distance over 6 data sets of 8 episodes")


@EXPERIMENT.claim(source="Swaminathan & Joachims (2015), arXiv:1506.02125, carried over to episodes")
def trajectory_shift_equivariance() -> Evidence:
    """Adding c to all rewards moves WIS and CWPDIS by exactly c sum_t gamma^t, whatever the data; it moves IS
    by that times the mean weight.

    Return the distances from the three shifts; the mean weight is far from 1.
    """
    episodes = random_log(full=True)
    moved = dataclasses.replace(episodes, reward_NT=episodes.reward_NT + 3.0)
    worth = 3.0 * episodes.discount_T.sum()
    gaps = [np.abs(e(moved).value - e(episodes).value - worth) for e in (trajectory_wis, cwpdis)]
    mean_weight = episodes.weight_NT[..., -1].mean(-1)
    gaps.append(np.abs(trajectory_is(moved).value - trajectory_is(episodes).value - worth * mean_weight))
    visible = 0.1 - np.abs(mean_weight - 1.0).max()
    return exact([*np.ravel(gaps), visible], 1e-11, "largest distance over 6 data sets of 8 episodes")


@EXPERIMENT.claim(source="Liu, Bacon & Brunskill (2020), arXiv:1910.06508")
def trajectory_per_decision_can_lose() -> Evidence:
    """Per-decision weighting can have the larger variance: in a two-step chain whose rewards cancel, Var(IS)
    = 8011/2025000 and Var(PDIS) = 70188373/810000, both with mean -1/50.
    """
    world = two_steps([-1.0, -1.0], [1.0, -1.0])
    pi_SA, mu_SA = np.array([[0.99, 0.01]] * 2), np.array([[0.1, 0.9]] * 2)
    table, alone = singles(world, pi_SA, mu_SA)
    gaps = []
    for estimate, variance in ((trajectory_is, 8011 / 2025000), (pdis, 70188373 / 810000)):
        value_N = estimate(alone).value
        gaps += [abs(table.mean(value_N) + 1 / 50), abs(table.variance(value_N) / variance - 1)]
    gaps.append(abs(mdp.importance_variance(world, pi_SA, mu_SA) * 2025000 / 8011 - 1))
    gaps.append(abs(mdp.per_decision_variance(world, pi_SA, mu_SA) * 810000 / 70188373 - 1))
    return exact(gaps, 1e-10, "largest relative distance from the fractions")


@EXPERIMENT.claim(
    source="no strict order is known, Liu, Bacon & Brunskill (2020), arXiv:1910.06508; own example"
)
def trajectory_marginalized_can_lose() -> Evidence:
    """Marginalized IS can have a larger variance than PDIS: with one state, rewards -1 then +1 and v =
    Var(rho), Var(MIS) = 2v and Var(PDIS) = v(1 + v), which is less for v < 1.

    Return distances from 2v = 1/4 and v(1 + v) = 9/64 at v = 1/8, and the order reversed at v = 16/9.
    """
    gaps = []
    for mu, v in ((1 / 3, 1 / 8), (0.9, 16 / 9)):
        world = two_steps([-1.0, -1.0], [1.0, 1.0])
        table, alone = singles(world, np.full((2, 2), 0.5), np.array([[mu, 1 - mu]] * 2))
        marginal, per_decision = (
            table.variance(marginalized_is(alone).value),
            table.variance(pdis(alone).value),
        )
        gaps += [abs(marginal - 2 * v), abs(per_decision - v * (1 + v))]
        gaps.append((marginal - per_decision) * math.copysign(1.0, v - 1))
    return exact(gaps, ROUNDING, "largest distance from the closed forms, or excess in the wrong order")


@EXPERIMENT.claim(source="Jiang & Li (2016), arXiv:1511.03722, theorems 1 and 2")
def trajectory_doubly_robust_moments() -> Evidence:
    """DR has mean J(pi) for every fixed model, however wrong, and the variance of Jiang and Li's recursion;
    with the model 0 it is PDIS. IS, PDIS and marginalized IS with exact ratios have mean J(pi) too.
    """
    gaps = []
    for seed, terminal in ((0, None), (1, None), (2, [False, False, True])):
        world, pi_SA, mu_SA, q_TSA = noisy_world(seed, terminal)
        table, alone = singles(world, pi_SA, mu_SA, q_TSA)
        truth, value_N = float(world.value(pi_SA)), trajectory_dr(alone).value
        gaps.append(abs(table.variance(value_N) / mdp.doubly_robust_variance(world, pi_SA, mu_SA, q_TSA) - 1))
        for estimate in (trajectory_dr, trajectory_is, pdis, marginalized_is):
            gaps.append(abs(table.mean(estimate(alone).value) - truth))
        gaps.append(
            abs(table.variance(pdis(alone).value) / mdp.per_decision_variance(world, pi_SA, mu_SA) - 1)
        )
        zero_N = trajectory_dr(alone.with_model(0.0 * q_TSA)).value
        gaps.append(float(np.abs(zero_N - pdis(alone).value).max()))
    return exact(gaps, 1e-11, "largest distance of a mean, relative distance of a variance, over 3 worlds")


@EXPERIMENT.claim(source="Jiang & Li (2016), arXiv:1511.03722")
def trajectory_doubly_robust_exact_model() -> Evidence:
    """In a deterministic world with the model Q, DR and WDR equal J(pi) on every single episode."""
    pi_SA, mu_SA = np.random.default_rng(3).dirichlet([2.0, 2.0], size=(2, 3))
    world = FiniteMDP(
        transition_SAS=np.stack([np.eye(3)[[1, 2, 0]], np.eye(3)], axis=1),
        reward_SA=np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]]),
        start_S=np.array([1.0, 0.0, 0.0]),
        horizon=4,
        discount=0.9,
    )
    _, alone = singles(world, pi_SA, mu_SA, world.q_value(pi_SA))
    truth = float(world.value(pi_SA))
    gaps = [np.abs(estimate(alone).value - truth) for estimate in (trajectory_dr, wdr)]
    return exact(np.concatenate(gaps), ROUNDING, "largest distance from J(pi) over all single episodes")


@EXPERIMENT.claim(source="Precup, Sutton & Singh (2000); evaluation of ratio estimators")
def trajectory_normalized_single_episode() -> Evidence:
    """With one episode WIS and CWPDIS are its return: their mean is J(mu), not J(pi)."""
    world, pi_SA, mu_SA, _ = noisy_world(0)
    table, alone = singles(world, pi_SA, mu_SA)
    gaps = [abs(table.mean(e(alone).value) - float(world.value(mu_SA))) for e in (trajectory_wis, cwpdis)]
    return exact(
        [*gaps, 0.01 - abs(float(world.value(mu_SA) - world.value(pi_SA)))],
        ROUNDING,
        "distance of a mean from J(mu)",
    )


@EXPERIMENT.claim(source="evaluation of ratio and plug-in estimators at the exact law")
def trajectory_consistent_on_the_exact_law() -> Evidence:
    """On a log in which every episode, ended ones included, is exactly as frequent as likely, WIS, CWPDIS,
    WDR, counted marginal IS, FQE per step and the free MRDR model give J(pi) or Q exactly.
    """
    gaps = []
    for terminal in (False, True):
        world, pi_SA, mu_SA = dyadic_world(terminal)
        log = exact_log(world, pi_SA, mu_SA)
        wrong = log.with_model(np.random.default_rng(0).normal(size=(world.horizon, 2, 2)))
        truth = float(world.value(pi_SA))
        estimates = (trajectory_wis, cwpdis, wdr, marginalized_is_counts, fqe_finite)
        gaps += [abs(float(estimate(wrong).value) - truth) for estimate in estimates]
        gaps.append(float(np.abs(more_robust_q(log) - world.q_value(pi_SA)).max()))
        exact_q = log.with_model(world.q_value(pi_SA))
        gaps.append(abs(float(trajectory_dm(exact_q).value) - truth))
    return exact(gaps, ROUNDING, "largest distance over two worlds")


@EXPERIMENT.claim(source="Farajtabar, Chow & Ghavamzadeh (2018), arXiv:1802.03493, with cross-fitting")
def trajectory_mrdr_cross_fitted_is_unbiased() -> Evidence:
    """MRDR whose model is fitted on the other half has mean J(pi) with only two episodes."""
    world, pi_SA, mu_SA = dyadic_world(terminal=False, horizon=2)
    chance_P, data = pairs(world, pi_SA, mu_SA)
    mean = chance_P @ trajectory_mrdr(data).value
    return exact(abs(mean - float(world.value(pi_SA))), ROUNDING, f"distance over {len(chance_P)} pairs")


@EXPERIMENT.claim(source="Nachum et al. (2019), arXiv:1906.04733; Lagoudakis & Parr (2003)")
def trajectory_dice_is_lstd_on_counts() -> Evidence:
    """On any log, E_D[zeta r] with A^T zeta = b equals b . Q with A Q = D r, also with least-norm solutions
    of a singular A; the untransposed system gives another value. E_D[zeta] = 1 when every pair is logged and
    no step ends.
    """
    gaps = []
    for seed in range(4):
        log = random_transitions(seed, ends=seed < 2, missing=seed == 3)
        found = dice_solution(log)
        q_X, ratio_X = found.q_value.ravel(), found.ratio_SA.ravel()
        value = float(dice(log).value) * (1.0 - log.gamma)
        gaps.append(abs(value - found.start_X @ q_X))
        if seed < 3:
            wrong_X = np.linalg.solve(found.matrix_XX, found.start_X)
            gaps.append(1e-3 - abs(found.reward_X @ wrong_X - value))
        if seed == 2:
            visits_X = np.bincount(found.step.pair_M, minlength=len(ratio_X)) / found.step.pair_M.size
            gaps.append(abs(visits_X @ ratio_X - 1.0))
    return exact(gaps, 1e-11, "largest distance over 4 logs; the untransposed value differs by 1e-3 or more")


@EXPERIMENT.claim(
    source="Nachum et al. (2019), arXiv:1906.04733; Le, Voloshin & Yue (2019), arXiv:1903.08738"
)
def trajectory_dice_and_fqe_solve_the_logged_world() -> Evidence:
    """With every pair logged, tabular DICE and fitted Q evaluation give the discounted value of the world
    that the counts describe, next observations in the targets and nothing after terminal states.
    """
    gaps = []
    for terminal in (False, True):
        world, pi_SA, mu_SA = dyadic_world(terminal)
        log = law_of_transitions(world, pi_SA, mu_SA)
        value_S = infinite_horizon.state_value(world, pi_SA)
        truth = float(value_S[log.demand("state_NT")].mean())
        gaps += [abs(float(estimate(log).value) - truth) for estimate in (dice, fqe)]
    return exact(gaps, ROUNDING, "largest distance from the infinite-horizon value, two worlds")


@EXPERIMENT.claim(source="Nachum et al. (2019), arXiv:1906.04733, at D = d_pi")
def trajectory_dice_is_one_on_policy() -> Evidence:
    """Where the data have the law of pi's own discounted occupancy, the DICE ratio is 1 everywhere."""
    # Moves that keep the even law of states: it is then the discounted occupancy for every discount.
    world = dataclasses.replace(
        dyadic_world(terminal=False)[0],
        transition_SAS=np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.75, 0.25], [0.5, 0.5]]]),
        start_S=np.array([0.5, 0.5]),
    )
    pi_SA = np.array([[0.75, 0.25], [0.75, 0.25]])
    log = law_of_transitions(world, pi_SA, pi_SA)
    gaps = np.abs(dice_solution(log).ratio_SA - 1.0).ravel()
    value = log.reward_NT.mean() / (1.0 - log.gamma)
    return exact(
        [*gaps, abs(float(dice(log).value) - value)], ROUNDING, "largest distance, 4 pairs and the value"
    )


@EXPERIMENT.claim(
    source="Chaudhari et al. (2024), Abstract reward processes; role of gamma^t: "
    "docs/theory/density-ratios.md"
)
def trajectory_abstract_chain_discounted_counts() -> Evidence:
    """On the exact law, the chain on any abstraction of the states has value J(pi) when step t counts gamma^t
    w_{0:t}; without gamma^t it has not, and without ratios it has J(mu).
    """
    world, pi_SA, mu_SA = dyadic_world(terminal=False)
    log, truth = exact_log(world, pi_SA, mu_SA), float(world.value(pi_SA))
    gaps = []
    for label_S in (np.array([0, 1]), np.array([0, 0])):
        gaps.append(abs(float(star(log, abstraction_S=label_S).value) - truth))
        gaps.append(abs(float(star(log, abstraction_S=label_S, c=0).value) - float(world.value(mu_SA))))
        plain = float(star(log, abstraction_S=label_S, discounted_counts=False).value)
        gaps.append(0.01 - abs(plain - truth))
    return exact(gaps, 1e-11, "largest distance; undiscounted counts are off by 0.01 or more")


@EXPERIMENT.claim(source="Thomas & Brunskill (2016), arXiv:1604.00923")
def trajectory_magic_minimizes_estimated_risk() -> Evidence:
    """MAGIC's weights lie on the simplex and meet the optimality conditions of x^T (Omega + b b^T) x with
    Omega the covariance of the sum over episodes; its candidates run from DM to WDR.
    """
    episodes, gaps = random_log(n=30), []
    found, part_NK = mixture(episodes, seed=1, alpha=0.9), contributions(episodes)
    drawn_B = bootstrap_wdr(episodes, np.random.default_rng(1), 200)
    gaps += [np.abs(part_NK.sum(-2)[..., 0] - trajectory_dm(episodes).value).max()]
    gaps += [np.abs(part_NK.sum(-2)[..., -1] - wdr(episodes).value).max()]
    for at in np.ndindex(part_NK.shape[:-2]):
        candidate_K, weight_K = part_NK[at].sum(0), found.weight_K[at]
        low, high = np.quantile(drawn_B[at], [0.45, 0.55])
        low, high = min(low, candidate_K[-1]), max(high, candidate_K[-1])
        bias_K = np.maximum(0.0, np.maximum(candidate_K - high, low - candidate_K))
        risk_KK = 30 * np.cov(part_NK[at].T) + np.outer(bias_K, bias_K)
        slope_K = risk_KK @ weight_K
        gaps += [(weight_K @ slope_K - slope_K.min()) / np.trace(risk_KK), -weight_K.min()]
        gaps.append(abs(weight_K.sum() - 1.0))
    return exact(gaps, 1e-10, "largest violation over 6 data sets of 30 episodes")


@EXPERIMENT.claim(
    source="degrees of importance weighting in off-policy gradients, MinPRO and CTPO, for values"
)
def trajectory_terminal_reward_needs_every_ratio() -> Evidence:
    """With a reward at the last step alone, PDIS is IS episode by episode; the last token's ratio in place of
    the whole product is biased, although its ESS is higher.
    """
    world, pi_SA, mu_SA = dyadic_world(terminal=False)
    log = exact_log(world, pi_SA, mu_SA)
    last_T = np.arange(world.horizon) == world.horizon - 1
    late = dataclasses.replace(log, reward_NT=log.reward_NT * last_T)
    truth = float(world.discount ** (world.horizon - 1) * _last_reward(world, pi_SA))
    whole_N, token_N = late.weight_NT[:, -1], recent_weights(late, 1)[:, -1]
    gaps = [np.abs(np.asarray(trajectory_is(late).terms_N) - np.asarray(pdis(late).terms_N)).max()]
    gaps.append(abs(float(trajectory_is(late).value) - truth))
    gaps.append(0.01 - abs(float((token_N * late.return_N).mean()) - truth))
    gaps.append(float((token_N**2).mean() - (whole_N**2).mean()))
    return exact(gaps, ROUNDING, "largest distance, or shortfall of a difference that must be there")


def _last_reward(world: FiniteMDP, pi_SA: Floats) -> float:
    """E_pi[r] of the last step, undiscounted."""
    return float((world.occupancy(pi_SA)[-1][:, None] * pi_SA * world.mean_reward_SA).sum())
