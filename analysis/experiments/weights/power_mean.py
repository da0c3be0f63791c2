"""The exponent of HölderPO's mean: how it concentrates a sequence's gradient, and what variance it leaves."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, Seeds, columns, difference, exact, of_seeds
from envs.arrays import Floats
from testbed.exact.response_tree import random_policies, random_tree
from testbed.rng import generator

NAME = "power-mean"
SEEDS, POWERS, TOKENS = 12, (-4.0, -2.0, 0.0, 2.0, 4.0), 24
OPEN: dict[str, Any] = {"eps_low": 0.999, "eps_high": 1e6}
"""A clip that binds nowhere."""


def shares(seed: int, power: float) -> Floats:
    """Return each token's share of a sequence's weight; log-ratios are normal, of standard deviation 0.5."""
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    log_u = torch.from_numpy(0.5 * generator(seed, NAME).normal(size=(1, TOKENS)))
    mu = torch.full_like(log_u, -3.0)
    ones = torch.ones_like(log_u)
    batch = Batch(mu, ones, ones.bool(), ones[:, 0], torch.zeros(1, dtype=torch.int64))
    weight = effective_weights("holder", mu + log_u, batch, p=power, **OPEN)[0].numpy()
    return np.asarray(weight / weight.sum())


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the largest share of a token, and variance and bias of the gradient on a random tree, by
    exponent.
    """
    from testbed.exact.gradient_report import Bench, gradient_report

    for seed in seeds:
        tree = random_tree(3, 3, seed)
        bench = Bench(tree, *random_policies(tree, 0.5, seed))
        for power in POWERS:
            found = gradient_report(
                "holder", bench, signal="R-b", baseline=float(tree.value(bench.mu_SA)), p=power, **OPEN
            )
            yield columns(
                (seed,),
                power=power,
                share=shares(seed, power).max(),
                deviation=found.relative_deviation,
                bias=found.relative_bias,
            )


EXPERIMENT = Experiment(
    NAME,
    question="Does a larger exponent concentrate the gradient, and a smaller one bound its variance?",
    source="HölderPO (2026), arXiv:2605.12058",
    differs="exact gradients of random trees and weights of one sequence, without clip or training",
    compute=of_seeds(NAME, rows, SEEDS, {"tokens": TOKENS, "tree": "3 tokens, 3 of them"}),
    keys=("run", "seed", "power"),
    metrics=("share", "deviation", "bias"),
    margins={"share or deviation": 0.0},
    figure=Plot(
        "final by setting",
        x="power: exponent p",
        y="share: largest share of a token of 24",
        says="Shows the largest share that one of 24 tokens has in the gradient weight of a sequence, "
        "against the exponent p of the mean of its ratios (-1 harmonic, 0 geometric, 1 arithmetic), for "
        "random log-ratios of standard deviation 0.5, without clip or training.",
    ),
    systems={"HölderPO": Part("concentration and variance by exponent; no annealing, no training")},
)


def _rises(table: pd.DataFrame, value: str) -> dict[str, Floats]:
    """The rise of a column from each exponent to the next one, for each run."""
    found: dict[str, Floats] = {}
    for low, high in pairwise(POWERS):
        steps = difference(table, value, {"power": high}, {"power": low})
        found |= {f"{low:g} to {high:g}, {run}": x_N for run, x_N in steps.items()}
    return found


@EXPERIMENT.claim("power-mean-spreads-most-evenly-at-zero", source="derived here")
def power_mean_spreads_most_evenly_at_zero() -> Evidence:
    """A token's share of the weight is u^p / sum u^p: even at p = 0, and the largest one is as convex in |p|
    to either side. Negative exponents concentrate too, on the smallest ratios.
    """
    gaps = []
    for seed in range(6):
        log_u_T = 0.5 * generator(seed, NAME).normal(size=TOKENS)
        largest = {}
        for power in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0):
            found_T, wanted_T = shares(seed, power), np.exp(power * log_u_T)
            gaps.append(float(np.abs(found_T - wanted_T / wanted_T.sum()).max()))
            largest[power] = float(found_T.max())
        gaps += [
            max(0.0, largest[s * a] - largest[s * b]) for s in (1, -1) for a, b in ((0, 1), (1, 2), (2, 4))
        ]
    return exact(gaps, 1e-12, "largest distance of a share, or fall of the largest one")


EXPERIMENT.claim(
    "larger-exponents-concentrate-the-gradient",
    statement="The largest share of a token rises from each exponent of -4, -2, 0, 2, 4 to the next.",
).compare(partial(_rises, value="share"))

EXPERIMENT.claim(
    "smaller-exponents-lower-the-variance",
    statement="The gradient's deviation falls from each exponent of 4, 2, 0, -2, -4 to the next.",
).compare(partial(_rises, value="deviation"))
