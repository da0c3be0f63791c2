"""Bugs planted in ALP's perturbed numerator."""

from mutants.mutant import Mutant

POLICY, WORLD, LOOP = "testbed/worlds/perturbed.py", "testbed/worlds/tokens.py", "testbed/training/update.py"
BASE = "testbed/policies/base.py"
TESTS = "tests/unit/worlds/test_perturbed.py"

MUTANTS = (
    Mutant("perturbed-entropy-reads-sigma", BASE, "self.policy.entropy(self.weights(theta_RP), where", "self.policy.entropy(theta_RP, where", TESTS),
    Mutant("perturbed-sigma-is-its-log", POLICY, "log_sigma_RK[:, k, None, None].exp()", "log_sigma_RK[:, k, None, None]", TESTS),
    Mutant("perturbed-one-size-for-all", POLICY, "log_sigma_RK[:, k, None, None]", "log_sigma_RK[:, 0, None, None]", TESTS),
    Mutant("perturbed-sigma-not-learned", POLICY, "log_sigma_RK[:, k, None, None].exp()", "log_sigma_RK[:, k, None, None].exp().detach()", TESTS),
    Mutant("perturbed-same-noise-in-all-layers", POLICY, 'draw.normal("alp", k,', 'draw.normal("alp", 0,', TESTS),
    Mutant("perturbed-halves-swapped", POLICY, '"first": (0, count // 2)', '"first": (count // 2, count)', TESTS),
    Mutant("perturbed-logits-stay-quiet", "testbed/policies/toy/transformer.py", "self.temperature, self.hidden)", "self.temperature)", TESTS),
    Mutant("perturbed-passes-share-noise", POLICY, "step * MOST_PASSES + pass_index", "step * MOST_PASSES", TESTS),
    Mutant("perturbed-steps-overlap", POLICY, "step * MOST_PASSES + pass_index", "step + turn", TESTS),
    Mutant("perturbed-penalty-pulls-down", POLICY, "- 2 * BETA * log_sigma_RK", "+ 2 * BETA * log_sigma_RK", TESTS),
    Mutant("perturbed-penalty-of-sigma", POLICY, "(2 * log_sigma_RK).exp()", "log_sigma_RK.exp()", TESTS),
    Mutant("perturbed-cells-share-seeds", WORLD, "loss_noise_draw(self.seeds,", "loss_noise_draw(tuple(range(len(self.seeds))),", TESTS),
    Mutant("perturbed-loop-reads-the-policy", LOOP, "self.world.loss_logp(leaf_RP, rollout, step, pass_index=0)", "self.world.logp(leaf_RP, rollout)", TESTS),
    Mutant("perturbed-no-penalty", LOOP, "if penalty_R is None else loss_R + penalty_R", "if True else loss_R + penalty_R", TESTS),
)  # fmt: skip
