"""Bugs planted in the interfaces of policies, worlds and schedules, and in the policies that change weights."""

from __future__ import annotations

from mutants.mutant import Mutant

POLICY, BEHAVIOR = "testbed/policies/base.py", "testbed/mismatch/behavior.py"
WRAPPED, INTERFACES = "tests/unit/policies/test_wrapped_policies.py", "tests/contracts/test_interfaces.py"

MUTANTS = (
    Mutant("wrapped-in-flight-at-full-weights", POLICY, "        theta_RVP = self._of_versions(theta_RVP)\n        return self.policy.sample_in_flight(", "        return self.policy.sample_in_flight(", WRAPPED),
    Mutant("wrapped-reads-in-flight-at-full-weights", POLICY, "        theta_RVP = self._of_versions(theta_RVP)\n        return self.policy.logp_in_flight(", "        return self.policy.logp_in_flight(", INTERFACES),
    Mutant("wrapped-table-at-full-weights", POLICY, "self.policy.probabilities(self.weights(theta_RP))", "self.policy.probabilities(theta_RP)", WRAPPED),
    Mutant("wrapped-rounding-loses-the-weights", POLICY, "return self.around(self.policy.with_rounding(rounding))", "return self.policy.with_rounding(rounding)", WRAPPED),
    Mutant("wrapped-engine-forgets-the-wrapper", BEHAVIOR, "if not isinstance(policy, Reweighted):\n        return", "if True:\n        return", WRAPPED),
    Mutant("wrapped-past-at-full-weights", BEHAVIOR, "else policy.weights(draw.past_RP)", "else draw.past_RP", WRAPPED),
)  # fmt: skip
