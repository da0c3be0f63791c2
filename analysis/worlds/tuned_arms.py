"""Arms of a computed experiment, each at the settings that are best on other seeds, and the gate on that."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from envs.arrays import Floats

FIRST_SEED = 9_000_000
"""First seed of tuning: no run and no replication has it."""
FLAT = 1.01
"""A setting at the end of its grid is as good as inside where its neighbor's score is within this factor."""
Settings = Mapping[str, Floats]
"""Name of a setting: its values [R]."""
Grid = Mapping[str, tuple[float, ...]]
"""Name of a setting: its levels."""
Score = Callable[[int, Settings], Floats]
"""From a seed and settings: outcomes [K, R], the first one lost and to be small."""


@dataclass(frozen=True)
class Tuned:
    """The settings chosen, and the names of those that lie at an end of their grid."""

    settings: dict[str, float]
    at_end: tuple[str, ...]


@dataclass(frozen=True)
class Arm:
    """Outcomes by seed and settings, with the grid of every setting."""

    score: Score
    grid: Grid

    def at(self, seed: int, settings: Mapping[str, float]) -> Floats:
        """Return the outcomes of one seed at one setting of each, [K]."""
        return self.score(seed, {name: np.array([value]) for name, value in settings.items()})[:, 0]

    def tuned(self, seeds: int, off: Mapping[str, float]) -> Tuned:
        """Return the settings whose first outcome is least in the mean over so many seeds of tuning.

        off: settings at which a mechanism is off, or that no grid goes beyond; these are no ends.
        """
        rows_RK = np.array(list(itertools.product(*self.grid.values())))
        cells = dict(zip(self.grid, rows_RK.T, strict=True))
        lost_R = np.mean([self.score(FIRST_SEED + i, cells)[0] for i in range(seeds)], axis=0)
        lost_G = np.nan_to_num(lost_R, nan=np.inf).reshape([len(levels) for levels in self.grid.values()])
        place = [int(i) for i in np.unravel_index(np.argmin(lost_G), lost_G.shape)]
        best = {name: levels[i] for (name, levels), i in zip(self.grid.items(), place, strict=True)}
        at_end = []
        for axis, name in enumerate(self.grid):
            last = lost_G.shape[axis] - 1
            if last and place[axis] in (0, last) and best[name] != off.get(name):
                inner = (*place[:axis], 1 if place[axis] == 0 else last - 1, *place[axis + 1 :])
                at_end += [name] * bool(lost_G[inner] > FLAT * lost_G[tuple(place)])
        return Tuned(best, tuple(at_end))


def ends(met: Mapping[str, str | tuple[str, ...]]) -> Callable[[pd.DataFrame], str]:
    """Return the gate that no arm of the rows met has a setting at the end of its grid, column `at_end`."""

    def gate(table: pd.DataFrame) -> str:
        rows = table[table["at_end"].notna() & (table["at_end"] != "")]
        for column, values in met.items():
            rows = rows[rows[column].isin([values] if isinstance(values, str) else values)]
        said = rows[[*met, "at_end"]].drop_duplicates()
        return "; ".join(f"{', '.join(map(str, row))} at the end of its grid" for row in said.to_numpy())

    return gate
