"""Bugs under the claims that judge systems of the literature."""

from analysis.planted_bugs.bug import Bug

UPDATE = "analysis/kernels/bandit_update.py"

PLANTED = (
    # Imperfect rewards, posterior losses, regimes of weights.
    Bug("probability-not-ratio-decides-the-entropy", UPDATE, "surprise_A = np.log(pi) - pi @ np.log(pi)", "surprise_A = np.log(pi)"),
    Bug("a-gap-below-the-seed-spread-takes-dozens-of-seeds", "analysis/kernels/t_test_seeds.py", "stats.t.ppf(1 - alpha / 2, seeds - 1)", "stats.t.ppf(1 - alpha, seeds - 1)"),
)  # fmt: skip
