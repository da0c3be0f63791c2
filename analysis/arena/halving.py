"""Successive halving over rate x knob, with the same number of cells for every arm."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

from analysis.arena.arms import RATES, Arm
from analysis.arena.tasks import aged
from analysis.sweeps.tuning import FIRST_SEED
from testbed.config.run import Arguments, Run

Setting: TypeAlias = tuple[float, Arguments]
Scores: TypeAlias = Mapping[Setting, Sequence[float]]

SCREEN, FINE = (0, 1), (2, 3, 4)
"""Tuning seeds, counted from FIRST_SEED, of all settings and of the best ones."""
BEST = 3
SETTLED = 4
"""Settings that further tuning seeds choose from, where they are asked for."""
GROWTHS = 3
"""Maximal number of rounds in which the grid grows beyond its edges, by one rate and one value of the knob
each."""
FRESH = 1000
"""First seed of the replication's finals."""
SEEDS = (*range(16), *range(FRESH, FRESH + 16))
"""Seeds of the finals: a first run and its replication."""
WRONG = (0, 1)
"""Seeds of the finals at a wrong rate."""
FACTOR = 10**0.5
"""Ratio of neighboring rates of the first grid, and of the wrong rate of the sensitivity; about 3."""
FLOOR = 0.05
"""Final accuracy below which an arm has not learned: all of its knob's values are tried then."""
FINER = 2
"""If the next rate that was tried is further from the chosen one than this factor, one between is tried."""


@dataclass(frozen=True)
class Effort:
    """Seeds of all settings, of the best ones and of the finals, and how often the grid may grow.

    pilots: tuning seeds on which the best settings of an earlier tuning are compared, if more than it had.
    """

    screen: tuple[int, ...] = SCREEN
    fine: tuple[int, ...] = FINE
    growths: int = GROWTHS
    finals: tuple[int, ...] = SEEDS
    pilots: int = 0

    @property
    def tuning(self) -> tuple[int, ...]:
        """Tuning seeds of the best settings."""
        return (*self.screen, *self.fine)

    @property
    def cells(self) -> int:
        """Maximal number of cells of an arm at one task and lag."""
        tuned = 9 * len(self.screen) + BEST * len(self.fine)
        # a round tries at most 2 settings while the grid grows and 4 around its best
        grown = self.growths * (2 + 4) * len(self.tuning)
        wide = 2 * len(RATES) * len(self.screen) + BEST * len(self.fine)
        settled = (SETTLED + self.growths * BEST) * max(0, self.pilots - len(self.tuning))
        # with pilots, a round tries 4 settings more around its best, and a smaller rate
        settled += bool(settled) * self.growths * (4 + 1) * len(self.tuning)
        return tuned + bool(self.growths) * wide + grown + settled + len(self.finals) + 2 * len(WRONG)


FULL = Effort()
QUICK = Effort((0,), (1,), 0, (*range(8), *range(FRESH, FRESH + 8)))
"""A fifth of the cells: a fixed grid, one tuning seed and a second one for the best, half the finals."""


def seeds_up_to(count: int, had: Collection[int]) -> tuple[int, ...]:
    """Return the seeds of both runs, `count` each, that are not among `had`."""
    both = (*range(count), *range(FRESH, FRESH + count))
    return tuple(seed for seed in both if seed not in had)


def cell(base: Run, arm: Arm, lag: int, setting: Setting, seed: int) -> Run:
    """Return the run of an arm at a lag, a setting and a seed; the arm's shift is added to the seed."""
    rate, args = setting
    made = replace(base, recipe=arm.recipe, recipe_args=args, learning_rate=rate)
    return aged(made, lag, seed + arm.shift)


def on_tuning_seeds(
    base: Run, arm: Arm, lag: int, settings: Sequence[Setting], seeds: Sequence[int]
) -> list[Run]:
    """Return the cells of settings on tuning seeds."""
    return [cell(base, arm, lag, setting, FIRST_SEED + seed) for setting in settings for seed in seeds]


def best_of(scores: Scores, count: int = BEST) -> list[Setting]:
    """Return the best settings by the mean over their seeds, of equals those with smaller rates first."""
    return sorted(scores, key=lambda setting: (-fmean(scores[setting]), setting[0], setting[1]))[:count]


def chosen(scores: Scores) -> Setting:
    """Return the best of the settings with most seeds."""
    most = max(len(values) for values in scores.values())
    return best_of({setting: values for setting, values in scores.items() if len(values) == most}, 1)[0]


def across(scores: Scores, ladder: Sequence[Arguments]) -> list[Setting]:
    """Return the settings at the first grid's rates with untried values of the knob, where nothing learned.

    A search that begins at the base model's accuracy cannot tell which neighbor is better: TOPR on sums at
    lag 64 stayed there, and learns with another baseline.
    """
    if fmean(scores[chosen(scores)]) >= FLOOR or len(ladder) == 1:
        return []
    values = [tuple(sorted(each)) for each in ladder]
    return [(rate, args) for args in values for rate in RATES if (rate, args) not in scores]


def unsettled(scores: Scores, pilots: int) -> list[Setting]:
    """Return the best SETTLED settings of those with most seeds, unless these are `pilots` already.

    Of settings with one rate and equal scores, as clips on fresh data, one counts.
    """
    most = max(len(values) for values in scores.values())
    # Reversed, as later ones overwrite: of equal settings the first one tried stays.
    unlike = {(rate, fmean(values)): (rate, args) for (rate, args), values in reversed([*scores.items()])}
    full = {at: scores[at] for at in unlike.values() if len(scores[at]) == most}
    return best_of(full, SETTLED) if most < pilots else []


def promising(scores: Scores, seeds: int) -> list[Setting]:
    """Return the settings that have so many seeds and a better mean than the chosen one, best first."""
    best = fmean(scores[chosen(scores)])
    few = {at: each for at, each in scores.items() if len(each) == seeds}
    return [at for at in best_of(few) if fmean(few[at]) > best]


def lower(scores: Scores, start: float) -> list[Setting]:
    """Return the chosen knob at a third of its smallest rate, if the setting ends below the base model.

    start: the base model's accuracy. Such an arm does better if it learns less.
    """
    rate, args = chosen(scores)
    if fmean(scores[rate, args]) >= start:
        return []
    least = min(other for other, knob in scores if knob == args)
    return [(float(f"{least / FACTOR:.2g}"), args)]


def between(scores: Scores, ladder: Sequence[Arguments]) -> list[Setting]:
    """Return what `beyond` does, and the rates halfway, on a log scale, to neighbors more than FINER away."""
    rate, args = chosen(scores)
    rates = [other for other, knob in scores if knob == args]
    near = [max(r for r in rates if r < rate)] if rate > min(rates) else []
    near += [min(r for r in rates if r > rate)] if rate < max(rates) else []
    far = [other for other in near if max(rate / other, other / rate) > FINER]
    return [*beyond(scores, ladder), *((float(f"{(rate * other) ** 0.5:.2g}"), args) for other in far)]


def beyond(scores: Scores, ladder: Sequence[Arguments]) -> list[Setting]:
    """Return the settings next to the chosen one that lie beyond the rates or knob values tried so far.

    ladder: all values of the knob, from small to large; no value lies beyond its ends.
    """
    rate, args = chosen(scores)
    rates = [other for other, knob in scores if knob == args]
    found: list[Setting] = []
    if rate == min(rates):
        found.append((float(f"{rate / FACTOR:.2g}"), args))
    if rate == max(rates):
        found.append((float(f"{rate * FACTOR:.2g}"), args))
    values = [tuple(sorted(each)) for each in ladder]  # as a run stores them
    place = values.index(args)
    for other in (place - 1, place + 1):
        if 0 <= other < len(values) and (rate, values[other]) not in scores:
            found.append((rate, values[other]))
    return found
