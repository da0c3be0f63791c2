"""Bugs planted in verifiers, styled answers, mixes of prompts and splices."""

from mutants.mutant import Mutant

VERIFIERS, REWARDS = "testbed/worlds/verifiers.py", "testbed/worlds/rewards.py"
STYLED, GRADED, SKILLS = (f"envs/tokens/{name}.py" for name in ("styled_sum", "graded_sum", "three_skills"))
GUIDES = "testbed/teachers/guides.py"
CHANGED, REPLAYED = "analysis/worlds/edited_training.py", "analysis/worlds/sparse_ways.py"
CHANGING = "tests/experiments/test_edited_training.py"
VERIFYING, TEACHING = "tests/unit/worlds/test_verifiers.py", "tests/unit/teachers/test_teachers.py"

MUTANTS = (
    Mutant("proxy-held-out-by-verifier", "testbed/worlds/tokens.py", "judge=self.rewards.gold", "judge=None", VERIFYING),
    Mutant("proxy-gold-is-proxy", REWARDS, "return gold_RB, found_M.reshape(gold_RB.shape)", "return gold_RB, gold_RB", VERIFYING),
    Mutant("proxy-model-of-the-first-seed", VERIFIERS, "gold_M[own], seed)", "gold_M[own], seeds[0])", VERIFYING),
    Mutant("proxy-blind-place-weighs", VERIFIERS, "(side[0] - side[1]) * seen_F, label_N", "side[0] - side[1], label_N", VERIFYING),
    Mutant("proxy-loophole-at-the-end", VERIFIERS, "response_NT[:, : self.places] == 0", "response_NT[:, -self.places :] == 0", VERIFYING),
    Mutant("styled-either-style-everywhere", STYLED, "np.where(free_N1, self.modulus - 1 - sums_NT, sums_NT)", "self.modulus - 1 - sums_NT", "tests/unit/envs/test_styled_sum.py"),
    Mutant("styled-mended-in-the-other-style", STYLED, "own_N > other_N", "own_N < other_N", "tests/unit/envs/test_styled_sum.py"),
    Mutant("graded-easy-digits-not-zero", GRADED, "np.where(easy_N[:, None], 0,", "np.where(easy_N[:, None], 1,", "tests/unit/envs/test_graded_sum.py"),
    Mutant("skills-swapped", SKILLS, "np.where(mark_N1 == 1, plain_NT", "np.where(mark_N1 == 2, plain_NT", "tests/unit/envs/test_three_skills.py"),
    Mutant("guide-graded-groups-never-fail", GUIDES, "return failed(rollout, self.most)", "return failed(rollout)", TEACHING),
    Mutant("change-sees-unbent-rewards", CHANGED, "made = super().batch(theta_CP, rollout, logp_CBT, step)", "made = super().batch(theta_CP, replace(rollout, reward_RB=0 * rollout.reward_RB), logp_CBT, step)", CHANGING),
    Mutant("change-is-dropped", CHANGED, "return made if change is None else", "return made if True else", CHANGING),
    Mutant("change-early-for-good", CHANGED, "if step < arm.early:", "if arm.early:", CHANGING),
    Mutant("covariance-of-fresh-tokens", REPLAYED, "masked_fill(~on_RBT, -torch.inf)", "masked_fill(~batch.mask_BT, -torch.inf)", CHANGING),
    Mutant("controller-never-sums-up", "analysis/worlds/reward_ways.py", "total_R.add_(error_R)", "total_R.copy_(error_R)", CHANGING),
)  # fmt: skip
