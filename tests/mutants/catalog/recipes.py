"""Bugs planted in the loop, the recipes and what they remember."""

from mutants.mutant import Mutant

LEARNER, MIXING = "testbed/training/learner.py", "testbed/training/replay_buffer.py"
SELECT = "testbed/data/select.py"
COMPOSITION, LOOP = "testbed/recipes/composition.py", "testbed/training/update.py"
STEP, KEPT = "testbed/anchors/stateless_anchors.py", "testbed/anchors/weight_anchors.py"
TESTS = "tests/unit/training/test_learner.py"

MUTANTS = (
    Mutant("recipe-mhpo-without-its-scales", "testbed/recipes/clipped.py", '"mhpo", "sequence_mean", objective_args=args', '"mhpo", "sequence_mean"', "tests/unit/objectives/test_objectives_smooth.py -k recipe"),
    Mutant("recipe-ewma-not-debiased", KEPT, "self.total_CP / self.weight", "self.total_CP", TESTS),
    Mutant("recipe-ewma-forgets-the-start", KEPT, "self.total_CP, self.weight = theta_CP.detach(), 1.0", "self.total_CP, self.weight = 0 * theta_CP.detach(), 0.0", TESTS),
    Mutant("recipe-reference-moves", LEARNER, "self._logp(self.teacher.weights(theta_CP), ", "self._logp(0 * theta_CP + 1, ", TESTS),
    Mutant("recipe-reference-stays-after-hand-over", LEARNER, "if not self.keeps_teacher:", "if False:", TESTS),
    Mutant("recipe-hand-over-one-step-late", LEARNER, "step == later.step", "step == later.step + 1", TESTS),
    Mutant("recipe-anchor-is-behavior", STEP, '"current": Recomputed', '"current": Behavior', TESTS),
    Mutant("recipe-demonstration-keeps-a-ratio", LEARNER, "torch.where(expert_CB1, logp_CBT, rollout.logp_mu_RBT)", "rollout.logp_mu_RBT", TESTS),
    Mutant("recipe-lost-replica-stops-the-pack", LEARNER, "torch.where(finite_C11, logp_CBT.detach(), mu_CBT)", "logp_CBT.detach()", TESTS),
    Mutant("recipe-history-in-reverse", LEARNER, "[self.baselines_CK[:, 1:], mean_C1", "[self.baselines_CK[:, :-1], mean_C1", TESTS),
    Mutant("recipe-dual-variable-of-any-objective", "testbed/recipes/composition.py", '"dual" not in objective[self.objective].promises', "False", "tests/unit/training/test_learner.py -k dual"),
    Mutant("recipe-sequence-norm-of-a-token", "testbed/training/signal_providers.py", "world.logp(leaf_CP, rollout).sum(-1)", "world.logp(leaf_CP, rollout)[..., 0]", TESTS),
    Mutant("recipe-replay-of-the-fresh-batch", MIXING, "stack(chosen), count, REPLAY", "fresh, count, REPLAY", TESTS),
    Mutant("recipe-replay-without-mark", SELECT, "torch.full_like(other.reward_RB, origin, dtype=torch.int64)", "with_origin(other).origin_RB", TESTS),
    Mutant("recipe-replay-cuts-sequences-not-groups", SELECT, "index_RN[..., None] * first.group + member_G", "index_RN[..., None] + member_G", TESTS),
    Mutant("recipe-buffer-never-forgets", MIXING, "deque(maxlen=replay.window)", "deque()", TESTS),
    Mutant("recipe-terms-ignored", COMPOSITION, "loss_RBT + term.at(step, steps) * added", "loss_RBT", TESTS),
    Mutant("recipe-term-without-schedule", COMPOSITION, "self.coefficient(step, steps) if callable", "self.coefficient(0, steps) if callable", TESTS),
    Mutant("recipe-schedule-ignored", COMPOSITION, "{**dict(self.objective_args), **scheduled}", "dict(self.objective_args)", TESTS),
    Mutant("recipe-dynamic-sampling-keeps-equal-groups", COMPOSITION, "group_max(reward, group) > -group_max(-reward, group)", "group_max(reward, group) >= -group_max(-reward, group)", TESTS),
    Mutant("recipe-proxy-pays-for-the-norm", COMPOSITION, '.get("norm") == "proxy"', '.get("norm") == "none"', TESTS),
    Mutant("recipe-ess-rule-ignored", COMPOSITION, "rule=self.ess_rule", 'rule="sqrt"', TESTS),
    Mutant("recipe-trust-region-ignored", COMPOSITION, "factor_R * trust_region_factor(", "factor_R + 0 * trust_region_factor(", TESTS),
    Mutant("recipe-one-pass-only", LOOP, "range(max(learner.recipe.passes for learner in self.learners))", "range(1)", TESTS),
    Mutant("recipe-never-repositions", LOOP, "pass_index == learner.recipe.passes - 1 and", "pass_index == learner.recipe.passes and", TESTS),
    Mutant("recipe-repositions-the-wrong-way", LOOP, "torch.lerp(start_RP[rows], theta_RP[rows],", "torch.lerp(theta_RP[rows], start_RP[rows],", TESTS),
    Mutant("recipe-later-passes-make-new-batches", LOOP, "update = self.later_pass(theta_RP, rollout, update.batches, step, pass_index)", "update = self.first_pass(theta_RP, rollout, step)", TESTS),
    Mutant("recipe-score-norm-sign", "testbed/policies/tabular.py", "1 - 2 * pi_RBT", "1 + 2 * pi_RBT", TESTS),
    Mutant("recipe-toy-score-norm-without-square", "testbed/policies/toy/transformer.py", ".exp().square().sum(1)", ".exp().sum(1)", TESTS),
    Mutant("recipe-greedy-takes-the-least", "testbed/policies/toy/sampler.py", "law_RVB.argmax(1)", "law_RVB.argmin(1)", TESTS),
)  # fmt: skip
