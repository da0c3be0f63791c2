"""Run a loss on the stack of batches, and measure the similarity of two sets of weights."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats
from testbed.conformance.batches import (
    ROWS,
    WIDTH,
    Row,
    Rows,
    Token,
    calm,
    collapsed,
    joined,
    random_rows,
    stack,
    tensors,
)
from testbed.conformance.calling import LossError, Outcome, call, passed
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.layouts import call_arguments
from testbed.conformance.signature import Binding
from testbed.data.batch import Batch

TOLERANCE = 1e-5
"""Relative difference of two weights that counts as equal, for a loss in float64."""
TOLERANCE_SINGLE = 2e-3
"""The same for a loss of lower precision."""


@dataclass(frozen=True)
class Evidence:
    """The stack as tensors with a leading axis R, and the weights of a user's loss on it [R, B, T]."""

    binding: Binding
    rows: tuple[Rows, ...]
    logp: Tensor
    batch: Batch
    weight: Tensor
    tolerance: float
    form: str
    values: tuple[float, ...]
    calm: "Evidence | None" = None

    @cached_property
    def leaks(self) -> bool:
        """True if a token outside the mask has a weight."""
        return bool((self.weight[~self.batch.mask_BT] != 0).any())

    @cached_property
    def further(self) -> list[tuple[Tensor, Batch, Tensor]]:
        """What `answered` returns on further batches."""
        return [answered(self.binding, rows) for rows in more_batches()]

    @cached_property
    def kept(self) -> Floats:
        """The weights under the mask [N]."""
        found: Floats = self.weight[self.batch.mask_BT].numpy()
        return found

    def of(self, reference: Reference) -> Floats:
        """Return a reference's weights on the same tokens [N]; raise what the objective raises."""
        found: Floats = reference.weights(self.logp, self.batch)[self.batch.mask_BT].numpy()
        return found

    @cached_property
    def reads(self) -> frozenset[str]:
        """Inputs that the weights depend on, among mu, anchor, ref, adv and reward."""
        found = set()
        for name in ("mu", "anchor", "ref"):
            field = f"logp_{name}_BT"
            # Another shift for every token: a loss may ignore one that all tokens share.
            other = getattr(self.batch, field) + 0.037 * torch.sin(
                torch.arange(self.batch.mask_BT.numel()) + 1.0
            ).reshape(self.batch.mask_BT.shape)
            if self._differs(replace(self.batch, **{field: other})):
                found.add(name)
        if self._differs(replace(self.batch, adv_BT=self.batch.adv_BT * 1.37 + 0.11)):
            found.add("adv")
        if self._differs(replace(self.batch, reward_B=self.batch.reward_B.flip(-1))):
            found.add("reward")
        return frozenset(found)

    @cached_property
    def scope(self) -> str:
        """Tokens that a token's weight depends on: token, sequence, group or batch."""
        reached = "token"
        order = ("token", "sequence", "group", "batch")
        # Small and large ratios: some losses look at other tokens only beyond a bound.
        for r, row in ((3, 0), (9, 1), (10, 2), (9, 3), (11, 0)):
            column = int(self.batch.mask_BT[r, row].nonzero()[-1])
            for move in (0.31, -0.37, 1.3, -1.3):
                logp = self.logp[r].clone()
                logp[row, column] += move
                one = self.batch.map(itemgetter(r))
                moved = ~close(call(self.binding, logp, one).weight_BT, self.weight[r], self.tolerance)
                moved[row, column] = False
                group_B = one.group_B == one.group_B[row]
                now = "token"
                if bool(moved[row].any()):
                    now = "sequence"
                if bool(moved[group_B].any(-1).sum() > int(moved[row].any())):
                    now = "group"
                if bool(moved[~group_B].any()):
                    now = "batch"
                reached = max(reached, now, key=order.index)
        return reached

    def _differs(self, batch: Batch) -> bool:
        for r in (1, 4, 8, 10):
            one = batch.map(itemgetter(r))
            found = call(self.binding, self.logp[r], one).weight_BT
            if not bool(close(found, self.weight[r], self.tolerance).all()):
                return True
        return False


def gather(binding: Binding, rows: Sequence[Rows] | None = None) -> Evidence:
    """Return the evidence of a loss on the stack, or on the given batches of one shape.

    Raises LossError as `call` does, if a weight or the loss is not finite, if the call changes its inputs,
    and if all weights of the stack are 0.
    """
    whole = rows is None
    quiet = gather(binding, calm()) if whole else None
    rows = tuple(visible(each, binding) for each in rows or stack())
    made = [tensors(each) for each in rows]
    outcomes = [sound(binding, logp, batch) for logp, batch in made]
    if whole and not any(bool(each.weight_BT.any()) for each in outcomes):
        raise LossError(
            "detached",
            f"{binding.name} has a gradient of 0 in every batch: none leads back to the log-probabilities.",
        )
    single = any(each.dtype != torch.float64 for each in outcomes)
    return Evidence(
        binding,
        rows,
        torch.stack([logp for logp, _ in made]),
        joined([batch for _, batch in made]),
        torch.stack([each.weight_BT for each in outcomes]),
        TOLERANCE_SINGLE if single else TOLERANCE,
        outcomes[0].form,
        tuple(each.value for each in outcomes),
        quiet,
    )


def widened(evidence: Evidence, ratios: Sequence[float]) -> Evidence:
    """Add batches with ratios around the given ones, at which a weight may jump."""
    rows: list[Row] = []
    for log in sorted({math.log(x) for x in ratios if 1e-5 < abs(math.log(x)) < 3}, key=abs)[:10]:
        for share in (0.97, 1.03):
            for adv, length in ((1.0, 1), (-1.0, 2), (0.7, 4), (-0.6, 5)):
                one = Token(share * log, 0.0, 0.1)
                rows.append(Row((one,) * length, adv, 0.5 + adv / 4, len(rows) % 3))
                if not evidence.binding.one_old:
                    two = replace(one, log_ratio=0.0, log_mismatch=share * log)
                    rows.append(Row((two,) * length, adv, 0.5 + adv / 4, len(rows) % 3))
    wide = Row((Token(),) * WIDTH)
    added = [tuple([*rows[i : i + ROWS - 1], *(wide,) * ROWS][:ROWS]) for i in range(0, len(rows), ROWS - 1)]
    more = (*evidence.rows, *added)
    return replace(gather(evidence.binding, more), calm=evidence.calm) if added else evidence


def visible(rows: Rows, binding: Binding) -> Rows:
    """Return the rows as the loss can see them: with mu = anchor if it takes one old log-probability."""
    return collapsed(rows) if binding.one_old else rows


def sound(binding: Binding, logp: Tensor, batch: Batch) -> Outcome:
    """Return the outcome of a call with ordinary numbers; raise LossError if it is not finite."""
    found = call(binding, logp, batch)
    if not (np.isfinite(found.value) and bool(torch.isfinite(found.weight_BT).all())):
        words = passed(call_arguments(binding, logp, batch, torch.float64))
        what = f"a loss of {found.value}" if not np.isfinite(found.value) else "a gradient that is not finite"
        raise LossError(
            "nan", f"{binding.name} returned {what}, but every number it was passed is finite: {words}."
        )
    return found


def close(first: Tensor, second: Tensor, tolerance: float) -> Tensor:
    """Return True where two sets of weights agree: within the relative tolerance, or both nearly 0."""
    size = torch.maximum(first.abs(), second.abs())
    finite = torch.where(torch.isfinite(size), size, torch.zeros_like(size))
    floor = trace(finite.numpy().ravel(), tolerance)
    # Of the finite size: an infinite tolerance would let an infinite weight agree with any.
    return ((first - second).abs() <= tolerance * finite + floor) | (first == second)


def trace(size: Floats, tolerance: float) -> float:
    """Return the size below which a weight counts as 0, given weights of these sizes.

    1e-9 of the largest in float64. With less precision a weight that cancels keeps fewer digits: 1e-5 of the
    9th decile, because a single large weight says nothing about the others.
    """
    if not size.size:
        return 0.0
    return 1e-9 * float(size.max()) if tolerance <= TOLERANCE else 1e-5 * float(np.quantile(size, 0.9))


def likeness(mine: Floats, theirs: Floats, tolerance: float) -> tuple[float, float, float]:
    """Return (share of tokens that agree, cosine, factor): mine = factor * theirs, the factor a median."""
    both = (mine != 0) & (theirs != 0) & np.isfinite(theirs)
    if not both.any():
        return float(np.mean((mine == 0) & (theirs == 0))), 0.0, 1.0
    with np.errstate(over="ignore"):
        factor = float(np.median(mine[both] / theirs[both]))
    finite = np.where(np.isfinite(theirs), theirs, 0.0)
    size = np.maximum(np.abs(mine), np.abs(factor * finite))
    agree = np.abs(mine - factor * theirs) <= tolerance * size + trace(size, tolerance)
    norm = float(np.linalg.norm(mine) * np.linalg.norm(finite))
    cosine = float(mine @ finite) / norm if norm else 0.0
    return float(agree.mean()), cosine, factor


def more_batches(count: int = 24, seed: int = 1) -> list[Rows]:
    """Return further batches, of other sizes and scales than the stack's."""
    draw = random.Random(seed)
    sizes = (0.001, 0.03, 0.2, 0.5, 1.2)
    draws = [(draw.randint(2, 7), draw.randint(2, 9), sizes[index % 5]) for index in range(count)]
    return [random_rows(draw, *each, 0.2) for each in draws]


def parts(binding: Binding, reference: Reference, batches: Sequence[Rows], tolerance: float) -> Rows | None:
    """Return the first of the batches on which loss and reference have different weights, or None."""
    return next((rows for rows in batches if differs(binding, reference, tolerance)(rows)), None)


def differs(binding: Binding, reference: Reference, tolerance: float) -> Callable[[Rows], bool]:
    """Return a function that is True for batches on which loss and reference differ."""

    def parted(rows: Rows) -> bool:
        return unlike(reference, *answered(binding, rows), tolerance)

    return parted


def answered(binding: Binding, rows: Rows) -> tuple[Tensor, Batch, Tensor]:
    """Return logp and batch of the rows as the loss can see them, and its weights."""
    logp, batch = tensors(visible(rows, binding))
    return logp, batch, call(binding, logp, batch).weight_BT


def unlike(reference: Reference, logp: Tensor, batch: Batch, mine: Tensor, tolerance: float) -> bool:
    """Return True where a loss's weights differ from the reference's, or reach outside the mask."""
    alike = close(mine, reference.weights(logp, batch), tolerance)
    for step in (1e-8, -1e-8):  # on a bound either side is right
        if not bool(alike[batch.mask_BT].all()):
            beside = reference.weights(logp + step * batch.mask_BT, batch)
            alike = alike | close(mine, beside, tolerance)
    return not bool(alike[batch.mask_BT].all()) or bool((mine[~batch.mask_BT] != 0).any())
