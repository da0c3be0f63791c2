"""Planted bugs in the compiled pass over logged rounds."""

from mutants.mutant import Mutant

KERNEL, TESTS = "testbed/estimators/kernels.py", "tests/unit/estimators/test_estimators_kernels.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant("rounds-last-block-unread", KERNEL, "(n + _BLOCK - 1) // _BLOCK", "n // _BLOCK", TESTS),
    Mutant("rounds-action-one-too-large", KERNEL, "(action_N[i] < actions)", "(action_N[i] <= actions)", TESTS),
    Mutant("rounds-negative-probability", KERNEL, "(least >= 0.0)", "(least >= -1.0)", TESTS),
    Mutant("rounds-sum-unchecked", KERNEL, "abs(total - 1.0) <= tolerance", "abs(total) >= 0.0", TESTS),
    Mutant("rounds-propensity-zero", KERNEL, "(chance > 0.0) & (chance <= 1.0) & (target / chance < np.inf)", "(chance <= 1.0)", TESTS),
    Mutant("rounds-direct-without-model", KERNEL, "direct += pi_NA[i, a] * q_NA[i, a]", "direct += q_NA[i, a]", TESTS),
    Mutant("rounds-model-of-another-action", KERNEL, "q_NA[i, action]\n", "q_NA[i, 0]\n", TESTS),
    Mutant("rounds-only-the-last-verdict", KERNEL, "fine_K[block] = fine", "fine_K[:] = fine", TESTS),
)  # fmt: skip
