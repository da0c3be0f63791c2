"""Bugs under the claims that judge systems of the literature."""

from analysis.planted_bugs.bug import Bug

VALUES = "testbed/exact/value_learning.py"
LINEAR = "testbed/offline/linear.py"
OFFLINE = "testbed/offline/"
TABULAR, OFFLINE_MODELS, PREFERENCES, CONSTRAINED = (
    f"{OFFLINE}{name}.py" for name in ("tabular", "models", "preferences", "constrained")
)
UPDATE, STEPS, STEP_RATIOS, TWO_REWARDS, PROXY = (
    f"testbed/exact/{name}.py"
    for name in ("bandit_update", "policy_steps", "step_ratios", "two_rewards", "proxy_optimization")
)
IMPERFECT, OBJECTIVES = OFFLINE + "imperfect_rewards.py", "testbed/objectives/"
PREFIXES = "testbed/exact/prefixes.py"
DISTILL, SFT, DRAFTS = (
    f"testbed/{name}.py"
    for name in ("objectives/terms/f_distillation", "objectives/terms/distillation", "exact/speculative")
)

PLANTED = (
    # Pipelines by model size, load and route to old log-probabilities.
    Bug("the-gain-of-splitting-grows-with-the-model-where-exchanges-are-slow", "testbed/pipeline/closed_forms.py", "return max(generation_time(design), train_time(design))", "return generation_time(design) + train_time(design)"),
    Bug("most-of-the-gain-of-splitting-is-that-nobody-waits", "testbed/pipeline/closed_forms.py", "return design.tau_0 * found.batch + ", "return design.tau_0 * found.mean + "),
    Bug("a-shared-prompt-saves-its-copies", "testbed/policies/toy/transformer.py", "time[Q:].repeat_interleave(G).repeat(N)", "time[Q:].repeat(G).repeat(N)"),
    # Replay control, linear TD, continuous actions.
    Bug("layer-norm-bounds-the-l2-that-stabilizes-td", LINEAR, "np.sqrt((centered_xK**2).mean(-1, keepdims=True) + epsilon))", "((centered_xK**2).mean(-1, keepdims=True) + epsilon))"),
    Bug("layer-norm-bounds-the-l2-that-stabilizes-td", LINEAR, "return max(0.0, td.td_abscissa())", "return 0.8 * max(0.0, td.td_abscissa())"),
    Bug("layer-norm-alone-does-not-remove-divergence", LINEAR, "np.sqrt((centered_xK**2).mean(-1, keepdims=True) + epsilon))", "np.sqrt((centered_xK**2).sum(-1, keepdims=True) + epsilon))"),
    Bug("realizable-td-is-exact-without-noise-though-incomplete", LINEAR, "feature_RSAF - discount * ahead_RSAF)", "feature_RSAF - ahead_RSAF)"),
    Bug("sampled-refreshes-are-powers-of-the-radius", LINEAR, "(step % inner_R == 0)[:, None]", "(step % inner_R == inner_R - 1)[:, None]"),
    Bug("a-wide-network-is-stabilized-by-a-long-period", VALUES, "return _radius(np.asarray(np.linalg.solve(self.covariance_FF, self.bootstrap_FF)", "return _radius(np.asarray(np.linalg.solve(self.covariance_FF, 0.99 * self.bootstrap_FF)"),
    Bug("density-scores-ascend", "testbed/offline/continuous.py", "(kernel_RSN * away_RSN).sum(-1) / h_a**2", "(kernel_RSN * away_RSN).sum(-1) * 3 / h_a**2"),
    # Offline tables, constrained worlds, logged bandits, preference sets, compounding errors.
    Bug("iql-runs-from-mu-to-the-best-supported-value", TABULAR, "tau_R1 = np.broadcast_to(np.asarray(tau, np.float64)", "tau_R1 = np.broadcast_to(0.5 * np.asarray(tau, np.float64)"),
    Bug("iql-runs-from-mu-to-the-best-supported-value", TABULAR, "    tau_R1 = np.broadcast_to(", "    mu_RSA = np.maximum(mu_RSA, 0.01)\n    tau_R1 = np.broadcast_to("),
    Bug("iql-policy-takes-logged-actions-alone", TABULAR, "logit_RSA = np.log(mu_RSA) +", "logit_RSA = np.log(np.maximum(mu_RSA, 1e-3)) +"),
    Bug("filtered-cloning-never-loses", TABULAR, "np.where(best_RSA, mu_RSA, 0.0)", "np.where(best_RSA, 0.0, mu_RSA)"),
    Bug("per-state-budgets-bound-the-value-from-above", TABULAR, "middle_RS), mu_RSA) <= budget_RS", "middle_RS), mu_RSA) <= 2 * budget_RS"),
    Bug("best-of-n-improves-within-its-kl", TABULAR, "1.0) ** n_R11", "1.0) ** (2 * n_R11)"),
    Bug("value-consistency-gradient-is-the-derivative", OFFLINE_MODELS, "np.swapaxes(resolvent_RSS, -1, -2), pull_RS", "resolvent_RSS, pull_RS"),
    Bug("choices-identify-rewards", OFFLINE_MODELS, "return log_RSA + value_RS1 - discount", "return log_RSA + value_RS1 + discount"),
    Bug("confounding-averages-out-to-the-world", "envs/offline.py", "+ hidden * u_X[:, None] * pull_A[::-1]", "+ hidden * u_X[:, None] * (1 + z_X[:, None]) * pull_A[::-1]"),
    Bug("constrained-optimum-mixes-at-most-one-state", CONSTRAINED, "- discount * moves_SAS.reshape", "- 0.9 * discount * moves_SAS.reshape"),
    Bug("trajectory-guardian-is-the-zero-budget-optimum", CONSTRAINED, "dead_RS = bad_S |", "dead_RS = np.roll(bad_S, 1) | bad_S |"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "(special.expit(m_RSAA) - label_RSAA)", "(special.expit(m_RSAA) - (label_RSAA > 0.5))"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "(voted_K + prior) / (votes + 2 * prior)", "(voted_K + prior) / (votes + prior)"),
    Bug("margin-selection-keeps-its-share-of-the-largest", PREFERENCES, "np.argsort(-key_RX", "np.argsort(key_RX"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "slope_RSAA = beta_R111 * (special.expit", "slope_RSAA = 1.0 * (special.expit"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "pull_RSAA.sum(-1) - pull_RSAA.sum(-2)", "pull_RSAA.sum(-1)"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "second_RSA[..., None, :])", "first_RSA[..., None, :])"),
    Bug("pair-losses-have-their-closed-forms", PREFERENCES, "reward_xA / beta", "reward_xA * beta"),
    Bug("errors-compound-quadratically-without-recovery", OFFLINE + "imitation.py", "error_x11 = np.asarray", "error_x11 = 2 * np.asarray"),
    # Prefixes, retries, steps, classes of answers.
    Bug("tree-order-adds-nothing-to-the-mean", "testbed/advantages/tree_opo.py", "broken_BB = pair_BB & (gap_BB < delta)", "broken_BB = pair_BB & (gap_BB < 2)\n    delta = 2.0"),
    Bug("a-stage-has-its-own-value", PREFIXES, "suffix_KT = time_T >= np.arange", "suffix_KT = time_T > np.arange"),
    Bug("silent-groups-rise-over-staged-training", PREFIXES, "* pi * centered_SA", "* pi * -centered_SA"),
    Bug("staged-groups-saturate", "testbed/advantages/grouped.py", "return group_centered(signals.reward_B, signals.group_B)", "return signals.reward_B - 0.5"),
    # Turns, critics, roles and controllers.
    # Teachers, experts and own successes.
    Bug("f-distillation-has-the-gradient-of-its-divergence", DISTILL, "(-log_r_BT).exp() * slope_BT", "slope_BT"),
    Bug("f-distillation-has-the-gradient-of-its-divergence", DISTILL, "torch.zeros_like(log_rho_BT)).exp() * own_BT", "torch.zeros_like(log_rho_BT)).exp()"),
    Bug("reverse-seeks-one-mode-forward-covers-both", DISTILL, "slope_BT = SLOPES[divergence]", "slope_BT = 0 * SLOPES[divergence]"),
    Bug("off-policy-distillation-errs-faster-with-length", DISTILL, "log_r_BT = -log_token(", "log_r_BT = log_token("),
    Bug("draft-acceptance-is-one-minus-total-variation", DRAFTS, "np.minimum(target_xV, draft_xV).sum(-1)", "np.maximum(target_xV, draft_xV).sum(-1)"),
    Bug("draft-acceptance-is-one-minus-total-variation", DRAFTS, "np.maximum(target_xV - draft_xV, 0.0)", "np.maximum(draft_xV - target_xV, 0.0)"),
    Bug("private-noise-follows-its-accountant", SFT, "return -logp_BT", "return logp_BT.square()"),
    # Imperfect rewards, posterior losses, regimes of weights.
    Bug("probability-not-ratio-decides-the-entropy", UPDATE, "surprise_A = np.log(pi) - pi @ np.log(pi)", "surprise_A = np.log(pi)"),
    Bug("mhpo-weight-is-bounded-and-smooth", OBJECTIVES + "smooth/mhpo.py", "(psi_BT - grown_BT - shrunk_BT).exp()", "(psi_BT - shrunk_BT).exp()"),
    Bug("power-mean-spreads-most-evenly-at-zero", OBJECTIVES + "clipped/holder.py", "power_BT.softmax(-1).to(log_u_BT.dtype)", "(power_BT / 2).softmax(-1).to(log_u_BT.dtype)"),
    Bug("the-bounded-step-is-monotone", STEPS, "1.0 + eps * (1.0 - 2.0", "1.0 + 0.5 * eps * (1.0 - 2.0"),
    Bug("the-bounded-step-is-monotone", STEPS, "(np.cumsum(mass_SA, axis=-1) >= 0.5)", "(np.cumsum(mass_SA, axis=-1) >= 0.7)"),
    Bug("ensembles-keep-what-members-agree-on", "testbed/worlds/verifiers.py", "return np.asarray(reward_KSA.min(0))", "return np.asarray(reward_KSA.max(0))"),
    Bug("ensembles-keep-what-members-agree-on", "testbed/worlds/verifiers.py", "reward_KSA.mean(0) - penalty * spread_SA", "reward_KSA.mean(0) + penalty * spread_SA"),
    Bug("filtered-laws-are-those-of-a-drawn-group", IMPERFECT, "best_of_n(pi_SA[None], -score_SA[None], group)", "best_of_n(pi_SA[None], -score_SA[None], 1)"),
    Bug("false-positives-cap-what-a-filter-reaches", IMPERFECT, "(1 - right_SA) * false_positive_SA", "false_positive_SA / 2"),
    Bug("orpo-optimum-meets-the-proxy-bound", PROXY, "(d_SA**2 / _occupancy(world, base_SA)).sum() - 1", "(d_SA**2 / _occupancy(world, base_SA)).sum() - 0.9"),
    Bug("penalized-rewards-have-the-gradient-of-the-penalty", PROXY, "- strength * ratio_SA / root", "- strength * ratio_SA / root / 2"),
    Bug("own-sample-shrinks-a-moving-average", IMPERFECT, "(1 - decay) * (own + (batch - 1) * mean) / batch", "(1 - decay) * mean"),
    Bug("drawn-ratios-have-the-laws-of-their-steps", STEP_RATIOS, "far_1T / (2 * sigma_T**2)", "far_1T / sigma_T**2"),
    Bug("joint-ends-are-on-the-true-front-at-every-weight", TWO_REWARDS, 'if how == "joint" else reward_NRG', 'if how == "decoupled" else reward_NRG'),
    Bug("dpo-rests-at-the-posterior-only-by-drawn-labels", "testbed/offline/preferences.py", "(special.expit(m_RSAA) - label_RSAA)", "(special.expit(m_RSAA) - 0.9 * label_RSAA)"),
    Bug("a-gap-below-the-seed-spread-takes-dozens-of-seeds", "testbed/testing/t_test_seeds.py", "stats.t.ppf(1 - alpha / 2, seeds - 1)", "stats.t.ppf(1 - alpha, seeds - 1)"),
    Bug("own-sample-shrinks-a-moving-average", IMPERFECT, "(policy(level) * mean_SAK).sum() / states", "(policy(level) * mean_SAK).sum() / states / 2"),
)  # fmt: skip
