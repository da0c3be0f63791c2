"""Batches small enough to follow by hand."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch

from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.promise_batches import F1, SEQUENCES, Sequence, as_sequences, batch_of, changed

__all__ = ["F1", "SEQUENCES", "Row", "Sequence", "as_sequences", "batch_of", "changed", "rows_of", "weights"]


def weights(name: str, sequences: Many[Sequence | tuple] = SEQUENCES, **hyper: object) -> torch.Tensor:
    """Return the effective weights [B, T] of an objective on the sequences."""
    logp, batch = batch_of(sequences)
    return effective_weights(name, logp, batch, **hyper)


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
