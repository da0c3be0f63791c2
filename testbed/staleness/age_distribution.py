"""Distributions of ages: the share of samples by age in optimizer steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats, Ints

Ages: TypeAlias = Callable[[int, int], Ints]
"""(seed, step) -> age of every slice, int64 [Y]; ages above the step mean the weights at the start."""

SLICES = 4
"""Default number of batch slices with independent ages."""


@dataclass(frozen=True)
class AgeDistribution:
    """P(age = age_K[k]) = share_K[k]; ages increase, every share is positive and they sum to 1."""

    age_K: Ints
    share_K: Floats

    @classmethod
    def of(cls, age_K: ArrayLike, weight_K: ArrayLike) -> "AgeDistribution":
        """Return the distribution with shares in proportion to the weights, without ages of weight 0."""
        ages, weights = np.asarray(age_K, dtype=np.int64), np.asarray(weight_K, dtype=np.float64)
        kept = weights > 0
        return cls(ages[kept], weights[kept] / weights[kept].sum())

    @property
    def mean(self) -> float:
        """Mean age, optimizer steps."""
        return float(self.age_K @ self.share_K)

    @property
    def variance(self) -> float:
        """Variance of the age, optimizer steps squared."""
        return float((self.age_K - self.mean) ** 2 @ self.share_K)

    @property
    def shortest(self) -> int:
        return int(self.age_K[0])

    @property
    def longest(self) -> int:
        return int(self.age_K[-1])

    def draw(self, uniform_Y: Floats) -> Ints:
        """Return ages by inverse CDF of numbers in [0, 1), int64 [Y]."""
        place_Y = np.searchsorted(self.share_K.cumsum(), uniform_Y, side="right")
        # Rounding can leave the last cumulated share below 1.
        ages: Ints = self.age_K[np.minimum(place_Y, self.age_K.size - 1)]
        return ages
