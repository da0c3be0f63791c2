"""Draws of an estimator: given as an array, or from a sampler with a seeded generator."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats
from testbed.errors import UserError

Sampler = Callable[[np.random.Generator, int], ArrayLike]
Draws = Sampler | ArrayLike
Seed = int | Sequence[int] | np.random.SeedSequence

CHUNK = 1024
"""First chunk of draws in a sequential test; each further chunk is twice as long."""


class Stream:
    """Chunks of draws from one generator, each twice as long as the one before, `most` in total."""

    def __init__(self, sampler: Sampler, seed: Seed, most: int) -> None:
        self._sampler, self._rng, self._left, self._size = sampler, generator(seed), most, CHUNK

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Floats:
        size = min(self._size, self._left)
        if size <= 0:
            raise StopIteration
        self._left, self._size = self._left - size, 2 * self._size
        return _called(self._sampler, self._rng, size)


def generator(seed: Seed) -> np.random.Generator:
    """Return a generator for the seed; the same seed gives the same draws."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return np.random.default_rng(sequence)


def _called(sampler: Sampler, rng: np.random.Generator, n: int) -> Floats:
    x_N = _finite(sampler(rng, n))
    if x_N.shape != (n,):
        raise UserError(f"The sampler was asked for {n} draws and gave shape {x_N.shape}; expected ({n},).")
    return x_N


def draw(actual: Draws | None, n: int, seed: Seed) -> Floats:
    """Return n draws of a sampler, or the given draws."""
    if actual is None:
        raise UserError("`actual` is None; give draws or a sampler, or what an oracle says as `exact`.")
    return _called(actual, generator(seed), n) if callable(actual) else _finite(actual)


def _finite(draws: ArrayLike) -> Floats:
    x_N = np.asarray(draws, dtype=np.float64)
    if x_N.ndim != 1 or not np.isfinite(x_N).all():
        raise UserError(f"Draws have shape {x_N.shape}; expected finite numbers [N], one per estimate.")
    return x_N


def check_bounds(x_N: Floats, bounds: tuple[float, float] | None) -> None:
    """Raise UserError if a draw lies outside the declared bounds."""
    if bounds is None or x_N.size == 0:
        return
    if not (bounds[0] <= x_N.min() and x_N.max() <= bounds[1]):
        raise UserError(
            f"Draws reach from {x_N.min():g} to {x_N.max():g}, outside the declared bounds {bounds[0]:g} to "
            f"{bounds[1]:g}. Give bounds that hold for every draw."
        )
