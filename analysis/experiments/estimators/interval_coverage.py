"""Coverage of 95% intervals of the mean: exact for two-point distributions, else from seeded samples."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy import stats

from analysis.judging.seed_intervals import clopper_pearson_interval
from analysis.lab import Experiment, Floats, Plot
from analysis.tables.committed import Table
from testbed.estimators.intervals import (
    Interval,
    betting,
    bootstrap,
    empirical_bernstein,
    hcope,
    hoeffding,
    log_smoothing_bound,
    student,
)

NAME = "interval-coverage"
COLUMNS = ("interval", "law", "parameter", "n", "coverage", "low", "high", "samples")
SIZES = (20, 100)
CHANCES = (0.02, 0.05, 0.3)
SIGMAS = (0.5, 1.0, 2.0)
SAMPLES = 2_000
RESAMPLES = 999
LAMBDA = 0.2
SLACK = 1e-9
"""Tolerance at an interval's end: ends of two-point samples equal the mean up to rounding."""

Make: TypeAlias = Callable[[Floats], Interval]

KNOWN_RANGE: Mapping[str, Make] = MappingProxyType(
    {
        "hoeffding": lambda x_N: hoeffding(x_N, low=0.0, high=1.0),
        "empirical_bernstein": lambda x_N: empirical_bernstein(x_N, low=0.0, high=1.0),
        "betting": lambda x_N: betting(x_N, low=0.0, high=1.0),
    }
)
ANY_RANGE: Mapping[str, Make] = MappingProxyType(
    {
        "hcope": hcope,
        "log_smoothing_bound": lambda x_N: log_smoothing(x_N),
        "student": student,
        "bootstrap": lambda x_N: bootstrap(x_N, resamples=RESAMPLES),
    }
)
IN_ORDER = ("betting", "hcope")
"""Intervals that depend on the order of the terms: their coverage cannot be counted, so it is sampled."""


def log_smoothing(x_N: Floats) -> Interval:
    """Return log_smoothing_bound of terms >= 0 as an interval, lambda = LAMBDA."""
    estimate = np.log1p(LAMBDA * x_N).mean(-1) / LAMBDA
    low = log_smoothing_bound(estimate, lambda_=LAMBDA, n=x_N.shape[-1])
    return Interval(low, np.full_like(low, np.inf), 0.95, "log smoothing")


def inside(found: Interval, mean: float) -> np.ndarray:
    """Return whether each interval holds the mean."""
    return np.asarray((found.low <= mean + SLACK) & (mean - SLACK <= found.high))


def counted(make: Make, chance: float, n: int) -> float:
    """Return the coverage for n terms that are 1 with this probability, else 0, by counting ones.

    Exact for intervals that do not depend on the order of the terms; the bootstrap draws from its own seed.
    """
    ones_R = np.arange(n + 1)
    terms_RN = np.where(np.arange(n) < ones_R[:, None], 1.0, 0.0)
    mass_R = stats.binom.pmf(ones_R, n, chance)
    return float(mass_R @ inside(make(terms_RN), chance))


def draws(law: str, parameter: float, n: int) -> tuple[Floats, float]:
    """Return SAMPLES samples of n terms [M, N] of a distribution, and its mean."""
    rng = np.random.default_rng([n, int(1000 * parameter)])
    if law == "two-point":
        return (rng.random((SAMPLES, n)) < parameter).astype(np.float64), parameter
    return np.exp(parameter * rng.standard_normal((SAMPLES, n)) - parameter**2 / 2), 1.0


def row(name: str, make: Make, law: str, parameter: float, n: int) -> tuple[object, ...]:
    """Return one row: coverage, with its 95% Clopper-Pearson interval if sampled; samples 0 means counted."""
    if law == "two-point" and name not in IN_ORDER:
        share = counted(make, parameter, n)
        return name, law, parameter, n, share, share, share, 0
    terms_MN, mean = draws(law, parameter, n)
    found = clopper_pearson_interval(int(inside(make(terms_MN), mean).sum()), SAMPLES)
    return name, law, parameter, n, found.center, found.low, found.high, SAMPLES


def interval_coverage() -> Table:
    """Return the coverage of every 95% interval for each distribution and size it applies to; takes 30 s.

    Distributions: "two-point" is 1 with probability `parameter`, else 0: a rare weight, up to its scale.
    "lognormal" is exp(sigma Z - sigma^2 / 2), a weight of mean 1 without an upper bound.
    """
    rows = [
        row(name, make, "two-point", chance, n)
        for name, make in {**KNOWN_RANGE, **ANY_RANGE}.items()
        for chance in CHANCES
        for n in SIZES
    ]
    rows += [
        row(name, make, "lognormal", sigma, n)
        for name, make in ANY_RANGE.items()
        for sigma in SIGMAS
        for n in SIZES
    ]
    about = {"level": 0.95, "samples": SAMPLES, "resamples": RESAMPLES, "lambda": LAMBDA}
    return Table.of(NAME, pd.DataFrame(rows, columns=list(COLUMNS)), about)


EXPERIMENT = Experiment(
    question="How often does each 95% interval hold the mean where weights are rare or heavy?",
    source="papers of the intervals; docstrings of testbed.estimators.intervals",
    differs="two-point and log-normal weights, the first counted, not sampled",
    compute=interval_coverage, keys=("interval", "law", "parameter", "n"),
    metrics=("coverage", "low", "high", "samples"),
    figure=Plot(
        "final by setting", x="parameter: sigma of a log-normal weight", y="coverage", arm=("interval", "n"),
        where={"law": "lognormal"},
        names={"student": "Student's t", "log_smoothing_bound": "log smoothing"},
    ),
)  # fmt: skip
