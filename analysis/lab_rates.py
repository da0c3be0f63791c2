"""Cells at the learning rates that a committed table of tuning runs chose for their arms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.tuning import at_best_rates, best_rates

if TYPE_CHECKING:
    from testbed.config.run import Run


def tuned(
    cells: Iterable[Run],
    table: str = "phase-diagram",
    by: Sequence[str] = ("recipe", "lag"),
    outcome: str = "accuracy",
) -> tuple[Run, ...]:
    """Return the cells, each at the best rate of its arm in a committed table; see tuning.at_best_rates.

    table: name of an experiment whose seeds are tuning seeds. by: columns that tell its arms apart.
    """
    from analysis.load import load_committed

    return at_best_rates(cells, best_rates(load_committed([table])[table].frame, by, outcome))
