"""Bugs under the claims on estimators, weights, bounds, gradients, schedules and finite worlds."""

from analysis.planted_bugs.bug import Bug

PLANTED = (
    # In flight, mismatch.
    Bug("at-learning-rate-zero-all-drift-is-mismatch", "testbed/staleness/exact_lag.py", "np.array([lag])", "np.array([0 * lag])"),
    # Pipelines and age limits.
    Bug("capacity-bounds-submissions-not-lag", "testbed/pipeline/records.py", "d.eta * d.batch if", "(d.eta + 1) * d.batch if"),
    Bug("periodic-asynchrony-is-on-policy", "testbed/pipeline/records.py", "d.eta * d.batch if", "(d.eta + 1) * d.batch if"),
)  # fmt: skip
