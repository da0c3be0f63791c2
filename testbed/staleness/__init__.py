"""Staleness: the weights version that generates each sample.

`schedule` registers makers of plans: maker(lag, *, …) -> SchedulePlan. A plan determines the ages of one
cell's samples; `lag` is the mean age of schedules that mix ages. A plan's `source` merges the plans of a
pack's cells into one source of batches for the training loop. A new schedule is one file here.

>>> from testbed.staleness import plan_for
>>> plan_for(Run(lag=4)).ages(seed=0, step=9)
array([4])
"""

from torch import Tensor

from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.errors import UserError, refuse
from testbed.registry import Entry, Registry
from testbed.staleness.schedule_plan import SchedulePlan, Source
from testbed.user_files import in_a_file, outside_function
from testbed.worlds.generation import engine_of
from testbed.worlds.world import World


class Schedules(Registry):
    """The registry of schedules, with makers in files outside the package."""

    def __getitem__(self, name: str) -> Entry:
        if in_a_file(name):
            return outside_function(name, 1, "(lag, *, argument=…)")
        return super().__getitem__(name)


schedule = Schedules("schedule", package="testbed.staleness")


def plan_for(run: Run) -> SchedulePlan:
    """Return a cell's plan under its age limit; UserError for unknown names or impossible values."""
    from testbed.staleness.too_old import limited

    entry, given = schedule[run.staleness], dict(run.staleness_args)
    make = entry.bind(**given)
    refuse(wrong_types(f"staleness '{run.staleness}'", entry.function, given))
    plan: SchedulePlan = make(run.lag)
    if not isinstance(plan, SchedulePlan):
        raise UserError(f"staleness '{run.staleness}' made {plan!r}, expected a SchedulePlan.")
    return limited(plan, run)


def check_past(run: Run, plan: SchedulePlan) -> None:
    """Raise UserError if the run's engine reads older weights than its plan keeps."""
    past = engine_of(run).past
    if past and not plan.keeps_past:
        raise UserError(
            f"engine '{run.mismatch}' reads weights {past} steps older than those of its samples, "
            f"which staleness '{run.staleness}' does not keep; take one that knows ages beforehand, such "
            "as exact or uniform."
        )


def build_source(runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Source:
    """Return the source of batches for stacked cells; theta_RP are their starting weights."""
    from testbed.staleness.too_old import with_age_limit

    plans = [plan_for(run) for run in runs]
    check_past(runs[0], plans[0])
    for plan, run in zip(plans, runs, strict=True):
        plan.check(run)
    return with_age_limit(plans[0].source(plans, runs, world, theta_RP), runs)
