"""Off-policy value estimators: pure functions from logged data to an Estimate, over replicate axes.

`estimator` registers them with their citation and promises, which contract tests check:

family:    "bandit" takes a testbed.estimators.logged_rounds.Logged, "trajectory" takes logged episodes.
unbiased:  True when E[value] is the target policy's value for every sample size, given overlap (mu > 0 where
           pi > 0), exact propensities and nuisances that were not fitted on the same data.
needs:     the optional fields of the data that the estimator requires.
symmetric: True (default) when value does not depend on the order of the units.
linear:    True when value is the mean of terms that each depend on one logged unit alone. Bias and variance
           at every sample size then follow from one unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from envs.arrays import Floats
from testbed.registry import Function, Registry

Later = Floats | Callable[[], Floats]
"""An array, or a function that computes it."""


class Estimators(Registry):
    """The registry of estimators; `family` is a promise."""

    def __call__(self, name: str, *, source: str, **promises: Any) -> Callable[[Function], Function]:
        """Decorate a function. Defaults: unbiased=False, linear=False, symmetric=True, needs=()."""
        return super().__call__(
            name,
            source=source,
            **{"unbiased": False, "linear": False, "symmetric": True, "needs": (), **promises},
        )


estimator = Estimators("estimator", package="testbed.estimators")


@dataclass(frozen=True, eq=False)
class Estimate:
    """Result of an estimator: value, standard error and Kish ESS of the weights on rewards, each [...].

    stderr: sample deviation (ddof 1) of the terms over sqrt(N), NaN for one unit; ratios of means use the
        delta method. It cannot see large weights that were not drawn.
    ess: (sum w)^2 / sum w^2, in units, from 1 to N; NaN when no reward carries weight.
    terms_N: [..., N]; their mean over the last axis is `value`. For linear estimators they are the
        independent terms that some intervals need. None if the estimator has no terms.
    """

    value: Floats
    stderr: Floats
    ess: Floats
    terms_N: Floats | None = None


def kish_ess(weight_N: Floats) -> Floats:
    """(sum w)^2 / sum w^2 over the last axis; NaN where every weight is 0."""
    square = _square_sum(weight_N)
    if (scale_1 := _scale(weight_N, square)) is not None:
        # The ESS does not depend on the scale.
        weight_N = weight_N / scale_1
        square = _square_sum(weight_N)
    total = weight_N.sum(-1)
    return np.divide(total**2, square, out=np.full_like(square, np.nan), where=square > 0)


def standard_error(terms_N: Floats) -> Floats:
    """sqrt(sum (x - mean)^2 / (N (N - 1))) over the last axis; NaN for N = 1."""
    n = terms_N.shape[-1]
    if n < 2:
        return np.full(terms_N.shape[:-1], np.nan)
    centered = terms_N - terms_N.mean(-1, keepdims=True)
    square = _square_sum(centered)
    if (scale_1 := _scale(centered, square)) is None:
        return np.sqrt(square / (n * (n - 1)))
    return np.sqrt(_square_sum(centered / scale_1) / (n * (n - 1))) * scale_1[..., 0]


def _square_sum(x_N: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(np.einsum("...n,...n->...", x_N, x_N))


def _scale(x_N: Floats, square: Floats) -> Floats | None:
    """Return the largest |x| where squares near the limits of doubles became 0 or inf, else 1, [..., 1].

    None if the sums of squares of all rows are far from the limits, as usual.
    """
    fits = (square > 1e-280) & (square < 1e280)
    if fits.all():
        return None
    peak = np.abs(x_N).max(-1)
    return np.where(fits | (peak == 0.0), 1.0, peak)[..., None]


class MeanOfTerms(Estimate):
    """An Estimate that computes its standard error and ESS on first access."""

    def __init__(self, terms_N: Later, weight_N: Later, value: Floats | None = None) -> None:
        # The dataclass is frozen, and cached properties fill the same dictionary.
        self.__dict__.update(_given_N=terms_N, _weight_N=weight_N)
        self.__dict__["value"] = np.asarray(self.terms_N.mean(-1)) if value is None else value

    @cached_property
    def terms_N(self) -> Floats:
        return _now(self.__dict__["_given_N"])

    @cached_property
    def stderr(self) -> Floats:
        return standard_error(self.terms_N)

    @cached_property
    def ess(self) -> Floats:
        return kish_ess(_now(self.__dict__["_weight_N"]))


def _now(later_N: Later) -> Floats:
    return later_N() if callable(later_N) else later_N


def mean_of_terms(terms_N: Later, weight_N: Later, value: Floats | None = None) -> Estimate:
    """Return the Estimate with the mean of the terms over the last axis as value.

    Terms and weights can be functions. They are called on first access, so never if only a known value is
    read.
    """
    return MeanOfTerms(terms_N, weight_N, value)
