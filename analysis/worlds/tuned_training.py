"""Arms of toy training at their best rate and value of one knob, chosen on pilot seeds.

A family has learning methods by name, and the file of the settings chosen for them. To choose those that an
experiment lacks, arm by arm: `python -m analysis.worlds.tuned_training NAME`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiment import Experiment
from analysis.judging.replication import of_seeds
from analysis.worlds.edited_training import Arm, Maker, metric_values, sweep, trained
from analysis.worlds.pilots import FLAT, PILOT
from testbed.config.run import Arguments, Run

PILOTS, ROUNDS = 32, 3
"""Usual pilot seeds, and how many rates may be tried beyond an end. Where a tenth of the runs fails, fewer
seeds choose by chance."""
RATES, BEYOND = (1.8e-3, 3e-3, 5.6e-3, 1e-2, 1.8e-2), 1.8
Scores = dict[tuple[float, float], float]


@dataclass(frozen=True)
class Way:
    """Runs by the value of a knob.

    at: value -> the run, or an arm of analysis.worlds.edited_training. ladder: values from small to large;
    the search begins in the middle, and nothing sensible lies beyond its ends if `whole`. change: of
    batches. like: an earlier way whose settings are taken in place of a search. by: what settings are chosen
    by where that is not the family's. rates: learning rates that are tried first. pilots: seeds, from
    5,000,000 on.
    """

    at: Callable[[Any], Run | Arm]
    ladder: tuple[float, ...] = (0,)
    whole: bool = False
    change: Maker | None = None
    like: str = ""
    by: str = ""
    rates: tuple[float, ...] = RATES
    pilots: int = PILOTS

    def arm(self, value: float) -> Arm:
        """Return the arm at a value of the knob."""
        made = self.at(value)
        return made if isinstance(made, Arm) else Arm(made, self.change)


def with_recipe(
    start: Run, name: str, knob: str = "", *more: tuple[str, Any], **fields: Any
) -> Callable[[float], Run]:
    """Return a function from a knob's value to the run; several knobs, joined by "+", share the value."""

    def at(value: float) -> Run:
        args: Arguments = tuple((each, value) for each in knob.split("+") if each)
        return replace(start, recipe=name, recipe_args=(*args, *more), **fields)

    return at


def clip_of(width: float) -> Arguments:
    """Return the bounds of a clip by its width w in nats to both sides: ratios from exp(-w) to exp(w)."""
    return (("eps_high", round(exp(width) - 1, 4)), ("eps_low", round(1 - exp(-width), 4)))


@dataclass(frozen=True, eq=False)
class Family:
    """Ways by name, and the file of their settings: arm, rate, value, score, at_end.

    file: by default that of the declaring module with the ending .csv. by: the metric by which settings are
    chosen, in the words of cell_table.
    """

    ways: Mapping[str, Way]
    file: Path = Path()
    by: str = "last accuracy"

    def __post_init__(self) -> None:
        """Name the file after the module: frame 1 is the dataclass's __init__, frame 2 the module's."""
        if not self.file.name:
            made = Path(sys._getframe(2).f_globals["__file__"]).with_suffix(".csv")
            object.__setattr__(self, "file", made)

    @cached_property
    def chosen(self) -> dict[str, dict[str, float]]:
        """Chosen settings of every arm: rate, value, score on pilot seeds, at_end."""
        if not self.file.exists():
            return {}
        frame = pd.read_csv(self.file).set_index("arm")
        return {str(arm): {str(k): float(x) for k, x in row.items()} for arm, row in frame.iterrows()}

    def value(self, name: str) -> float:
        """Return an arm's value of the knob, read from the file anew: a search may just have written it."""
        return replace(self).chosen[name]["value"]

    def arm(self, name: str) -> Arm:
        """Return an arm at its value of the knob; `chosen` has its rate."""
        way, value = self.ways[name], self.chosen[name]["value"]
        return way.arm(next(each for each in way.ladder if each == value))

    def old(self) -> set[str]:
        """Return the arms that learn from old data at any knob; windows learn from new data."""
        runs = {name: way.arm(way.ladder[0]).run for name, way in self.ways.items()}
        return {name for name, run in runs.items() if run.lag or run.staleness not in ("exact", "windowed")}

    def pilots(self) -> dict[str, int]:
        """Return how many pilot seeds chose the setting of each arm."""
        return {name: self.ways[way.like or name].pilots for name, way in self.ways.items()}

    def table(self, metrics: Sequence[str], seeds: Sequence[Any], names: Sequence[str] = ()) -> pd.DataFrame:
        """Return a row per arm and seed: the metrics, the setting, and whether it lies at an end.

        names: the wanted arms; all if there are none.
        """
        names = names or tuple(self.ways)
        rates = {name: self.chosen[name]["rate"] for name in names}
        found = sweep({name: self.arm(name) for name in names}, metrics, rates, seeds)
        for column, field in (("knob", "value"), ("at end", "at_end")):
            found[column] = [self.chosen[name][field] for name in found["arm"]]
        return found

    def experiment(
        self,
        metrics: Sequence[str],
        seeds: int,
        asked: Sequence[tuple[Sequence[str], *tuple[int, ...]]] = (((), 0),),
        first: int = 0,
        **more: Any,
    ) -> Experiment:
        """Return the experiment with the arms' table, named as the file; more: further arguments of
        `Experiment`.

        asked: arms, () for those that are not named elsewhere, how many seeds they have, 0 for all, and by
        how much these are higher. first: the same for all arms.
        """
        name, named = self.file.stem.replace("_", "-"), {arm for arms, *_ in asked for arm in arms}
        others = [arm for arm in self.ways if arm not in named]

        def part(all_seeds: Sequence[Any], arms: Sequence[str], n: int, later: int = 0) -> pd.DataFrame:
            return self.table(metrics, [s + first + later for s in all_seeds[: n or seeds]], arms or others)

        def rows(all_seeds: Sequence[Any]) -> pd.DataFrame:
            return pd.concat([part(all_seeds, *each) for each in asked])

        return Experiment(
            name,
            compute=of_seeds(name, rows, seeds, {"pilots": PILOTS}),
            keys=("run", "arm", "seed"),
            metrics=("rate", "knob", "at end", *metrics),
            old=self.old,
            pilots=self.pilots,
            **more,
        )

    def choose(self) -> None:
        """Choose the settings of methods that have none yet, and write each at once."""
        done = dict(self.chosen)
        for name, way in self.ways.items():
            if name not in done:
                done[name] = done[way.like] if way.like else settled(replace(way, by=way.by or self.by))
                frame = pd.DataFrame(done).T.rename_axis("arm")
                frame.to_csv(self.file, float_format="%.6g")
                print(name, done[name], flush=True)


def score(way: Way, value: float, rates: list[float]) -> dict[float, float]:
    """Return the mean tuning metric of a method over pilot seeds, at each rate."""
    arm = way.arm(value)
    seeds = range(PILOT, PILOT + way.pilots)
    runs = tuple(replace(arm.run, learning_rate=rate, seed=seed) for rate in rates for seed in seeds)
    cells = trained(arm, runs).groupby("learning_rate")
    return {
        float(str(rate)): float(np.mean(metric_values(part, way.by or Family.by))) for rate, part in cells
    }


def ends(scores: Scores, way: Way) -> list[str]:
    """Return the settings, rate or knob, whose best value is an end and beats its neighbor by more than FLAT.

    The end of a whole ladder does not count, as nothing sensible lies beyond.
    """
    best = max(scores, key=lambda key: (scores[key], -key[0]))
    found = []
    for axis, name in enumerate(("rate", "knob")):
        line = sorted(key for key in scores if key[1 - axis] == best[1 - axis])
        at = line.index(best)
        if len(line) < 2 or 0 < at < len(line) - 1:
            continue
        if name == "knob" and way.whole and best[1] in (way.ladder[0], way.ladder[-1]):
            continue
        inward = line[1] if at == 0 else line[-2]
        found += [name] * (scores[best] - scores[inward] > FLAT)
    return found


def settled(way: Way) -> dict[str, float]:
    """Return rate, value and score of the best setting on pilot seeds; at_end: how many lie at an end.

    All rates are tried at the middle three values, as one alone may learn nothing at any of them; then what
    lies beside the best setting, until nothing is missing.
    """
    scores: Scores = {}
    line = list(way.rates)
    for _ in range(ROUNDS):
        line = [float(f"{rate:.2g}") for rate in (line[0] / BEYOND, *line, line[-1] * BEYOND)]
    first = max(0, (len(way.ladder) - 3) // 2)
    wanted = [(rate, value) for value in way.ladder[first : first + 3] for rate in way.rates]
    while wanted:
        for value in dict.fromkeys(value for _, value in wanted):
            found = score(way, value, [rate for rate, at in wanted if at == value])
            scores |= {(rate, value): x for rate, x in found.items()}
        rate, value = max(scores, key=lambda key: (scores[key], -key[0]))
        i, j = line.index(rate), way.ladder.index(value)
        beside = [(each, value) for each in line[max(0, i - 1) : i + 2]]
        beside += [(rate, each) for each in way.ladder[max(0, j - 1) : j + 2]]
        wanted = [key for key in beside if key not in scores]
    return {"rate": rate, "value": value, "score": scores[rate, value], "at_end": len(ends(scores, way))}


if __name__ == "__main__":
    from analysis.experiment import EXPERIMENTS

    for each in sys.argv[1:]:
        for made in vars(importlib.import_module(EXPERIMENTS.module(each))).values():
            if type(made).__name__ == "Family":  # no instance of this class: the module runs as a script
                made.choose()
