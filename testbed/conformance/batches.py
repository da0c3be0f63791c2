"""Adversarial batches: rows of tokens given by their log-ratios, and a stack of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch

ROWS, WIDTH = 6, 5
SCALES = (0.0005, 0.001, 0.003, 0.01, 0.03, *(0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 1.5) * 3)
"""Standard deviations of log pi/anchor in the stack: from gspo's windows to caps at 10."""


@dataclass(frozen=True)
class Token:
    """log pi/anchor, log anchor/mu, log pi/ref, and True if the policy chose the token (else a tool did)."""

    log_ratio: float = 0.0
    log_mismatch: float = 0.0
    log_ref: float = 0.0
    kept: bool = True


@dataclass(frozen=True)
class Row:
    """One response: its tokens, at least one of them kept, its advantage, reward and group."""

    tokens: tuple[Token, ...]
    adv: float = 1.0
    reward: float = 0.0
    group: int = 0

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Hypothesis would write down every draw, for as long as all other work of a test takes."""
        printer.text(repr(self))


Rows = tuple[Row, ...]


def tensors(
    rows: Sequence[Row], width: int | None = None, dtype: torch.dtype = torch.float64, garbage: float = 0.0
) -> tuple[Tensor, Batch]:
    """Return logp [B, T] and its Batch; every number is exact in `dtype`, stored in float64.

    width: T, the longest row by default. garbage: log-probability at padding and at tokens that are not kept;
    the policy's is garbage and all others are half of it, so that they differ.
    """
    longest = max(width or 0, *(len(row.tokens) for row in rows))
    shape = (len(rows), longest)
    logp = torch.full(shape, garbage, dtype=torch.float64)
    anchor, mu, ref = (torch.full(shape, garbage / 2, dtype=torch.float64) for _ in range(3))
    mask = torch.zeros(shape, dtype=torch.bool)
    for b, row in enumerate(rows):
        for t, token in enumerate(row.tokens):
            if not token.kept:
                continue
            # Multiples of 1/8, which bfloat16 represents exactly; no log-probability is positive.
            highest = max(0.0, token.log_ratio, -token.log_mismatch, token.log_ratio - token.log_ref)
            base = -0.125 - 0.5 * (t % 3) - 0.25 * (b % 2) - math.ceil(highest * 8) / 8
            anchor[b, t], mask[b, t] = base, True
            logp[b, t], mu[b, t] = base + token.log_ratio, base - token.log_mismatch
            ref[b, t] = base + token.log_ratio - token.log_ref
    held = [value.to(dtype).double() for value in (logp, mu, anchor, ref)]
    adv = torch.tensor([row.adv for row in rows], dtype=dtype).double()[:, None].expand(shape).clone()
    reward = torch.tensor([row.reward for row in rows], dtype=dtype).double()
    ids = {group: number for number, group in enumerate(dict.fromkeys(row.group for row in rows))}
    group = torch.tensor([ids[row.group] for row in rows])
    return held[0], Batch(held[1], adv, mask, reward, group, held[2], held[3])


def random_rows(
    draw: random.Random,
    count: int = ROWS,
    longest: int = WIDTH,
    scale: float = 0.4,
    holes: float = 0.15,
    ref: float = 1.0,
) -> Rows:
    """Return ragged rows with tool tokens, both signs, a row with A = 0 and groups of 1 to 3."""
    rows = []
    for b in range(count):
        length = longest if b == 0 else draw.randint(1, longest)
        tokens = [
            Token(
                log_ratio=draw.gauss(0, scale),
                log_mismatch=draw.gauss(0, min(scale, 0.5)),
                log_ref=draw.gauss(0, ref * min(max(scale, 0.05), 0.8)),
                kept=t == 0 or draw.random() > holes,
            )
            for t in range(length)
        ]
        adv = 0.0 if b == 4 else (1 if (b + draw.randint(0, 1)) % 2 else -1) * (0.25 + draw.random())
        # Of both signs: a loss may treat failures with negative rewards differently, as TOPR does.
        reward = round(2 * draw.random() - 1, 3)
        rows.append(Row(tuple(tokens), adv, reward, 0 if b < 3 else 1 if b < 5 else 2))
    return tuple(rows)


def stack(seed: int = 0) -> tuple[Rows, ...]:
    """Return the batches on which weights are compared first, one per scale, all of ROWS rows."""
    draw = random.Random(seed)
    return tuple(random_rows(draw, scale=scale) for scale in SCALES)


def calm(seed: int = 0) -> tuple[Rows, ...]:
    """Return batches with all ratios at 1, which show how a loss counts tokens and responses."""
    draw = random.Random(seed)
    return tuple(random_rows(draw, scale=0.0, ref=0.0) for _ in range(6))


def collapsed(rows: Sequence[Row]) -> Rows:
    """Return the rows with mu = anchor: the data that a loss with one old log-probability can use."""
    alike = ([replace(token, log_mismatch=0.0) for token in row.tokens] for row in rows)
    return tuple(replace(row, tokens=tuple(tokens)) for row, tokens in zip(rows, alike, strict=True))


def joined(batches: Sequence[Batch]) -> Batch:
    """Return batches of one shape as one Batch with a leading axis."""
    names = ("logp_mu_BT", "adv_BT", "mask_BT", "reward_B", "group_B", "logp_anchor_BT", "logp_ref_BT")
    fields: dict[str, Any] = {name: torch.stack([getattr(b, name) for b in batches]) for name in names}
    return Batch(**fields)


def in_words(rows: Sequence[Row]) -> list[str]:
    """Return one line per row: its advantage and the ratios of its tokens; a tool's token is "-"."""
    lines = []
    for row in rows:
        parts = [f"A = {row.adv:+.4g}"]
        for name, field in (("pi/anchor", "log_ratio"), ("anchor/mu", "log_mismatch"), ("pi/ref", "log_ref")):
            logs = [getattr(token, field) if token.kept else None for token in row.tokens]
            if name == "pi/anchor" or any(logs):
                parts.append(f"{name} = ({', '.join('-' if log is None else _ratio(log) for log in logs)})")
        lines.append(", ".join(parts))
    return lines


def _ratio(log: float) -> str:
    return f"{math.exp(log):.6g}" if abs(log) < 50 else f"e^{log:g}"
