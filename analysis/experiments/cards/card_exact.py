"""Part 2 of a report card: every objective's exact gradient, and its end on frozen data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.cards.objective_facts import ending, gradient_facts
from analysis.lab import Experiment
from analysis.tables.committed import Table
from testbed.exact.response_tree import random_policies, random_tree
from testbed.objectives import objective

if TYPE_CHECKING:
    from testbed.exact.gradient_report import Bench

NAME = "card-exact"
VOCABULARY, LENGTH, TREES = 3, 3, 16
DRIFTS = (0.1, 0.5, 1.0)
"""Standard deviation of the step from mu's logits to pi's; mu's logits are standard normal."""
FACTS = ("bias", "bias_state", "bias_suffix", "bias_clipping", "noise", "ess", "concentration")
COLUMNS = tuple(f"{fact} {drift:g}" for drift in DRIFTS for fact in FACTS)
ENDS = ("gain", "gain low", "gain high", "settled")


@cache
def _benches(drift: float) -> tuple[Bench, ...]:
    from testbed.exact.gradient_report import Bench

    trees = [random_tree(VOCABULARY, LENGTH, seed) for seed in range(TREES)]
    return tuple(Bench(tree, *random_policies(tree, drift, seed)) for seed, tree in enumerate(trees))


def exact_row(name: str) -> dict[str, float]:
    """Return the numbers of one objective: means over the trees at every drift, and its end on frozen data.

    A number that some tree leaves undefined (the noise of a mean that is 0) is NaN. So is a gain that depends
    on the last digits of mu; its low and high are still known, see objective_facts.Ending.
    """
    row: dict[str, float] = {}
    for drift in DRIFTS:
        found = [gradient_facts(name, bench) for bench in _benches(drift)]
        for fact in FACTS:
            mean = float(np.mean([each[fact] for each in found]))
            row[f"{fact} {drift:g}"] = 0.0 if abs(mean) < 1e-12 else mean
    end = ending(name)
    ends = {"gain": end.gain, "gain low": end.low, "gain high": end.high}
    return {**row, **ends, "settled": int(end.settled)}


def exact_table(names: Iterable[str] | None = None, said: Callable[[str], None] = lambda _: None) -> Table:
    """Return the table of the named objectives, by default of all registered ones."""
    rows = []
    for name in objective if names is None else names:
        said(name)
        rows.append({"objective": name, "family": objective[name].family, **exact_row(name)})
    about = {
        "trees": TREES,
        "tree": f"{VOCABULARY} tokens, {LENGTH} of them, rewards 0 or 1 (a third), logits standard normal",
        "batch": "two responses of one prompt, A = R - R of the other",
    }
    return Table.of(NAME, pd.DataFrame(rows, columns=["objective", "family", *COLUMNS, *ENDS]), about)


EXPERIMENT = Experiment(
    question="What are every objective's bias, noise and effective sample size, and where does it end?",
    source="papers of the objectives, in docs/objectives.md; exact enumeration",
    compute=exact_table, keys=("objective", "family"), metrics=(*COLUMNS, *ENDS),
)  # fmt: skip
