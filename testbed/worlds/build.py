"""Which world a pack of runs is in."""

from __future__ import annotations

from testbed.config.run import Run
from testbed.worlds.base import World
from testbed.worlds.tabular import TabularRuns
from testbed.worlds.tokens import TokenRuns


def build_world(runs: tuple[Run, ...]) -> World:
    """Return the world in which cells of equal shape run stacked."""
    return TabularRuns(runs) if runs[0].policy == "tabular" else TokenRuns(runs)
