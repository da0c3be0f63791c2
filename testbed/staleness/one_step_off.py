"""One step off: the next batch is generated while the trainer works on this one."""

from testbed.staleness import schedule
from testbed.staleness.age_distribution import AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution, check_mean


@schedule(
    "one-step-off", source="verl, one-step-off-policy recipe; Noukhovitch et al. (2025), arXiv:2410.18252"
)
def one_step_off(lag: int) -> ByAge:
    """age = 1 for every sample: exact(1) under the name used by public stacks."""
    distribution = AgeDistribution.of([1], [1.0])
    check_mean("one-step-off", lag, distribution)
    return by_distribution("one-step-off", distribution)
