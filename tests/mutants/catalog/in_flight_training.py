"""Planted bugs in generation across versions, as the loop sees it."""

from mutants.mutant import Mutant

SOURCE = "testbed/staleness/in_flight.py"
TABULAR = "testbed/worlds/tabular.py"
TESTS = "tests/unit/staleness/test_in_flight_training.py"

MUTANTS = (
    Mutant("flight-lag-ignored", SOURCE, "(step - self.lag_R[:, None] - back_W)", "(step - back_W)", TESTS),
    Mutant("flight-versions-backwards", SOURCE, "torch.arange(self.span - 1, -1, -1, device=theta_RP.device)", "torch.arange(self.span, device=theta_RP.device)", TESTS),
    Mutant("flight-one-version-stamped", SOURCE, "version_RW[:, None, self.place_T]", "version_RW[:, None, 0 * self.place_T]", TESTS),
    Mutant("flight-tokens-ignored", SOURCE, "// plans[0].tokens", "// 1", TESTS),
    Mutant("flight-behavior-is-the-first-version", SOURCE, "one = self.span == 1", "one = self.span >= 1", TESTS),
    Mutant("flight-table-of-one-version", TABULAR, "version_T[time_S], torch", "version_T[0 * time_S], torch", TESTS),
    Mutant("flight-table-level-late", TABULAR, "torch.tensor(self.task.level[1:]), right=True", "torch.tensor(self.task.level[1:]), right=False", TESTS),
    Mutant("flight-engine-forgotten", TABULAR, "[behavior.probabilities(theta_RP, step) for theta_RP in theta_RWP.unbind(1)]", "[self.policy.probabilities(theta_RP) for theta_RP in theta_RWP.unbind(1)]", TESTS),
    Mutant("flight-trainer-notes-the-engine", TABULAR, "return self.generation.noted_in_flight(theta_RWP, version_RBT, rollout, self.logp)", "return replace(rollout, logp_trainer_RBT=rollout.logp_mu_RBT)", TESTS),
    Mutant("flight-cache-always-kept", "testbed/worlds/tokens.py", "first.group, uniform_RBT, step, cache", "first.group, uniform_RBT, step, 'kept'", TESTS),
)  # fmt: skip
