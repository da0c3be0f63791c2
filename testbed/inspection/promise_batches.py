"""Small batches on which the promises of an objective are tested."""

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import EXPERT, REPLAY, Batch


@dataclass(frozen=True)
class Sequence:
    """One sequence by its ratios; per-token tuples have one entry per token under the mask.

    ratios: pi / mu. anchor: anchor / mu (1 by default). reference: pi / ref (1 by default).
    reward: the advantage by default. turn: all 0 by default.
    """

    adv: float
    ratios: tuple[float, ...]
    anchor: tuple[float, ...] | None = None
    reference: tuple[float, ...] | None = None
    reward: float | None = None
    group: int = 0
    turn: tuple[int, ...] | None = None
    origin: int = 0


# F1 of the published examples: mu = anchor.
F1 = (Sequence(1.0, (1.5, 0.5)), Sequence(-1.0, (0.5, 1.25, 4.0)))

# Three policies that differ, groups of four, three and one, turns, a replayed and an expert sequence.
# No ratio lies on a clip bound; every sign meets ratios above, inside and below the usual bounds.
SEQUENCES: tuple[Sequence, ...] = (
    Sequence(1.0, (1.5, 0.5), (1.2, 0.9), (1.1, 1.3), 1.0, 0, (0, 1)),
    Sequence(-1.0, (0.5, 1.25, 4.0), (0.6, 1.05, 2.5), (0.8, 1.2, 1.7), 0.0, 0, (0, 0, 1)),
    Sequence(-2.0, (0.7, 0.9, 1.1), (0.95, 1.02, 0.97), (0.75, 1.05, 0.9), 0.2, 0, (0, 1, 1)),
    Sequence(0.5, (1.1, 1.05), (1.03, 0.98), (1.4, 0.95), 0.7, 0, (0, 0)),
    Sequence(2.0, (1.0001, 1.0002, 0.9999), None, (1.02, 0.97, 1.06), 1.0, 1, (0, 1, 2)),
    Sequence(-0.5, (0.9999,), (1.001,), (0.93,), 0.3, 1, (0,)),
    Sequence(0.25, (0.6, 3.5, 1.3), (0.9, 1.1, 1.25), (1.15, 2.1, 0.85), 0.9, 1, (0, 0, 1), REPLAY),
    Sequence(-0.75, (0.65, 0.75, 1.45), (1.1, 0.93, 1.15), (0.88, 1.09, 1.25), 0.4, 2, (0, 1, 1), EXPERT),
)


def as_sequences(given: Many[Sequence | tuple[Any, ...]]) -> list[Sequence]:
    """Return sequences; (advantage, ratios) stands for the simplest kind, two to a group."""
    return [
        s if isinstance(s, Sequence) else Sequence(s[0], tuple(s[1]), group=i // 2)
        for i, s in enumerate(given)
    ]


def changed(sequences: Many[Sequence] = SEQUENCES, **fields: Any) -> list[Sequence]:
    """Return the sequences with fields replaced; a callable receives the sequence."""
    return [replace(s, **{k: v(s) if callable(v) else v for k, v in fields.items()}) for s in sequences]


def batch_of(
    sequences: Many[Sequence | tuple[Any, ...]] = SEQUENCES,
    dtype: torch.dtype = torch.float64,
    padding: float = 0.0,
    width: int | None = None,
    hole: bool = False,
) -> tuple[Tensor, Batch]:
    """Return logp_BT and the Batch with the given ratios; log mu varies by token.

    padding fills every log-probability outside the mask. hole adds one tool token, outside the mask, before
    the last token of every sequence.
    """
    rows = as_sequences(sequences)
    longest = (width or max(len(s.ratios) for s in rows)) + hole
    shape = (len(rows), longest)
    logp, mu, anchor, ref = (torch.full(shape, padding, dtype=dtype) for _ in range(4))
    adv = torch.zeros(shape, dtype=dtype)
    mask = torch.zeros(shape, dtype=torch.bool)
    turn = torch.zeros(shape, dtype=torch.int64)
    for b, s in enumerate(rows):
        length = len(s.ratios)
        at = [*range(length - 1), length - 1 + hole]
        ones = (1.0,) * length
        start = -1.6 - 0.1 * torch.arange(length, dtype=dtype) - 0.05 * b
        log = [torch.tensor(x or ones, dtype=dtype).log() for x in (s.ratios, s.anchor, s.reference)]
        mu[b, at], logp[b, at], anchor[b, at] = start, start + log[0], start + log[1]
        ref[b, at] = start + log[0] - log[2]
        adv[b], mask[b, at] = s.adv, True
        turn[b, at] = torch.tensor(s.turn or (0,) * length)
    reward = torch.tensor([s.adv if s.reward is None else s.reward for s in rows], dtype=dtype)
    group = torch.tensor([s.group for s in rows])
    origin = torch.tensor([s.origin for s in rows])
    return logp, Batch(mu, adv, mask, reward, group, anchor, ref, turn, None, origin)
