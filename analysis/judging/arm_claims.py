"""Claims about arms of a table of cells, paired by seed: final accuracy, time to target, collapse."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from analysis.experiment import Check, Experiment
from analysis.judging.comparisons import Arm, arm, arms, happens_mostly, median_exceeds
from analysis.judging.evidence import Evidence
from analysis.sweeps.tuning import ARGS
from analysis.tables.cell_table import words

if TYPE_CHECKING:
    from testbed.config.run import Arguments

Recipes: TypeAlias = "Mapping[str, tuple[str, Arguments]]"
"""Recipe and arguments of an arm, by its name."""
Claims: TypeAlias = Iterable[tuple[str, str, Check]]
"""Name, statement and check."""


def named(recipes: Recipes, **where: object) -> dict[str, Arm]:
    """Return by name what a table says of recipes with arguments, at the other keys given."""
    return {
        name: {
            "recipe": recipe,
            ARGS: words(tuple(sorted(args))),
            **where,
        }
        for name, (recipe, args) in recipes.items()
    }


def declare(experiment: Experiment, claims: Claims) -> None:
    """Make claims of an experiment."""
    for name, statement, check in claims:
        experiment.claim(name, statement=statement)(check)


def above(
    table: pd.DataFrame, *, pair: Mapping[str, Arm], outcome: str = "accuracy", margin: float = 0.0
) -> Evidence:
    """Return the evidence that the first of two named arms has more of an outcome, by over the margin."""
    found = arms(table, outcome, pair)
    name, rival = pair
    middle = found.median()
    note = f"median gain in {outcome}; medians {name} {middle[name]:.3f}, {rival} {middle[rival]:.3f}"
    return median_exceeds(found[name] - found[rival], margin, note)


def sooner(
    table: pd.DataFrame, *, pair: Mapping[str, Arm], outcome: str = "rollouts_to 0.8", times: float = 1.0
) -> Evidence:
    """Return the evidence that the first of two arms needs under 1/times of the second's, on most seeds.

    A run that never has the accuracy needs infinitely many; two of them are no saving.
    """
    name, rival = pair
    both = pd.DataFrame({each: arm(table, outcome, where).fillna(np.inf) for each, where in pair.items()})
    both = both.dropna()
    ratio = (both[rival] / both[name]).replace([np.inf, -np.inf], np.nan).median()
    never = ", ".join(f"{each} {int(np.isinf(both[each]).sum())}" for each in both)
    under = f"under 1/{times:g} of" if times != 1 else "less than"
    note = (
        f"share of seeds on which {name} needs {under} {rival}; median quotient {ratio:.2f}; "
        f"never there: {never} of {len(both)}"
    )
    return happens_mostly(both[name] * times < both[rival], note)


def steady(table: pd.DataFrame, *, where: Arm, outcome: str = "collapsed") -> Evidence:
    """Return the evidence that an arm is spared a collapse on more than half of all seeds."""
    lost_N = arm(table, outcome, where) > 0.5
    note = f"share of seeds without; {outcome} on {int(lost_N.sum())} of {len(lost_N)} seeds"
    return happens_mostly(~lost_N, note)
