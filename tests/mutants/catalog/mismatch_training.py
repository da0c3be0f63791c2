"""Bugs planted where an engine meets the training loop, in precision on both sides, and in the claims."""

from mutants.mutant import Mutant

TESTS = "tests/unit/mismatch/test_mismatch_training.py"
PRECISION_TESTS = "tests/unit/mismatch/test_precision.py"
CLAIM_TESTS = "tests/experiments/test_claims_mismatch_training.py"
EXACT = "tests/experiments/test_claims_exact.py -k 'all-drift or variances-add-only or fresh-noise or lag-log-ratio or lag-times-rate'"
ENGINES, LAWS = "testbed/mismatch/__init__.py", "testbed/mismatch/distributions.py"
GENERATION, PRECISION = "testbed/worlds/generation.py", "testbed/worlds/rounded.py"
TABULAR, TOKENS = "testbed/worlds/tabular.py", "testbed/worlds/tokens.py"
BY_AGE, BASE = "testbed/staleness/by_age.py", "testbed/policies/base.py"
CLAIMS, GROWTH, FP8, RATE = (
    f"analysis/experiments/{name}.py"
    for name in (
        "engines/mismatch_staleness",
        "engines/mismatch_growth",
        "engines/fp8_training",
        "lag/lag_times_rate",
    )
)

MUTANTS = (
    Mutant("mismatchrun-identity-law-stays", LAWS, "distribution=None if temperature == 1 else distribution", "distribution=distribution", TESTS),
    Mutant("mismatchrun-exact-law-of-the-policy", TABULAR, "engine.probabilities(behavior.weights_XP, step, behavior.past_XP)", "self.policy.probabilities(behavior.weights_XP)", TESTS),
    Mutant("mismatchrun-exact-law-of-another-batch", TABULAR, "probabilities(behavior.weights_XP, step, behavior.past_XP)", "probabilities(behavior.weights_XP, step + 1, behavior.past_XP)", TESTS),
    Mutant("mismatchrun-generates-without-the-step", TABULAR, "behavior.probabilities(theta_XP, step, past_XP).reshape", "behavior.probabilities(theta_XP, 0, past_XP).reshape", TESTS),
    Mutant("mismatchrun-tokens-without-the-step", TOKENS, "start.group, uniform_XBT, step, past_XP", "start.group, uniform_XBT, 0, past_XP", TESTS),
    Mutant("mismatchrun-parts-draw-the-same-noise", ENGINES, "(1, self.slices) if not self.shared", "(self.slices, 1) if not self.shared", TESTS),
    Mutant("mismatchrun-parts-draw-their-own-tables", ENGINES, "else (self.slices, 1)", "else (1, self.slices)", TESTS),
    Mutant("mismatchrun-noise-by-place-in-the-pack", ENGINES, "key_R = rng.keys(self.seeds,", "key_R = rng.keys(tuple(range(len(self.seeds))),", TESTS),
    Mutant("mismatchrun-joined-engines-lose-arguments", ENGINES, "for key in part.defaults if key in hyper", "for key in part.defaults if key in ()", TESTS),
    Mutant("mismatchrun-joined-engines-take-anything", ENGINES, "if strange := sorted(set(hyper) - known)", "if strange := sorted(set(hyper) - known - known)[:0]", TESTS),
    Mutant("mismatchrun-past-not-refused", "testbed/staleness/__init__.py", "if past and not", "if False and not", TESTS),
    Mutant("mismatchrun-past-of-no-age", BY_AGE, "(version_RY - self.past).clamp(min=0)", "version_RY.clamp(min=0)", TESTS),
    Mutant("mismatchrun-past-unknown-to-the-exact-law", BY_AGE, ".flatten(0, 1), self.slices, past_XP)", ".flatten(0, 1), self.slices)", TESTS),
    Mutant("mismatchrun-past-not-kept", BY_AGE, "plan.depth + self.past", "plan.depth", TESTS),
    Mutant("mismatchrun-past-stays-with-groups-that-left", "testbed/staleness/too_old.py", "behavior.past_XP[whole_Y]", "behavior.past_XP", TESTS),
    Mutant("mismatchrun-past-not-recorded", TABULAR, "rollout.split(slices), step, past_XP)", "rollout.split(slices), step, theta_XP)", TESTS),
    Mutant("mismatchrun-layers-on-a-table", GENERATION, '(made.forward is not None or "layers" in needs)', "False", TESTS),
    Mutant("mismatchrun-law-on-hf-not-refused", GENERATION, 'run.policy == "hf" and made.forward is not None', "False", TESTS),
    Mutant("mismatchrun-engines-not-checked-by-policy", "testbed/execution/preflight.py", "_distinct(cells, fields)", "tuple(cells)[:1]", TESTS),
    Mutant("mismatchrun-precision-of-the-sampler-only", BASE, "self.policy.logp(self.weights(theta_RP), where", "self.policy.logp(theta_RP, where", PRECISION_TESTS),
    Mutant("mismatchrun-precision-of-the-trainer-only", BASE, "self.policy.sample(self.weights(theta_RP), prompt_RNQ", "self.policy.sample(theta_RP, prompt_RNQ", PRECISION_TESTS),
    Mutant("mismatchrun-precision-without-activations", PRECISION, "policy if rounding.forward is None else rounding.forward(policy, self.draw)", "policy", PRECISION_TESTS),
    Mutant("mismatchrun-precision-of-the-base-model", TOKENS, "self.policy.full_precision", "self.policy", PRECISION_TESTS),
    Mutant("mismatchrun-precision-that-draws", PRECISION, 'p.get("stochastic") or ', "", PRECISION_TESTS),
    Mutant("mismatchrun-precision-of-a-law", PRECISION, "made.distribution is not None or ", "", PRECISION_TESTS),
    Mutant("mismatchrun-interaction-sign", CLAIMS, 'value["noise"] + value["lag"] - value["calm"] - value["both"]', 'value["both"] - value["noise"] - value["lag"] + value["calm"]', CLAIM_TESTS),
    Mutant("mismatchrun-control-arm-in-the-claims", CLAIMS, 'table[table["learning_rate"] > 0]', 'table[table["learning_rate"] >= 0]', CLAIM_TESTS),
    Mutant("mismatchrun-exponent-in-base-two", CLAIMS, "/ np.log(4.0)", "/ np.log(2.0)", CLAIM_TESTS),
    Mutant("mismatchrun-slope-not-centered", GROWTH, "centered_L = length_L - length_L.mean()", "centered_L = length_L", CLAIM_TESTS),
    Mutant("mismatchrun-collapse-the-wrong-way", FP8, '(lost[name], lost["full"], note)', '(lost["full"], lost[name], note)', CLAIM_TESTS),
    Mutant("mismatchrun-unified-is-the-fp8-arm", FP8, '"unified": {"mismatch": "off", "policy_args": f"precision={FP8} matrices=all"', '"unified": {"mismatch": "off", "policy_args": "default"', CLAIM_TESTS),
    Mutant("mismatchrun-rates-compared-at-equal-lag", RATE, 'table["learning_rate"] * table["lag"]', 'table["lag"] + 0 * table["learning_rate"]', CLAIM_TESTS),
    Mutant("mismatchrun-claim-noise-is-one-sided", CLAIMS, "size * (2.0 * np.array(corner) - 1.0)", "size * np.array(corner)", EXACT),
    Mutant("mismatchrun-claim-second-moment-without-collisions", CLAIMS, " - (square - 1.0) * (pi_A @ pi_A)", "", EXACT),
    Mutant("mismatchrun-claim-walk-is-coherent", CLAIMS, "walk_A + step_A for walk_A in walks for step_A in steps", "walk_A + steps[0] for walk_A in walks", EXACT),
    Mutant("mismatchrun-mismatch-ignored-by-tables", TABULAR, "behavior.logp(theta_XP, rollout.split(slices), step, past_XP)", "self.logp(theta_XP, rollout.split(slices))", TESTS),
)  # fmt: skip
