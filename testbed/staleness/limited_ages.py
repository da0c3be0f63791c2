"""Age distributions under a limit: truncated (the trainer waits) or renormalized after dropping."""

from dataclasses import dataclass, field

import numpy as np

from envs.arrays import Ints
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.staleness.age_distribution import AgeDistribution, Ages

MOST_SKIPPED = 10_000
"""Number of batches discarded in a row after which a schedule counts as unusable."""


@dataclass(frozen=True)
class Waiting:
    """Ages truncated at a limit: the trainer waits for newer weights instead of using older samples."""

    ages: Ages
    limit: int

    def __call__(self, seed: int, step: int) -> Ints:
        return np.minimum(self.ages(seed, step), self.limit)

    def distribution(self, distribution: AgeDistribution) -> AgeDistribution:
        """Return the distribution of min(age, limit)."""
        cut_K = np.minimum(distribution.age_K, self.limit)
        age_K = np.unique(cut_K)
        share_K = [distribution.share_K[cut_K == age].sum() for age in age_K]
        return AgeDistribution.of(age_K, share_K)

    def counts(self, run: Run, step: int) -> dict[str, float]:
        """Return the time steps that the trainer waits before this step for the slowest slice."""
        oldest = int(np.minimum(self.ages(run.seed, step), step).max())
        return {"staleness/stalled": float(max(oldest - self.limit, 0))}


@dataclass
class Discarding:
    """A schedule's ages in order, without those above a limit; a function of (seed, step).

    read: slices of the schedule inspected so far, per seed. kept, lost: per seed and step, the ages used and
    the number of slices discarded before the batch was complete.
    """

    ages: Ages
    limit: int
    run: Run
    read: dict[int, int] = field(default_factory=dict)
    kept: dict[int, list[Ints]] = field(default_factory=dict)
    lost: dict[int, list[int]] = field(default_factory=dict)

    def __call__(self, seed: int, step: int) -> Ints:
        while len(self.kept.setdefault(seed, [])) <= step:
            self._next(seed)
        return self.kept[seed][step]

    def distribution(self, distribution: AgeDistribution) -> AgeDistribution:
        """Return the distribution of the age conditional on being at most the limit."""
        young_K = distribution.age_K <= self.limit
        return AgeDistribution.of(distribution.age_K[young_K], distribution.share_K[young_K])

    def _next(self, seed: int) -> None:
        step, read = len(self.kept[seed]), self.read.get(seed, 0)
        slices = len(self.ages(seed, 0))
        chosen: list[int] = []
        start = read
        while len(chosen) < slices:
            # Early in a run no sample is older than the run itself.
            age = min(int(self.ages(seed, read // slices)[read % slices]), step)
            chosen += [age] if age <= self.limit else []
            read += 1
            if read - start > MOST_SKIPPED * slices:
                raise UserError(
                    f"at step {step} schedule '{self.run.staleness}' gave {MOST_SKIPPED} batches without a "
                    f"sample of age_limit = {self.limit} steps or less; raise age_limit."
                )
        self.read[seed] = read
        self.kept[seed].append(np.array(chosen))
        self.lost.setdefault(seed, []).append(read - start - slices)

    def counts(self, run: Run, step: int) -> dict[str, float]:
        """Return the groups discarded before this step's batch was complete."""
        slices = len(self(run.seed, step))
        return {"staleness/discarded": self.lost[run.seed][step] * run.prompts / slices}
