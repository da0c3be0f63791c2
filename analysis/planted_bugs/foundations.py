"""Bugs under the claims on estimators, weights, bounds, gradients, schedules and finite worlds."""

from analysis.planted_bugs.bug import Bug

PLANTED = (
    # In flight, mismatch.
    Bug("at-learning-rate-zero-all-drift-is-mismatch", "testbed/staleness/exact_lag.py", "np.array([lag])", "np.array([0 * lag])"),
    # Schedules.
    Bug("spread-of-ages-raises-the-second-moment", "testbed/staleness/geometric.py", "cut_geometric(lag, last)", "cut_geometric(0.75 * lag, last)"),
    Bug("age-variance-adds-to-chi2-when-drift-keeps-its-direction", "testbed/staleness/age_distribution.py", "(self.age_K - self.mean) ** 2 @ self.share_K", "abs(self.age_K - self.mean) @ self.share_K"),
    Bug("age-variance-adds-to-chi2-when-drift-keeps-its-direction", "testbed/staleness/two_point.py", "[upper - lag, lag - low]", "[lag - low + 1, upper - lag]"),
    # Pipelines and age limits.
    Bug("capacity-bounds-submissions-not-lag", "testbed/pipeline/records.py", "d.eta * d.batch if", "(d.eta + 1) * d.batch if"),
    Bug("periodic-asynchrony-is-on-policy", "testbed/pipeline/records.py", "d.eta * d.batch if", "(d.eta + 1) * d.batch if"),
    Bug("discarding-takes-the-longest-of-a-start", "testbed/staleness/latency.py", "due = self.clock + int(latency_N[place])", "due = self.clock + 7 - int(latency_N[place])"),
)  # fmt: skip
