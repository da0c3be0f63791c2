"""Bugs planted in imperfect rewards and in what optimizes them."""

from mutants.mutant import Mutant

REWARDS, PROXY = "testbed/offline/imperfect_rewards.py", "testbed/exact/proxy_optimization.py"
TESTS = "tests/unit/offline/test_imperfect_rewards.py"

MUTANTS = (
    Mutant("imperfect-model-without-a-pair", REWARDS, "if not (seen_K > 0).all():", "if False:", TESTS),
    Mutant("imperfect-labels-half-as-noisy", REWARDS, "(1 - share) * chance_SAA + share", "(1 - share / 2) * chance_SAA + share / 2", TESTS),
    Mutant("imperfect-penalty-forgotten", PROXY, "strength * divergence(world, pi_SA, base, kind) - gain", "-gain", TESTS),
    Mutant("imperfect-set-point-of-a-tie", "testbed/exact/policy_steps.py", "if not excess(-25.0) > 0 > excess(25.0):", "if False:", TESTS),
)  # fmt: skip
