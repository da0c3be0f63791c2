"""Declare when an experiment stops adding seeds, and how the learning rates of its arms are tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.config.run import Run

LEAST_CAP = 32
"""Smallest cap on seeds per run: 32 + 32 decide a gap of one standard deviation with probability .989."""


@dataclass(frozen=True)
class Stop:
    """Stopping rule: add seeds in blocks until the evidence suffices or a cap is reached.

    Bets (analysis.judging.bets) allow a look after every block. A replication on fresh seeds follows the
    first run; see analysis.judging.rule for the evidence at which each of them ends.

    block: seeds added at once. cap: largest number of seeds of a run; below LEAST_CAP a gap of one standard
    deviation is rarely decided. begun_with: the cap written down before the first run, if it was raised
    since, which bets allow at any time. first, fresh: first seed of the first run, and of the replication.
    """

    block: int = 8
    cap: int = 48
    begun_with: int | None = None
    first: int = 100
    fresh: int = 1000

    def written(self) -> dict[str, float]:
        """Return the rule in the form that stored designs record."""
        cap = self.begun_with or self.cap
        return {"block": self.block, "cap": cap, "level": 0.01, "first": self.first, "fresh": self.fresh}

    def seeds(self) -> Iterator[tuple[range, range]]:
        """Yield (all seeds so far, the new ones) for each block of the first run."""
        return self._blocks(self.first)

    def fresh_seeds(self) -> Iterator[tuple[range, range]]:
        """Yield the same as `seeds` for the replication."""
        return self._blocks(self.fresh)

    def _blocks(self, start: int) -> Iterator[tuple[range, range]]:
        for done in range(0, self.cap, self.block):
            yield range(start, start + done + self.block), range(start + done, start + done + self.block)


@dataclass(frozen=True)
class Tuned:
    """Tuning rule: each arm of an experiment runs at its best learning rate on tuning seeds.

    rates: those to try; a function of the cell if they differ. outcome: column whose median is maximized.
    table: experiment whose table has the tuning runs. pilots: tuning seeds.
    """

    rates: Sequence[float] | Callable[[Run], Sequence[float]] = (1e-3, 3e-3, 1e-2)
    outcome: str = "accuracy"
    table: str = "tuning-rates"
    pilots: int = 2

    def tried(self, arms: Sequence[Run]) -> tuple[Run, ...]:
        """Return every arm at every rate, on tuning seeds."""
        from analysis.sweeps.tuning import at_rates

        rates = self.rates if callable(self.rates) else lambda _: self.rates
        return tuple(cell for arm in arms for cell in at_rates([arm], rates(arm), self.pilots))

    def chosen(self, arms: Sequence[Run], keys: Sequence[str]) -> tuple[Run, ...]:
        """Return every arm at its best rate. keys: the table's key columns."""
        from analysis.sweeps.tuned_cells import tuned

        kept = [key for key in keys if key not in ("learning_rate", "seed")]
        return tuned(arms, self.table, kept, self.outcome)
