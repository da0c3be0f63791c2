"""Bugs planted in the oracle on token trees; M13 to M15 are refuted by a claim."""

from mutants.mutant import Mutant

TREE = "tests/unit/exact/test_exact_tree.py"
CLI = "tests/unit/cli/test_cli_exact.py"
OURS = (
    "gradient-of-ratios-two or gradient-only-three or gradient-bias-is-state or baseline-free-only or "
    "optimal-baseline-excess or group-mean-scales or group-std-scales or geometric-ratio-tilts or "
    "prefix-ratio-variance or max-at-k-unbiased"
)
CLAIMS = f"tests/experiments/test_claims_exact.py -k '{OURS}'"

MUTANTS = (
    Mutant("m13-token-ratio-for-prefix", "testbed/losses/ratios.py", "return log_token(logp_BT, batch, base).cumsum(-1)", "return log_token(logp_BT, batch, base)", CLAIMS),
    Mutant("m14-gspo-mean-of-ratios", "testbed/losses/ratios.py", "return _at_tokens(log_w_B1 / length_B1, batch.mask_BT)", "return _at_tokens((log_token(logp_BT, batch, base).exp() * batch.mask_BT).sum(-1, keepdim=True).div(length_B1).log(), batch.mask_BT)", CLAIMS),
    Mutant("m15-clipped-baseline-called-free", "testbed/exact/gradient_facts.py", "return bool(_relative(self.shift_SA, self.target_SA) < 1e-9)", "return True", CLAIMS),
    Mutant("m15-baseline-left-out-under-clipping", "testbed/exact/report.py", 'shift = baseline if signal == "R-b" else 0.0', "shift = 0.0", CLAIMS),
    Mutant("exact-tree-samples-from-target", "testbed/exact/report.py", "self.leaves.probability(self.mu_SA)", "self.leaves.probability(self.pi_SA)", CLAIMS),
    Mutant("exact-tree-continuation-of-mu", "testbed/exact/report.py", '"pi": tree.action_values(self.pi_SA)}', '"pi": tree.action_values(self.mu_SA)}', CLAIMS),
    Mutant("exact-tree-score-norm-without-square", "testbed/exact/report.py", "1.0 - 2.0 * token_pi_LT + self.square_S[self.leaves.state_LT]", "1.0 - token_pi_LT", TREE),
    Mutant("exact-tree-second-moment-called-variance", "testbed/exact/report.py", "variance=bench.second_moment(weight_LT) - float((mean_SA**2).sum())", "variance=bench.second_moment(weight_LT)", TREE),
    Mutant("exact-tree-best-baseline-forgets-the-mean", "testbed/exact/report.py", "cross = bench.second_moment(unit_LT, reward_LT) - float((mean_SA * signal_SA).sum())", "cross = bench.second_moment(unit_LT, reward_LT)", TREE),
    Mutant("exact-tree-coordinate-square", "testbed/exact/report.py", "taken_SA * (1.0 - 2.0 * pi)", "taken_SA * (1.0 - pi)", CLAIMS),
    Mutant("exact-tree-single-precision-divisor", "testbed/exact/report.py", "return mask_BT.double() / mask_BT.shape[-2]", "return mask_BT / mask_BT.shape[-2]", CLAIMS),
    Mutant("exact-tree-aggregation-ignored", "testbed/exact/report.py", "weight = weight * _divisor(batch.mask_BT, aggregation)", "weight = weight * _divisor(batch.mask_BT, None)", TREE),
    Mutant("exact-tree-linearity-unchecked", "testbed/exact/report.py", "for scale in (-1.0, 2.5):", "for scale in (2.5,):", TREE),
    Mutant("exact-tree-clip-swallows-suffix", "testbed/exact/report.py", '"suffix": both - moved, "clipping": mean_SA - both', '"suffix": both - both, "clipping": mean_SA - moved', CLAIMS),
    Mutant("exact-tree-prompts-count-once-each", "testbed/exact/tree.py", "np.exp(self.log(pi_SA).sum(-1)) / (self.prompt_L[-1] + 1)", "np.exp(self.log(pi_SA).sum(-1))", TREE),
    Mutant("exact-tree-end-token-shifts-branches", "testbed/exact/tree.py", "place_A[tree.going] = np.arange(tree.going.size)", "place_A = np.arange(tree.actions)", TREE.replace(".py", ".py -k 'leaves or weights'")),
    Mutant("exact-tree-zero-probability-passes", "testbed/exact/tree.py", "if np.any(law_SA == 0):", "if False:", TREE),
    Mutant("exact-tree-size-unchecked", "testbed/exact/tree.py", "leaves * length > MOST_TOKENS or leaves * 2 > MOST_ENTRIES", "leaves > 2**62", TREE.replace(".py", ".py -k bad_input")),
    Mutant("exact-tree-kl-the-other-way", "testbed/exact/tree.py", "kl_pi_mu=float(found.kl_pi_mu)", "kl_pi_mu=float(found.kl_mu_pi)", TREE),
    Mutant("exact-tree-token-ess-of-sequences", "testbed/exact/tree.py", "found.mean_rho_token**2 / found.second_moment_token", "found.mean_rho_token**2 / found.second_moment", TREE),
    Mutant("exact-group-no-cross-terms", "testbed/exact/group.py", "total_R += pair_R if i == j else 2.0 * pair_R", "total_R += pair_R if i == j else 0.0 * pair_R", TREE),
    Mutant("exact-group-cross-terms-everywhere", "testbed/exact/group.py", "np.where(meet, weight[:, i]", "np.where(meet | True, weight[:, i]", TREE),
    Mutant("exact-group-mixes-prompts", "testbed/exact/group.py", "index_RB = index_Rn + prompt * each", "index_RB = index_Rn", TREE),
    Mutant("exact-transformer-prefix-twice", "testbed/exact/transformer.py", "(place_LT[:, t : T - 1] == 0).all(-1)", "True", TREE),
    Mutant("exact-transformer-token-of-another-number", "testbed/exact/transformer.py", "going[place_LT[rows]]", "place_LT[rows]", TREE),
    Mutant("exact-cli-baseline-ignored", "testbed/cli/exact.py", 'baseline=given["baseline"], **common', "baseline=0.0, **common", CLI),
    Mutant("exact-cli-drift-ignored", "testbed/cli/exact.py", 'random_policies(tree, given["drift"], given["seed"])', 'random_policies(tree, 0.3, given["seed"])', CLI),
    Mutant("exact-figure-stacks-over-each-other", "paper_figs/bias_split.py", "width = table[name].to_numpy(dtype=float)", "width = np.abs(table[name].to_numpy(dtype=float)) + 0.01", CLI),
)  # fmt: skip
