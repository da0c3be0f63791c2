"""Bugs planted in the anchors, in how the loop asks them, and in the batch-size rescaling."""

from mutants.mutant import Mutant

STEP, KEPT, LINEAR = (
    "testbed/anchors/stateless_anchors.py",
    "testbed/anchors/weight_anchors.py",
    "testbed/anchors/loglinear.py",
)
DIAL, RESCALE = "testbed/anchors/__init__.py", "testbed/anchors/rescale.py"
LEARNER, LOOP, RECORDER = (
    "testbed/training/learner.py",
    "testbed/training/update.py",
    "testbed/training/recorder.py",
)
TESTS = "tests/unit/anchors/test_anchors.py"
AREAL, INVARIANCE, ANCHORS = (
    f"analysis/experiments/{name}.py" for name in ("lag/areal_lag", "lag/batch_invariance", "engines/anchors")
)
COMPARE, PLANTED = "analysis/judging/claims.py", "tests/experiments/test_anchor_claims.py"

MUTANTS = (
    Mutant("anchor-missing-is-kept-from-the-first-pass", STEP, '    """The weights of every pass."""\n\n    every_pass = True', '    """The weights of every pass."""', TESTS),
    Mutant("anchor-recompute-follows-the-weights", STEP, '    """The weights at the start of the step."""\n', '    """The weights at the start of the step."""\n\n    every_pass = True\n', TESTS),
    Mutant("anchor-snapshot-of-a-demonstration", STEP, "if rollout.origin_RB is None:", "if True:", TESTS),
    Mutant("anchor-snapshot-is-behavior", STEP, "return rollout.logp_trainer_RBT", "return rollout.logp_mu_RBT", TESTS),
    Mutant("anchor-version-one-step-late", KEPT, "max(inputs.step - self.age, 0)", "max(inputs.step - self.age + 1, 0)", TESTS),
    Mutant("anchor-version-forgets", KEPT, "            self.buffer.write(inputs.theta_CP, version)\n", "            self.buffer.newest = version\n", TESTS),
    Mutant("anchor-version-forgets-empty-steps", KEPT, "range(self.buffer.newest + 1, inputs.step + 1)", "(inputs.step,)", TESTS),
    Mutant("anchor-version-beyond-what-is-kept", KEPT, "0 < kept < age + 1", "0 < kept < age - 5", TESTS),
    Mutant("anchor-ewma-not-debiased", KEPT, "self.total_CP / self.weight", "self.total_CP", TESTS),
    Mutant("anchor-ewma-never-moves", LEARNER, "        self.anchor.observe_weights(theta_CP)\n", "        pass\n", "tests/unit/training/test_learner.py -k average"),
    Mutant("anchor-loglinear-from-the-wrong-end", LINEAR, "log_mu_CBT + self.alpha(inputs) * (inputs.logp_CBT - log_mu_CBT)", "inputs.logp_CBT + self.alpha(inputs) * (log_mu_CBT - inputs.logp_CBT)", TESTS),
    Mutant("anchor-loglinear-older-than-the-token", LINEAR, "(passed_BT - age).clamp(min=0)", "(passed_BT - age)", TESTS),
    Mutant("anchor-loglinear-never-fresh", LINEAR, "torch.full_like(within_BT, fresh)", "torch.zeros_like(within_BT)", TESTS),
    Mutant("anchor-loglinear-of-the-first-pass", LINEAR, "    every_pass = True\n", "    every_pass = False\n", TESTS),
    Mutant("anchor-dial-that-nothing-reads", DIAL, 'name != "recipe" and not reads_anchor(recipe)', "False", TESTS),
    Mutant("anchor-dial-ignored", LEARNER, "self.anchor_spec = (runs[0].anchor, runs[0].anchor_args)", "self.anchor_spec = ('recipe', ())", TESTS),
    Mutant("anchor-dial-lost-at-hand-over", LEARNER, 'if self.anchor_spec[0] == "recipe":', "if True:", TESTS),
    Mutant("anchor-hand-over-keeps-the-old-one", LEARNER, 'if self.anchor_spec[0] == "recipe":', "if False:", TESTS),
    Mutant("anchor-lost-replica-stops-later-passes", LEARNER, "logp_CBT = finite_or(logp_CBT, batch.logp_mu_BT)", "logp_CBT = logp_CBT.detach()", TESTS),
    Mutant("anchor-neighbors-passes-reach-the-dual", LOOP, "pass_index == learner.recipe.passes - 1:\n                    learner.end", "pass_index == max(other.recipe.passes for other in self.learners) - 1:\n                    learner.end", TESTS),
    Mutant("anchor-last-pass-is-the-first", RECORDER, "if learner.recipe.passes > 1 and", "if False and", TESTS),
    Mutant("anchor-center-of-mass-stays", RESCALE, "parts * decay / (1 - decay)", "decay / (1 - decay)", TESTS),
    Mutant("anchor-adam-drifts-like-sgd", RESCALE, "math.sqrt(parts)", "parts", TESTS),
    Mutant("anchor-flat-claim-looks-at-lag-16", AREAL, '"recompute").items() if lag <= 8', '"recompute").items() if lag <= 16', PLANTED),
    Mutant("anchor-flat-claim-on-the-coupled-arm", AREAL, 'losses(table, "recompute")', 'losses(table, "behavior")', PLANTED),
    Mutant("anchor-losses-are-gains", AREAL, "int(lag): -x_N for", "int(lag): x_N for", PLANTED),
    Mutant("anchor-arms-of-decay-mixed-up", INVARIANCE, "(small[DECAY] == decay) == fixed", "(small[DECAY] == decay) != fixed", PLANTED),
    Mutant("anchor-curves-unpaired", INVARIANCE, "(found - whole).dropna()", "(found - whole.mean()).dropna()", PLANTED),
    Mutant("anchor-six-points-without-the-points", AREAL, "must_exceed(lost, SIX,", "must_exceed(lost, 0.0,", PLANTED),
    Mutant("anchor-stall-at-any-lag", ANCHORS, '"snapshot").get(16,', '"snapshot").get(0,', PLANTED),
    Mutant("anchor-lag-in-steps-stays", RESCALE, "lag=run.lag * parts", "lag=run.lag", TESTS),
)  # fmt: skip
