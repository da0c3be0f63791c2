"""Claims about values, ratios and operators in finite MDPs, decided by linear algebra or enumeration."""

from itertools import pairwise

import numpy as np

from analysis.lab import Evidence, Experiment, exact, short_of
from envs import infinite_horizon
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from testbed.exact import fixed_points, mdp, ratios_dice

EXPERIMENT = Experiment(
    "dynamics",
    question="Which recursions, fixed points and moments hold exactly for values in finite MDPs?",
    source="papers of the estimators, with each claim",
)

WORLDS = 5
"""Random worlds behind a claim about all worlds."""


@EXPERIMENT.claim(source="Jiang & Li (2016), Doubly robust off-policy value evaluation, theorem 1")
def doubly_robust_variance_is_a_recursion() -> Evidence:
    """IS, PDIS and doubly robust estimates with any fixed Qhat have mean J(pi) and the variances of the
    backward recursions; Qhat = 0 gives PDIS, and Qhat = Q in a deterministic world gives variance 0.
    """
    gaps = []
    for seed in range(WORLDS):
        world, pi_SA, mu_SA, rng = random_world(seed, noise="bernoulli", terminal=seed == 1)
        q_hat_TSA = rng.normal(size=(world.horizon, world.states, world.actions))
        table = mdp.enumerate_episodes(world, mu_SA)
        found = mdp.estimates(table, pi_SA, mu_SA, world.discount, q_hat_TSA)
        plain = mdp.estimates(table, pi_SA, mu_SA, world.discount)
        value = float(world.value(pi_SA))
        pairs = [
            (found.importance_N, mdp.importance_variance(world, pi_SA, mu_SA)),
            (found.per_decision_N, mdp.per_decision_variance(world, pi_SA, mu_SA)),
            (found.doubly_robust_N, mdp.doubly_robust_variance(world, pi_SA, mu_SA, q_hat_TSA)),
        ]
        for estimate_N, variance in pairs:
            gaps += [abs(table.mean(estimate_N) - value), abs(table.variance(estimate_N) / variance - 1)]
        gaps.append(np.abs(plain.doubly_robust_N - plain.per_decision_N).max())
    world, pi_SA, mu_SA, _ = random_world(0, deterministic=True)
    gaps.append(abs(mdp.doubly_robust_variance(world, pi_SA, mu_SA, world.q_value(pi_SA))))
    return exact(
        gaps, 1e-10, f"largest distance of a mean or, relatively, of a variance over {WORLDS} worlds"
    )


@EXPERIMENT.claim(source="Uehara, Huang & Jiang (2020); Nachum et al. (2019), DualDICE")
def dice_value_is_lstdq_value() -> Evidence:
    """With A = D(I - discount P_pi), A^T zeta = b gives the occupancy ratio and E_D[zeta r] = b . Q with A Q
    = D r, on the exact law and on counts alike; E_D zeta = 1, and solving A zeta = b is wrong.
    """
    gaps: list[float] = []
    astray: list[float] = []
    for seed in range(WORLDS):
        world, pi_SA, _, rng = random_world(seed, terminal=seed == 1)
        # Data go on after the end of an episode, as logs with automatic resets do.
        data_SA = rng.dirichlet(np.ones(world.states * world.actions)).reshape(pi_SA.shape)
        joint_SAS = ratios_dice.joint_distribution(world, data_SA)
        # Counts of 400 transitions, and of one more per pair, so that every pair occurs.
        drawn_SAS = rng.multinomial(400, joint_SAS.ravel() / joint_SAS.sum()).reshape(joint_SAS.shape)
        extra_SAS = (joint_SAS == joint_SAS.max(axis=-1, keepdims=True)) & (joint_SAS > 0)
        reward_K, terminal_S = world.reward_SA.ravel(), world.tables.terminal_S
        arguments = (pi_SA, world.start_S, world.discount, terminal_S)
        system = ratios_dice.linear_system(joint_SAS, *arguments)
        counted = ratios_dice.linear_system(drawn_SAS + extra_SAS, *arguments)
        truth = (1 - world.discount) * float(infinite_horizon.value(world, pi_SA))
        occupancy_SA = ratios_dice.occupancy_ratio(world, pi_SA, data_SA)
        gaps += [abs(each.dice_value(reward_K) - each.lstd_value(reward_K)) for each in (system, counted)]
        gaps.append(abs(system.dice_value(reward_K) - truth))
        gaps.append(float(np.abs(system.ratio().reshape(pi_SA.shape) - occupancy_SA).max()))
        if not terminal_S.any():
            gaps += [abs(float(each.data_X @ each.ratio()) - 1) for each in (system, counted)]
        untransposed_K = np.linalg.solve(system.matrix_XX, system.start_X)
        astray.append(abs(float(system.data_X * reward_K @ untransposed_K) - truth))
    gaps.append(short_of(min(astray), 0.01))
    return exact(gaps, 1e-9, f"largest distance over {WORLDS} worlds, exact laws and counts")


@EXPERIMENT.claim(
    source="Chaudhari et al. (2024), Abstract reward processes; the role of the discount is derived here"
)
def abstract_chain_needs_discounted_counts() -> Evidence:
    """An abstract reward chain from importance-weighted counts has value J(pi) for any abstraction of the
    states when step t counts discount^t, and in general another value when all steps count alike.
    """
    abstractions = (np.array([0, 1, 1, 0]), np.array([0, 0, 0, 0]), np.arange(4))
    gaps, astray = [], []
    for seed in range(WORLDS):
        world, pi_SA, _, _ = random_world(seed)
        value = float(world.value(pi_SA))
        for abstraction_S in abstractions:
            chain = ratios_dice.abstract_chain_value(world, pi_SA, abstraction_S)
            plain = ratios_dice.abstract_chain_value(world, pi_SA, abstraction_S, discounted_counts=False)
            gaps.append(abs(chain - value))
            astray.append(abs(plain - value))
    gaps.append(short_of(max(astray), 0.01))
    return exact(gaps, 1e-11, f"largest distance over {WORLDS} worlds and {len(abstractions)} abstractions")


@EXPERIMENT.claim(source="a Markov chain's product moments; i.i.d. tokens are its one-state case")
def sequence_second_moment_is_a_matrix_product() -> Evidence:
    """E_mu w_{0:t}^2 = start . M^t m with M = sum_a pi^2/mu P and m = sum_a pi^2/mu; it never falls with t,
    and it is (1 + chi2)^(t + 1) for independent tokens.
    """
    gaps: list[float] = []
    for seed in range(WORLDS):
        world, pi_SA, mu_SA, _ = random_world(seed)
        step_SS, first_S = mdp.squared_ratio_matrix(world, pi_SA, mu_SA)
        product_T = np.array(
            [world.start_S @ np.linalg.matrix_power(step_SS, t) @ first_S for t in range(world.horizon)]
        )
        table = mdp.enumerate_episodes(world, mu_SA)
        rho_NT = pi_SA[table.state_NT, table.action_NT] / mu_SA[table.state_NT, table.action_NT]
        listed_T = table.probability_N @ np.cumprod(rho_NT, axis=-1) ** 2
        stepped_T = world.divergence(pi_SA, mu_SA).second_moment_prefix_T
        gaps += [float(np.abs(each_T / product_T - 1).max()) for each_T in (listed_T, stepped_T)]
        gaps += [max(0.0, before - after) for before, after in pairwise(product_T)]
        flat_SA = np.broadcast_to(pi_SA[0], pi_SA.shape), np.broadcast_to(mu_SA[0], mu_SA.shape)
        token = float((pi_SA[0] ** 2 / mu_SA[0]).sum())
        same_T = world.divergence(*flat_SA).second_moment_prefix_T
        gaps += list(np.abs(same_T / token ** np.arange(1, world.horizon + 1) - 1))
    return exact(gaps, 1e-11, f"largest relative distance over {WORLDS} worlds and all prefixes")


@EXPERIMENT.claim(source="Espeholt et al. (2018), IMPALA, theorem 1; Munos et al. (2016), Retrace, theorem 1")
def vtrace_and_retrace_fixed_points() -> Evidence:
    """V-trace's fixed point is the value of min(rho_bar mu, pi) normalized, whatever the traces, and it
    contracts by 1 - (1 - discount) min E_mu min(rho_bar, rho), or better with longer traces. Retrace's is
    Q^pi, with a nonnegative Jacobian of rows 1 - (1 - discount) E_mu sum_t discount^t c_1 ... c_t, at most
    the discount, c = lambda min(1, rho).
    """
    gaps: list[float] = []
    for seed in range(WORLDS):
        world, pi_SA, mu_SA, _ = random_world(seed)
        for rho_bar in (0.5, 1.0, 2.0, np.inf):
            policy_SA = fixed_points.vtrace_policy(pi_SA, mu_SA, rho_bar)
            value_S = infinite_horizon.state_value(world, policy_SA)
            bound = fixed_points.vtrace_contraction_bound(pi_SA, mu_SA, rho_bar, world.discount)
            for lam in (0.0, 0.5, 1.0):
                clipped = fixed_points.vtrace(
                    world, pi_SA, mu_SA, rho_bar=rho_bar, c_bar=min(1.0, rho_bar), lam=lam
                )
                gaps.append(float(np.abs(clipped.fixed_point() - value_S).max()))
                gaps.append(max(0.0, clipped.sup_norm - bound))
                if lam == 0.0:  # one step: the bound is attained
                    gaps.append(abs(clipped.sup_norm - bound))
        q_K = infinite_horizon.q_value(world, pi_SA).ravel()
        for lam in (0.0, 0.5, 1.0):
            traced = fixed_points.retrace(world, pi_SA, mu_SA, lam=lam)
            gaps.append(float(np.abs(traced.fixed_point() - q_K).max()))
            gaps.append(max(0.0, traced.sup_norm - world.discount, -float(traced.jacobian_XX.min())))
            kept_K = 1 - (1 - world.discount) * _traces_ahead(world, pi_SA, mu_SA, lam)
            gaps.append(float(np.abs(traced.jacobian_XX.sum(-1) - kept_K).max()))
    return exact(gaps, 1e-10, f"largest distance or violation over {WORLDS} worlds, rho_bar and lambda")


@EXPERIMENT.claim(source="Voloshin et al. (2021); docs/theory/density-ratios.md")
def tabular_fqe_is_the_certainty_equivalent_value() -> Evidence:
    """Tabular fitted Q evaluation contracts by at most the discount, and its fixed point is LSTD-Q's on the
    same transitions, which is Q^pi on their exact law; nothing is added after a terminal state.
    """
    gaps: list[float] = []
    for seed in range(WORLDS):
        world, pi_SA, mu_SA, rng = random_world(seed, terminal=seed == 1)
        terminal_S = world.tables.terminal_S
        joint_SAS = ratios_dice.joint_distribution(world, mu_SA / world.states)  # terminal states among them
        drawn_SAS = rng.multinomial(300, joint_SAS.ravel()).reshape(joint_SAS.shape)
        count_SAS = (drawn_SAS + (joint_SAS > 0)).astype(np.float64)
        reward_SA = world.reward_SA
        for given_SAS in (joint_SAS, count_SAS):
            operator = fixed_points.fitted_q(given_SAS, reward_SA, pi_SA, world.discount, terminal_S)
            system = ratios_dice.linear_system(given_SAS, pi_SA, world.start_S, world.discount, terminal_S)
            value_K = np.zeros(reward_SA.size)
            for _ in range(600):
                value_K = operator(value_K)
            gaps.append(float(np.abs(value_K - system.q_value(reward_SA.ravel())).max()))
            gaps.append(max(0.0, operator.sup_norm - world.discount - 1e-12))
        exactly = fixed_points.fitted_q(joint_SAS, reward_SA, pi_SA, world.discount, terminal_S)
        off_SA = exactly.fixed_point().reshape(pi_SA.shape) - infinite_horizon.q_value(world, pi_SA)
        gaps.append(float(np.abs(off_SA[~terminal_S]).max()))
    return exact(gaps, 1e-9, f"largest distance over {WORLDS} worlds, exact laws and counts")


def _traces_ahead(world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, lam: float) -> Floats:
    """E_mu sum_t discount^t c_1 ... c_t from every pair, [S A], by 600 steps back in time."""
    c_SA = lam * np.minimum(1.0, pi_SA / mu_SA)
    ahead_SA = np.ones_like(pi_SA)
    for _ in range(600):
        ahead_SA = 1 + world.discount * world.transition_SAS @ (mu_SA * c_SA * ahead_SA).sum(-1)
    return ahead_SA.ravel()


def random_world(
    seed: int, *, noise: str = "none", terminal: bool = False, deterministic: bool = False
) -> tuple[FiniteMDP, Floats, Floats, np.random.Generator]:
    """Return a random world of 4 states, 2 actions and 3 steps, two random policies and the generator."""
    rng = np.random.default_rng((20_260_102, seed))
    transition_SAS = rng.dirichlet(np.ones(4), size=(4, 2))
    start_S = np.append(rng.dirichlet(np.ones(3)), 0.0)
    if deterministic:
        transition_SAS, start_S = np.eye(4)[rng.integers(4, size=(4, 2))], np.eye(4)[0]
    world = FiniteMDP(
        transition_SAS=transition_SAS,
        reward_SA=rng.random((4, 2)),
        start_S=start_S,
        horizon=3,
        discount=0.9,
        noise=noise,
        terminal_S=np.array([False, False, False, terminal]),
    )
    pi_SA, mu_SA = rng.dirichlet(np.full(2, 2.0), size=(2, 4))
    return world, pi_SA, mu_SA, rng
