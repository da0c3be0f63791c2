"""Bugs planted in turns: the game and its tool, the tree, windows, roles, critics and advantages over turns."""

from mutants.mutant import Mutant

GUESS, TREE, GYM = "envs/tokens/guess.py", "envs/tokens/tree.py", "envs/tokens/gym_env.py"
SAMPLER, ROLES = "testbed/policies/toy/sampler.py", "testbed/worlds/roles.py"
FITTED, WINDOWED = "testbed/critics/fitted.py", "testbed/staleness/windowed.py"
ADVANTAGES, LEARNER = "testbed/advantages/turns.py", "testbed/training/learner.py"
TASKS, CRITICS = "tests/unit/envs/test_turn_tasks.py", "tests/unit/critics/test_critics.py"
WINDOWS, ROWS = "tests/unit/staleness/test_windowed.py", "tests/contracts/test_advantages.py"
POLICIES = "tests/unit/policies/test_turns.py"

MUTANTS = (
    Mutant("guess-tool-lies", GUESS, "(guess_N < secret_N).astype", "(guess_N > secret_N).astype", TASKS),
    Mutant("guess-half-a-number-counts", GUESS, "(response_NT[:, place] < self.base)).all(1)", "(response_NT[:, place] < self.base)).any(1)", TASKS),
    Mutant("guess-teacher-forgets", GUESS, "np.maximum(low_N, guess_N + 1)", "low_N", TASKS),
    Mutant("turn-tree-asks-the-policy", TREE, "pi[..., self.tool_S, :] = self._law_XA", "pass", TASKS),
    Mutant("turn-tree-unmasked", TREE, "mask_RBT & self.chosen_T", "mask_RBT", TASKS),
    Mutant("gym-tool-silent", GYM, "or self._tool_ends()", "", TASKS),
    Mutant("sampler-tool-is-the-policy", SAMPLER, "drawn_RB = drawn_RB if given_RB is None else given_RB", "given_RB = None", POLICIES),
    Mutant("roles-swapped", ROLES, "torch.where(self._roles() == 0, first_RBT, second_RBT)", "torch.where(self._roles() == 1, first_RBT, second_RBT)", POLICIES),
    Mutant("critic-clip-ignored", FITTED, "if self.fit.clip:", "if False:", CRITICS),
    Mutant("critic-truncation-ignored", FITTED, '"v_trace" if self.off_policy else "egae"', '"v_trace" if self.off_policy else "gae"', CRITICS),
    Mutant("critic-soft-maximum", FITTED, "torch.logsumexp(-value_HCBT / softness, 0)", "-torch.logsumexp(value_HCBT / softness, 0)", CRITICS),
    Mutant("critic-never-learns", LEARNER, "self.critic.learn(theta_CP, rollout, signals)", "pass", CRITICS),
    Mutant("windows-keep-all-tokens", WINDOWED, "rollout.mask_RBT & (self.window_T == k)", "rollout.mask_RBT", WINDOWS),
    Mutant("windows-pay-at-once", WINDOWED, "rollout.reward_RB if last else torch.zeros_like(rollout.reward_RB)", "rollout.reward_RB", WINDOWS),
    Mutant("windows-lose-their-prompts", WINDOWED, "(step - k) % self.parts * share", "k * share", WINDOWS),
    Mutant("turn-gae-reads-inside", ADVANTAGES, "start_BT = value_BT.gather(-1, first_BT)", "start_BT = value_BT", ROWS),
    Mutant("bad-discounts-inside", ADVANTAGES, "factor_BT = torch.ones_like(value_BT).masked_fill(ends_BT, gamma)", "factor_BT = torch.full_like(value_BT, gamma)", ROWS),
    Mutant("standardized-unscaled", ADVANTAGES, "centered_BT / (spread_11 + eps)).to", "centered_BT).to", ROWS),
)  # fmt: skip
