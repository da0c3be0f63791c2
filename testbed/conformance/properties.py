"""Properties that trainers rely on: a strategy for batches and a condition that must hold on all."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter

import torch
from hypothesis import strategies as st
from torch import Tensor

from testbed.conformance.batches import Row, Rows, Token, tensors
from testbed.conformance.calling import call, reaches_old
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.loss_evidence import close, visible
from testbed.conformance.signature import Binding
from testbed.conformance.strategies import batches
from testbed.data.batch import Batch
from testbed.losses.aggregate import micro_batch_weights
from testbed.objectives import objective

SINGLE, HALF = 2e-4, 6e-2
"""Relative tolerance of weights in float32 and in bfloat16, with inputs rounded for both sides."""


@dataclass(frozen=True)
class Judged:
    """A loss and its intended entry; tolerance of weights in float64."""

    binding: Binding
    reference: Reference
    tolerance: float

    def weights(
        self,
        logp: Tensor,
        batch: Batch,
        dtype: torch.dtype = torch.float64,
        totals: tuple[int, int] | None = None,
    ) -> Tensor:
        return call(self.binding, logp, batch, dtype, totals).weight_BT

    def expected(self, logp: Tensor, batch: Batch, beside: float) -> list[Tensor]:
        """Return the entry's weights there and slightly to both sides: on a bound either is right."""
        found = [self.reference.weights(logp, batch)]
        for step in (beside, -beside) if beside else ():
            found.append(self.reference.weights(logp + step, batch))
        return found


@dataclass(frozen=True)
class Property:
    """One line of the battery.

    says: the property in words. robust: a failure is a warning, not a verdict. when: an invisible change to
    the counterexample's batch.
    """

    name: str
    says: str
    strategy: Callable[[Judged], st.SearchStrategy[Rows]]
    broken: Callable[[Judged, Rows], bool]
    robust: bool = False
    when: str = ""
    absent: Callable[[Judged], str] = lambda _: ""
    examples: int = 40


def unlike(
    judged: Judged, mine: Tensor, logp: Tensor, batch: Batch, tolerance: float = 0.0, beside: float = 1e-8
) -> bool:
    """Return True if a token under the mask has a different weight than in the entry."""
    tolerance = max(tolerance, judged.tolerance)
    alike = torch.zeros_like(batch.mask_BT)
    for theirs in judged.expected(logp, batch, beside):
        usable = torch.isfinite(theirs) & (theirs.abs() < 1e30)
        alike = alike | close(mine, theirs, tolerance) | ~usable & ~torch.isnan(mine)
    # A weight that cancels is as exact as its terms: the weights at ratio 1.
    ordinary_ = judged.reference.weights(batch.logp_anchor_BT, batch).abs().max()
    share = tolerance if tolerance >= SINGLE else 1e-3 * tolerance
    alike = alike | ((mine - judged.expected(logp, batch, 0)[0]).abs() <= share * ordinary_)
    return bool((~alike & batch.mask_BT).any()) or bool((mine[~batch.mask_BT] != 0).any())


def equal(judged: Judged, rows: Rows) -> bool:
    """True if weights differ from the entry's."""
    logp, batch = tensors(visible(rows, judged.binding))
    return unlike(judged, judged.weights(logp, batch), logp, batch)


def padded(judged: Judged, rows: Rows) -> bool:
    """The same with more columns and other numbers outside the mask."""
    width = max(len(row.tokens) for row in rows) + 3
    logp, batch = tensors(visible(rows, judged.binding), width, garbage=-7.0)
    return unlike(judged, judged.weights(logp, batch), logp, batch)


def garbage(judged: Judged, rows: Rows) -> bool:
    """The same with NaN and infinities outside the mask."""
    rows = visible(rows, judged.binding)
    width = max(len(row.tokens) for row in rows) + 1
    for value in (math.nan, math.inf, 1e4):
        logp, batch = tensors(rows, width, garbage=value)
        plain, clean = tensors(rows, width)
        mine = judged.weights(logp, batch)
        if unlike(judged, torch.where(batch.mask_BT, mine, torch.nan_to_num(mine)), plain, clean):
            return True
        if bool(torch.isnan(mine).any()):
            return True
    return False


def reordered(judged: Judged, rows: Rows) -> bool:
    """True if a row's weights change when rows are reordered."""
    rows = visible(rows, judged.binding)
    width = max(len(row.tokens) for row in rows)
    order = [*range(1, len(rows)), 0]
    logp, batch = tensors(rows, width)
    moved = batch.map(itemgetter(order))
    first, second = judged.weights(logp, batch)[order], judged.weights(logp[order], moved)
    return not bool(close(first, second, judged.tolerance).all())


def rounded(dtype: torch.dtype, tolerance: float, beside: float) -> Callable[[Judged, Rows], bool]:
    """True if weights in a number format differ from the entry's in float64 on the same numbers."""

    def broken(judged: Judged, rows: Rows) -> bool:
        logp, batch = tensors(visible(rows, judged.binding), dtype=dtype)
        mine = judged.weights(logp, batch, dtype)
        near = judged.expected(logp, batch, beside)
        steady = torch.ones_like(batch.mask_BT)
        for each in near[1:]:
            steady = steady & close(near[0], each, 4 * tolerance)
        if not bool(steady[batch.mask_BT].all()):
            return False  # rounding alone can cross a bound
        return unlike(judged, mine, logp, batch, tolerance, beside=0.0)

    return broken


def extreme(judged: Judged, rows: Rows) -> bool:
    """True if a weight is NaN, or finite but not the expected number, in float64 or float32."""
    for dtype, tolerance in ((torch.float64, judged.tolerance), (torch.float32, 1e-2)):
        logp, batch = tensors(visible(rows, judged.binding), dtype=dtype)
        mine = judged.weights(logp, batch, dtype)
        if bool(torch.isnan(mine).any()) or unlike(judged, mine, logp, batch, tolerance, beside=0.0):
            return True
    return False


def split(judged: Judged, rows: Rows) -> bool:
    """True if gradients of micro-batches or ranks do not add up to the batch's."""
    alone = tuple(replace(row, group=0) for row in visible(rows, judged.binding))
    logp, batch = tensors(alone)
    whole = judged.weights(logp, batch)
    totals = (int(batch.mask_BT.sum()), len(rows))
    cut = max(1, len(rows) // 3)
    parts = [slice(0, cut), slice(cut, len(rows))]
    masks = [batch.mask_BT[part] for part in parts]
    global_ = {"tokens", "sequences"} & judged.binding.roles
    mode, length = judged.reference.aggregation, judged.reference.length
    share = [1.0, 1.0] if global_ else micro_batch_weights(masks, mode, length).tolist()
    found = []
    for part, weight in zip(parts, share, strict=True):
        found.append(weight * judged.weights(logp[part], batch.map(itemgetter(part)), totals=totals))
    return not bool(close(torch.cat(found), whole, judged.tolerance).all())


def _cut(value: Tensor, part: slice, met_B: Tensor) -> Tensor:
    """Select columns of arrays with columns, and rows."""
    return (value[:, part] if value.dim() == 2 else value)[met_B]


def chunked(judged: Judged, rows: Rows) -> bool:
    """True if gradients of two chunks of columns, as of chunked logits, do not add up to the batch's."""
    alone = tuple(replace(row, group=0) for row in visible(rows, judged.binding))
    logp, batch = tensors(alone)
    whole = judged.weights(logp, batch)
    total, cut = int(batch.mask_BT.sum()), max(1, logp.shape[1] // 2)
    found = torch.zeros_like(whole)
    for part in (slice(0, cut), slice(cut, logp.shape[1])):
        kept_BT = batch.mask_BT[:, part]
        met_B = kept_BT.any(1)  # trainers pass no row without a token
        if not met_B.any():
            continue
        one = batch.map(partial(_cut, part=part, met_B=met_B))
        weight = 1.0 if "tokens" in judged.binding.roles else int(kept_BT.sum()) / total
        found[met_B, part] = weight * judged.weights(logp[met_B, part], one, totals=(total, len(rows)))
    return not bool(close(found, whole, judged.tolerance).all())


def repeated(judged: Judged, rows: Rows) -> bool:
    """True if a second call gives other weights than the first, which breaks gradient accumulation."""
    logp, batch = tensors(visible(rows, judged.binding))
    first, second = judged.weights(logp, batch), judged.weights(logp, batch)
    return not bool(close(first, second, 0.0).all())


def changed(judged: Judged, rows: Rows) -> bool:
    """True if a call changes its inputs."""
    logp, batch = tensors(visible(rows, judged.binding), garbage=-3.0)
    return bool(call(judged.binding, logp, batch).changed)


def attached(judged: Judged, rows: Rows) -> bool:
    """True if old log-probabilities receive a gradient; a trainer may compute them with a graph."""
    return reaches_old(judged.binding, *tensors(visible(rows, judged.binding)))


def apart(judged: Judged, rows: Rows) -> bool:
    """True if a response's weights change with the log-probabilities of its neighbors."""
    rows = visible(rows, judged.binding)
    logp, batch = tensors(rows)
    before = judged.weights(logp, batch)
    moved = logp.clone()
    moved[0] = moved[0] - 0.7
    after = judged.weights(moved, batch)
    return not bool(close(before[1:], after[1:], judged.tolerance).all())


def bounds(reference: Reference) -> list[float]:
    """Return the log-ratios at which the entry's hyperparameters imply a change."""
    hyper = dict(objective[reference.objective].defaults) | dict(reference.hyper)
    ratios = set()
    for value in hyper.values():
        if isinstance(value, float) and 0 < value < 50:
            ratios |= {value, 1 + value} | ({1 - value} if value < 1 else set())
    return sorted(math.log(x) for x in ratios if 0.01 < x < 100)


def around(judged: Judged) -> list[float]:
    """Return log-ratios on both sides of the bounds, near and far."""
    logs = bounds(judged.reference)
    return [x for log in logs for x in (log - 0.05, log + 0.05, 0.9 * log, 1.1 * log, -log, 2 * log)]


def ordinary(judged: Judged, **more: object) -> st.SearchStrategy[Rows]:
    """Return the strategy of ordinary batches."""
    return batches(mismatch=not judged.binding.one_old, **more)  # type: ignore[arg-type]


def far(size: float) -> Callable[[Judged], st.SearchStrategy[Rows]]:
    """Return rows of one token with log-ratios up to a size, of both signs, besides ordinary ones."""
    logs = [sign * size * share for share in (1.0, 0.5, 0.25) for sign in (1, -1)]
    token = st.sampled_from(logs).map(lambda x: (Token(x),))
    calm = st.sampled_from([0.0, 0.1, -0.1]).map(lambda x: (Token(x), Token(-x)))
    row = st.builds(Row, st.one_of(token, calm), st.sampled_from((1.0, -1.0)), st.sampled_from((0.0, 1.0)))
    return lambda _: st.lists(row, min_size=2, max_size=4).map(tuple)


def exact_halves(judged: Judged) -> st.SearchStrategy[Rows]:
    """Return batches with log-ratios that bfloat16 represents exactly."""
    token = st.sampled_from([0.0, 0.5, -0.5, 1.0, -1.0, 0.125, -0.25]).map(lambda x: Token(x))
    row = st.builds(Row, st.lists(token, min_size=1, max_size=4).map(tuple),
                    st.sampled_from((1.0, -1.0, 0.5)),
                    st.sampled_from((0.0, 1.0)), st.integers(0, 1))  # fmt: skip
    del judged
    return st.lists(row, min_size=1, max_size=4).map(tuple)
