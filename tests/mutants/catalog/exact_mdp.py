"""Bugs planted in the exact truth of finite MDPs, bandits and flows."""

from mutants.mutant import Mutant

MDP, BANDIT, FLOWS = (f"tests/unit/exact/test_exact_{name}.py" for name in ("mdp", "bandit", "flows"))
ROBUST = "tests/experiments/test_claims_exact.py -k doubly-robust-variance-is-a-recursion"
DICE = "tests/experiments/test_claims_exact.py -k dice-value-is-lstdq-value"
FITTED = "tests/experiments/test_claims_exact.py -k tabular-fqe-is-the-certainty-equivalent-value"
CHAIN = "tests/experiments/test_claims_exact.py -k abstract-chain-needs-discounted-counts"
TRACE = "tests/experiments/test_claims_exact.py -k vtrace-and-retrace-fixed-points"
TARGET = "tests/experiments/test_claims_exact.py -k target-network-cannot-save-every-bootstrap"
PROXY = "tests/experiments/test_claims_exact.py -k proxy-gain-bounds-true-gain"
EXPECTILE = "tests/experiments/test_claims_exact.py -k expectile-runs-from-mean-to-maximum"
GROWTH = "tests/experiments/test_claims_exact.py -k ess-cost-is-quadratic"

_MDP, _DICE, _FIXED = (f"testbed/exact/{name}.py" for name in ("mdp", "ratios_dice", "fixed_points"))
_VALUE, _BANDIT, _FLOWS = (f"testbed/exact/{name}.py" for name in ("value_learning", "bandit", "flows"))

MUTANTS = (
    # The catalog of docs/theory/planted-bugs.md.
    Mutant("m03-exact-weight-one-step-late", _MDP, "robust_NT = weight_NT * (table.reward_NT - q_hat_NT) + before_NT * v_hat_NT", "robust_NT = before_NT * (table.reward_NT - q_hat_NT) + before_NT * v_hat_NT", ROBUST),
    Mutant("m04-exact-model-under-mu", _MDP, "v_hat_TS = (pi_SA * q_hat_TSA)", "v_hat_TS = (mu_SA * q_hat_TSA)", ROBUST),
    Mutant("m05-exact-discount-one-step-late", _MDP, "np.power(discount, np.arange(steps), dtype", "np.power(discount, np.arange(1, steps + 1), dtype", ROBUST),
    Mutant("m07-exact-without-first-value", _MDP, "np.ones((len(weight_NT), 1)), weight_NT[:, :-1]", "np.zeros((len(weight_NT), 1)), weight_NT[:, :-1]", ROBUST),
    Mutant("m08-dice-without-transpose", _DICE, "np.linalg.solve(self.matrix_XX.T, self.start_X)", "np.linalg.solve(self.matrix_XX, self.start_X)", DICE),
    Mutant("m09-terminal-state-bootstrapped", _DICE, "(joint_SAS * live_S).reshape", "joint_SAS.reshape", DICE),
    Mutant("m09-terminal-state-bootstrapped-in-fqe", _FIXED, "(joint_SAS / seen_SA1 * live_S).reshape", "(joint_SAS / seen_SA1).reshape", FITTED),
    Mutant("m10-exact-reversed-time", _MDP, "weight_NT = np.cumprod(np.where(table.mask_NT, rho_NT, 1.0), axis=-1)", "weight_NT = np.cumprod(np.where(table.mask_NT, rho_NT, 1.0)[:, ::-1], axis=-1)[:, ::-1]", ROBUST),
    Mutant("exact-vtrace-ratio-twice-on-the-trace", _FIXED, "trace_SA = mu_SA * lam * np.minimum(c_bar, rho_SA)", "trace_SA = mu_SA * rho_SA * lam * np.minimum(c_bar, rho_SA)", MDP),
    Mutant("m06-exact-ratio-inverted", _MDP, "rho_NT = pi_SA[table.state_NT, table.action_NT] / mu_SA[table.state_NT, table.action_NT]", "rho_NT = mu_SA[table.state_NT, table.action_NT] / pi_SA[table.state_NT, table.action_NT]", ROBUST),
    Mutant("m21-exact-ratio-twice", _MDP, "rho_NT = pi_SA[table.state_NT, table.action_NT] / mu_SA[table.state_NT, table.action_NT]", "rho_NT = (pi_SA[table.state_NT, table.action_NT] / mu_SA[table.state_NT, table.action_NT]) ** 2", ROBUST),
    Mutant("m25-fqe-current-observation", _FIXED, "jacobian_XX = discount * (next_XS[..., None] * pi_SA)", "jacobian_XX = discount * (np.repeat(np.eye(states), actions, axis=0)[..., None] * pi_SA)", FITTED),
    # Recursions and enumeration.
    Mutant("exact-mdp-noise-not-weighted", _MDP, "variance_S = by_action_S + (square_SA * inner_SA)", "variance_S = by_action_S + (pi_SA * inner_SA)", ROBUST),
    Mutant("exact-mdp-variance-not-discounted-twice", _MDP, "inner_SA += world.discount**2 * (world.transition_SAS @ variance_S)\n        by_action", "inner_SA += world.discount * (world.transition_SAS @ variance_S)\n        by_action", ROBUST),
    Mutant("exact-mdp-bonus-forgotten", _MDP, "ahead_S = world.tables.bonus_S + world.discount", "ahead_S = world.discount", MDP),
    Mutant("exact-mdp-cross-term-once", _MDP, "+ 2 * bonus_S * discount * first_S", "+ bonus_S * discount * first_S", MDP),
    Mutant("exact-mdp-additive-noise-unweighted", _MDP, "inner_SA += weight_SA**2 * world.noise_variance_SA()", "inner_SA += world.noise_variance_SA()", MDP),
    Mutant("exact-mdp-heads-and-tails-swapped", _MDP, "[chance_L * head_L, chance_L * (1 - head_L)]", "[chance_L * (1 - head_L), chance_L * head_L]", MDP),
    # Ratios and abstract chains.
    Mutant("exact-dice-start-not-normalized", _DICE, "start_X = (1.0 - discount) * (start_S", "start_X = (start_S", DICE),
    Mutant("exact-dice-start-without-policy", _DICE, "(start_S[:, None] * pi_SA).ravel()", "(start_S[:, None] * data_SA).ravel()", DICE),
    Mutant("exact-dice-follows-the-data-policy", _DICE, ".reshape(-1, states, 1) * pi_SA", ".reshape(-1, states, 1) * data_SA / data_SA.sum(-1, keepdims=True).clip(1e-300)", DICE),
    Mutant("exact-dice-marginals-without-action", _DICE, '[..., None] * _divided("mu", pi_SA, mu_SA)', "[..., None] * np.ones_like(pi_SA)", MDP),
    Mutant("exact-chain-counts-not-discounted", _DICE, "world.discount**steps_T1 if discounted_counts else 1.0", "1.0", CHAIN),
    Mutant("exact-chi2-inverted", _DICE, '_divided("base", occupancy_X, base_X) * occupancy_X', '_divided("base", base_X, occupancy_X) * base_X', PROXY),
    # Operators and value learning.
    Mutant("exact-retrace-trace-not-clipped", _FIXED, "lam * np.minimum(mu_SA, pi_SA)", "lam * mu_SA", TRACE),
    Mutant("exact-fqe-sum-for-mean", _FIXED, "next_XS = (joint_SAS / seen_SA1 * live_S)", "next_XS = (joint_SAS * live_S)", FITTED),
    Mutant("exact-baird-feature", _VALUE, "feature_SF[6, 6:] = 1.0, 2.0", "feature_SF[6, 6:] = 2.0, 1.0", TARGET),
    Mutant("exact-expectile-sides-swapped", _VALUE, "(tau * high_K + (1 - tau) * low_K)", "(tau * low_K + (1 - tau) * high_K)", EXPECTILE),
    # Bandits.
    Mutant("exact-bandit-context-variance-lost", _BANDIT, "(noise_S + within_S)) + across", "(noise_S + within_S))", BANDIT),
    Mutant("exact-bandit-model-under-mu", _BANDIT, "center_S = (law.pi_SA * model_SA)", "center_S = (law.mu_SA * model_SA)", BANDIT),
    Mutant("exact-bandit-noise-weighted-once", _BANDIT, "law.mu_SA * weight_SA**2 * law.variance_SA", "law.mu_SA * weight_SA * law.variance_SA", BANDIT),
    Mutant("exact-bandit-multinomial-without-order", _BANDIT, "- special.gammaln(count_RK + 1).sum(axis=-1)", "- 0 * special.gammaln(count_RK + 1).sum(axis=-1)", BANDIT),
    Mutant("exact-bandit-mips-pairs-twice", _BANDIT, "* pairs_SE).sum() / 2)", "* pairs_SE).sum())", BANDIT),
    # Flows and limits.
    Mutant("exact-flow-without-normalizer", _FLOWS, "return lambda log_pi_A: drift_A - total * np.exp(log_pi_A)", "return lambda log_pi_A: drift_A - 0 * np.exp(log_pi_A)", FLOWS),
    Mutant("exact-asymre-sign-of-delta", _FLOWS, "- float(mu_A @ reward_A) - delta_v)", "- float(mu_A @ reward_A) + delta_v)", FLOWS),
    Mutant("exact-asymre-level-may-be-negative", _FLOWS, "max(float(level_A[size]), 0.0)", "float(level_A[0])", FLOWS),
    Mutant("exact-asymre-collapse-at-zero", _FLOWS, "return -float(optimize.brentq(excess, 0.0, span, xtol=1e-15))", "return -1e-9", FLOWS),
    Mutant("exact-topr-failures-unclipped", _FLOWS, "np.clip(pi_A / mu_A, a_minus, b_minus)", "np.clip(pi_A / mu_A, 0.0, b_minus)", FLOWS),
    Mutant("exact-oapl-mean-for-log-mean-exp", _FLOWS, "return reward_A - log_mean_exp(mu_A, reward_A, beta1)", "return reward_A - float(mu_A @ reward_A)", FLOWS),
    Mutant("exact-oapl-anchor-without-beta", _FLOWS, "(adv_A - beta * (log_pi_A - np.log(mu_A)))", "(adv_A - (log_pi_A - np.log(mu_A)))", FLOWS),
    Mutant("exact-oapl-own-sample-left-out", _FLOWS, "np.concatenate([own_N[:, None], others_NG], axis=-1) / beta1", "others_NG / beta1", FLOWS),
    Mutant("exact-chain-walk-is-coherent", "analysis/experiments/weights/ess_theory.py", "np.asarray(2.0 * heads_M - lag,", "np.asarray(0.0 * heads_M + lag,", GROWTH),
    Mutant("exact-chain-variance-of-one-token", "analysis/experiments/weights/ess_theory.py", "np.broadcast_to(np.log(pi_SA / mu_SA), (length,", "np.broadcast_to(np.log(pi_SA / mu_SA) / length, (length,", GROWTH),
)  # fmt: skip
