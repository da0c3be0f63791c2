"""Batches small enough to follow by hand."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch

from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.promise_batches import F1, SEQUENCES, Sequence, as_sequences, batch_of, changed

__all__ = [
    "F1", "SEQUENCES", "Row", "Sequence", "as_sequences", "batch_of", "changed", "hostile", "rows_of",
    "weights",
]  # fmt: skip


def weights(name: str, sequences: Many[Sequence | tuple] = SEQUENCES, **hyper: object) -> torch.Tensor:
    """Return the effective weights [B, T] of an objective on the sequences."""
    logp, batch = batch_of(sequences)
    return effective_weights(name, logp, batch, **hyper)


def hostile(seed: int, count: int = 9) -> list[Sequence]:
    """Return drawn sequences of 1 to 5 tokens: near and far ratios, advantages of 0, groups of any size."""
    rng, found = np.random.default_rng(seed), []
    for i in range(count):
        n, spread = int(rng.integers(1, 6)), (0.02, 0.3, 1.0)[i % 3]
        ratios = [tuple(np.exp(spread * rng.normal(size=n))) for _ in range(3)]
        turn = tuple(np.sort(rng.integers(0, 3, n)).tolist())
        adv, reward = float(rng.normal()) * (i % 4 > 0), float(rng.choice([0.0, 0.5, 1.0]))
        group, origin = int(rng.integers(min(count, 4))), int(rng.integers(3))
        found.append(Sequence(adv, *ratios, reward, group, turn, origin))
    return found


@dataclass(frozen=True)
class Row:
    """One sequence as plain numbers, for derivations by hand; arrays have one entry per token."""

    adv: float
    reward: float
    group: int
    origin: int
    turn: np.ndarray
    r: np.ndarray
    """pi / mu"""
    d: np.ndarray
    """anchor / mu"""
    u: np.ndarray
    """pi / anchor"""
    v: np.ndarray
    """pi / ref"""
    p: np.ndarray
    """pi"""

    @property
    def n(self) -> int:
        return len(self.r)

    @property
    def ones(self) -> np.ndarray:
        return np.ones(len(self.r))


def rows_of(sequences: Many[Sequence | tuple] = SEQUENCES) -> list[Row]:
    """Return the sequences as numpy sees them."""
    found = []
    for b, s in enumerate(as_sequences(sequences)):
        n = len(s.ratios)
        ones = (1.0,) * n
        r, d, v = (np.array(x or ones) for x in (s.ratios, s.anchor, s.reference))
        mu = np.exp(-1.6 - 0.1 * np.arange(n) - 0.05 * b)
        reward = s.adv if s.reward is None else s.reward
        turn = np.array(s.turn or (0,) * n)
        found.append(Row(s.adv, reward, s.group, s.origin, turn, r, d, r / d, v, mu * r))
    return found
