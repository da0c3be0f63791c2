"""Successive halving over rate x knob, with the same number of cells for every arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from analysis.arena.arms import Arm
from analysis.sweeps.tuning import FIRST_SEED
from testbed.config.run import Arguments, Run

Setting: TypeAlias = tuple[float, Arguments]
Scores: TypeAlias = Mapping[Setting, Sequence[float]]

SCREEN, FINE = (0,), (1, 2, 3)
"""Tuning seeds, counted from FIRST_SEED, of all settings and of the best ones."""
BEST = 3
GROWTHS = 2
"""Rates that are added at most beyond the edge of the grid."""
SEEDS = tuple(range(6))
"""Seeds of the finals."""
FACTOR = 10**0.5
"""Between neighboring rates, and the error of the rate whose cost is the sensitivity; about 3."""


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def cell(base: Run, arm: Arm, lag: int, setting: Setting, seed: int) -> Run:
    """Return the run of an arm at a lag, a setting and a seed, which the arm's shift is added to."""
    rate, args = setting
    return replace(
        base, recipe=arm.recipe, recipe_args=args, learning_rate=rate, lag=lag, seed=seed + arm.shift
    )


def on_tuning_seeds(
    base: Run, arm: Arm, lag: int, settings: Sequence[Setting], seeds: Sequence[int]
) -> list[Run]:
    """Return the cells of settings on tuning seeds."""
    return [cell(base, arm, lag, setting, FIRST_SEED + seed) for setting in settings for seed in seeds]


def best_of(scores: Scores, count: int = BEST) -> list[Setting]:
    """Return the best settings by the mean of the largest number of seeds they share, smaller rates first."""
    return sorted(scores, key=lambda setting: (-mean(scores[setting]), setting[0], setting[1]))[:count]


def chosen(scores: Scores) -> Setting:
    """Return the best of the settings that have most seeds."""
    most = max(len(values) for values in scores.values())
    return best_of({setting: values for setting, values in scores.items() if len(values) == most}, 1)[0]


def beyond(scores: Scores) -> Setting | None:
    """Return the next setting when the chosen rate is the lowest or highest tried, else None."""
    rate, args = chosen(scores)
    tried = [other for other, knob in scores if knob == args]
    if rate == min(tried):
        return float(f"{rate / FACTOR:.2g}"), args
    return (float(f"{rate * FACTOR:.2g}"), args) if rate == max(tried) else None
