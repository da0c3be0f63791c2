"""Bugs planted in the interfaces of policies, worlds and schedules, and in the policies that change weights."""

from mutants.mutant import Mutant

POLICY, BEHAVIOR = "testbed/policies/base.py", "testbed/mismatch/behavior.py"
WRAPPED, INTERFACES = "tests/unit/policies/test_wrapped_policies.py", "tests/contracts/test_interfaces.py"
PREFLIGHT, MEMORY = "testbed/execution/preflight.py", "testbed/execution/memory.py"
ERRORS = "testbed/errors.py"
FIELDS, CHECKED = "testbed/config/fields.py", "tests/unit/execution/test_preflight.py"

MUTANTS = (
    Mutant("wrapped-in-flight-at-full-weights", POLICY, "        theta_RWP = self._of_versions(theta_RWP)\n        return self.policy.sample_in_flight(", "        return self.policy.sample_in_flight(", WRAPPED),
    Mutant("wrapped-reads-in-flight-at-full-weights", POLICY, "        theta_RWP = self._of_versions(theta_RWP)\n        return self.policy.logp_in_flight(", "        return self.policy.logp_in_flight(", INTERFACES),
    Mutant("wrapped-table-at-full-weights", POLICY, "self.policy.probabilities(self.weights(theta_RP))", "self.policy.probabilities(theta_RP)", WRAPPED),
    Mutant("wrapped-rounding-loses-the-weights", POLICY, "return self.around(self.policy.with_rounding(rounding))", "return self.policy.with_rounding(rounding)", WRAPPED),
    Mutant("wrapped-engine-forgets-the-wrapper", BEHAVIOR, "if not isinstance(policy, Reweighted):\n        return", "if True:\n        return", WRAPPED),
    Mutant("wrapped-past-at-full-weights", BEHAVIOR, "else policy.weights(draw.past_RP)", "else draw.past_RP", WRAPPED),
    Mutant("preflight-first-problem-only", ERRORS, "told = list(dict.fromkeys(found))", "told = list(dict.fromkeys(found))[:1]", CHECKED),
    Mutant("preflight-repeats-itself", ERRORS, "told = list(dict.fromkeys(found))", "told = list(found)", CHECKED),
    Mutant("preflight-not-cut", ERRORS, "if len(told) > PROBLEMS:", "if False:", CHECKED),
    Mutant("preflight-looks-at-every-cell", PREFLIGHT, "return {values(cell): cell for cell in cells}.values()", "return [cell for cell in cells if values]", CHECKED),
    Mutant("preflight-policies-not-checked", PREFLIGHT, '    ((*TASK, "policy_args", "model", "staleness"), _check_policy),\n', "", CHECKED),
    Mutant("preflight-memory-not-asked", PREFLIGHT, "    if trains and here:\n", "    if False:\n", CHECKED),
    Mutant("preflight-asks-other-functions", PREFLIGHT, "problems(sound) if trains else ()", "problems(sound)", CHECKED),
    Mutant("preflight-memory-of-other-machines", PREFLIGHT, "    if trains and here:\n", "    if trains:\n", CHECKED),
    Mutant("preflight-normal-form-of-the-equal", FIELDS, "value is not good.get(name, nothing)", "value != good.get(name, nothing)", CHECKED),
    Mutant("preflight-contradictions-left-out", FIELDS, " or list(contradictions(run))", "", CHECKED),
    Mutant("memory-without-optimizer", MEMORY, "(COPIES + self.optimizer)", "COPIES", CHECKED),
    Mutant("memory-versions-of-one-replica", MEMORY, "versions += sum(kept[key])", "versions = sum(kept[key])", CHECKED),
    Mutant("memory-anchor-forgotten", MEMORY, "longest_response(run)), anchored", "longest_response(run)), 0", CHECKED),
    Mutant("memory-spilled-versions-in-memory", MEMORY, "0 if room.disk is not None or room.host is not None else self.kept", "self.kept", CHECKED),
    Mutant("memory-disk-without-end", MEMORY, "max(self.memory, self.host or 0) // 2 if self.disk is None else self.disk", "max(self.memory, self.host or 0) // 2 if self.disk is None else 2**99", CHECKED),
    Mutant("memory-largest-lag-off-by-one", MEMORY, "return low if low >= 0 else None", "return high", CHECKED),
    Mutant("memory-done-packs-refused", MEMORY, "if pack.id not in done:", "if True:", CHECKED),
    Mutant("memory-start-not-counted", "testbed/staleness/by_age.py", "run.steps) + self.first", "run.steps)", CHECKED),
)  # fmt: skip
