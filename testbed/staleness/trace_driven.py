"""Ages from a lag trace: a recorded file, or a pipeline simulated for the run.

Step t is the trace's update t: prompt n of the batch gets the age of the update's n-th group. `pipeline/time`
gives the time of that update, so returns can be plotted against the pipeline's wall clock. A trace is fixed:
the lengths of the policy's responses change neither ages nor times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from torch import Tensor

from envs.arrays import Floats, Ints
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.pipeline import trace as traces
from testbed.pipeline.design import Design, from_words
from testbed.pipeline.trace import Lags
from testbed.staleness import schedule
from testbed.staleness.by_age import ByAge, ByAgeSource
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.user_files import unchanged
from testbed.worlds.world import World

TIME = "pipeline/time"


@dataclass(frozen=True)
class TracePlan(SchedulePlan):
    """A plan with the ages of a trace's updates.

    lags: number of steps -> the trace's updates, at least as many if it is long enough. name: its name in
    messages. shortest, mean: of the ages; 0 and NaN if the trace is unknown before the run.
    """

    lags: Callable[[int], Lags]
    name: str
    shortest: int = 0
    mean: float = float("nan")

    def versions(self, run: Run, length: int) -> int:
        """Return one more than the largest age of the run's updates, at most the run's steps."""
        del length
        return min(int(self.lags(run.steps).age_TN[: run.steps].max()) + 1, run.steps)

    def check(self, run: Run) -> None:
        """Raise UserError if the trace is too short for the run, or its batches differ."""
        updates, groups = self.lags(run.steps).age_TN.shape
        if run.steps > updates:
            raise UserError(
                f"{self.name} holds {updates} updates, steps is {run.steps}; "
                f"take a longer trace, or set steps to {updates} or less."
            )
        if run.prompts != groups:
            raise UserError(
                f"{self.name} trains {groups} groups per update, prompts is {run.prompts}; "
                f"set prompts to {groups}, or take a trace with {run.prompts}."
            )

    def source(
        self, plans: "Sequence[TracePlan]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "TimedSource":
        """Return the source of a pack; all its cells follow the trace up to their last step."""
        del plans  # stacked cells have equal plans
        steps = runs[0].steps
        found = self.lags(steps)
        return TimedSource(by_age(found.age_TN[:steps]), found.time_T, runs, world, theta_RP)


def by_age(age_TN: Ints) -> ByAge:
    """Return the plan with the ages of row t at step t, in as few slices as they need."""
    slices = fewest_slices(age_TN)
    age_TY = age_TN[:, :: age_TN.shape[1] // slices]
    return ByAge(lambda _, step: age_TY[step], depth=int(age_TY.max()) + 1, slices=slices)


class TimedSource(ByAgeSource):
    """Batches with the ages of a trace, and the time of every step."""

    def __init__(
        self, plan: ByAge, time_T: Floats, runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> None:
        super().__init__([plan] * len(runs), runs, world, theta_RP)
        self.time_T = time_T

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return this step's samples, and the time at which the pipeline trained them."""
        made = super().batch(theta_RP, step)
        return replace(made, counts={**made.counts, TIME: np.full(len(self.runs), self.time_T[step])})


def fewest_slices(age_TN: Ints) -> int:
    """Return the fewest equal parts of a batch such that no part has two ages in any update."""
    groups = int(age_TN.shape[1])
    for slices in range(1, groups):
        if groups % slices == 0:
            part_TYG = age_TN.reshape(len(age_TN), slices, -1)
            if (part_TYG == part_TYG[..., :1]).all():
                return slices
    return groups


@lru_cache(maxsize=32)
def _simulated(design: Design, seed: int, token: str, steps: int) -> Lags:
    recorded = traces.record(design, -(-steps // design.updates), seed)
    return traces.lags(recorded, "the simulated pipeline", token)


@lru_cache(maxsize=32)
def _recorded(path: Path, digest: str, token: str) -> Lags:
    del digest  # only part of the key: a changed file is read again
    return traces.lags(traces.read(path), str(path), token)


def pin_trace(run: Run) -> Run:
    """Add a recorded trace's digest to the run's arguments; return any other run unchanged.

    A result thus identifies its trace, and another trace is another cell.
    """
    arguments = dict(run.staleness_args)
    if run.staleness != "trace" or not arguments.get("file"):
        return run
    path, digest = _split(str(arguments["file"]))
    arguments["file"] = f"{path}#{unchanged(path, digest, 'a lag trace')}"
    return replace(run, staleness_args=tuple(arguments.items()))


def _split(file: str) -> tuple[Path, str]:
    path, mark, digest = file.rpartition("#")
    return (Path(path), digest) if mark else (Path(file), "")


def _refuse_lag(lag: int, plan: str) -> None:
    if lag:
        raise UserError(f"lag is {lag}, but {plan} determines every age; leave lag at 0.")


@schedule("trace", source="testbed pipeline --trace, or the log of a real system")
def trace(lag: int, *, file: str = "", token: str = "") -> TracePlan:
    """age = version_trained - version_start of the oldest member of the trace's group, update by update.

    file: .csv or .parquet, see testbed.pipeline.trace; with `#` and its digest appended, the run refuses any
    other content. token: "first" or "last", the token with the version that counts if it changes inside a
    response. lag must be 0: the trace has the ages. Ages before its first update mean the starting weights.
    """
    if not file:
        raise UserError("trace needs staleness_args.file; `testbed pipeline --trace FILE` writes one.")
    _refuse_lag(lag, "the trace")
    path, digest = _split(file)
    lags = _recorded(path, unchanged(path, digest, "a lag trace"), token)
    return TracePlan(lambda _: lags, str(path), int(lags.age_TN.min()), float(lags.age_TN.mean()))


@schedule("pipeline", source="event simulation: docs/pipeline.md")
def pipeline(lag: int, *, design: str = "", seed: int = 0, token: str = "") -> TracePlan:
    """age = the age in the trace of `testbed pipeline DESIGN --seed SEED`, computed without a file.

    design: fields of testbed.pipeline.design.Design as words, "slots=64 queue=1"; empty for its defaults.
    seed: of the pipeline, not of the run. token: as for `trace`. lag must be 0: the pipeline has the ages.
    """
    _refuse_lag(lag, "the pipeline")
    if seed < 0:
        raise UserError(f"seed of the pipeline is {seed}, expected 0 or more.")
    made = from_words(str(design).split())
    if (made.batch // made.updates) % made.group:
        raise UserError(
            f"batch={made.batch} in updates={made.updates} parts cuts groups of {made.group} in two, and a "
            "learner keeps groups whole. Change batch, updates or group."
        )
    return TracePlan(partial(_simulated, made, seed, token), "the simulated pipeline")
