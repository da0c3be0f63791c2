"""The battery: every property that `conform` tests, in order."""

import torch
from hypothesis import strategies as st

from testbed.conformance.batches import Row, Rows, Token
from testbed.conformance.properties import (
    HALF,
    SINGLE,
    Judged,
    Property,
    apart,
    around,
    attached,
    bounds,
    changed,
    chunked,
    equal,
    exact_halves,
    extreme,
    far,
    garbage,
    ordinary,
    padded,
    reordered,
    repeated,
    rounded,
    split,
)
from testbed.objectives import objective


def _on_bounds(judged: Judged) -> st.SearchStrategy[Rows]:
    logs = bounds(judged.reference) or [0.0]
    token = st.sampled_from([x for log in logs for x in (log, -log)]).map(lambda x: Token(x))
    row = st.builds(Row, st.lists(token, min_size=1, max_size=2).map(tuple), st.sampled_from((1.0, -1.0)),
                    st.sampled_from((0.0, 1.0)), st.integers(0, 1))  # fmt: skip
    return st.lists(row, min_size=1, max_size=3).map(tuple)


def _no_padding(judged: Judged) -> str:
    return "" if judged.binding.layout == "padded" else "rows of this layout have no padding"


def _no_neighbors(judged: Judged) -> str:
    if objective[judged.reference.objective].promises.get("scope") in ("group", "batch"):
        return "the entry itself looks beyond a response"
    return "" if judged.binding.layout == "packed" else "the loss takes no packed row"


def _no_parts(judged: Judged) -> str:
    if objective[judged.reference.objective].promises.get("scope") in ("group", "batch"):
        return "the entry itself looks beyond a response"
    if "batch" in judged.binding.roles or judged.reference.advantage:
        return "the loss needs whole groups"
    return ""


def _no_chunks(judged: Judged) -> str:
    if objective[judged.reference.objective].promises.get("scope") != "token":
        return "the entry itself looks beyond a token"
    if judged.reference.aggregation != "token_mean" or judged.binding.layout != "padded":
        return "only padded losses with a mean over tokens are asked"
    return _no_parts(judged)


def _not_detached(judged: Judged) -> str:
    if not objective[judged.reference.objective].promises.get("detached"):
        return "the entry's weight carries a gradient itself"
    return ""


def _several(judged: Judged) -> st.SearchStrategy[Rows]:
    return ordinary(judged, rows=(2, 5), holes=True)


BATTERY = (
    Property("ordinary batches", "weights of the entry on nice ratios, both signs of A", ordinary, equal,
             examples=60),
    Property("both sides of every bound", "weights just inside and outside each bound, for both signs of A",
             lambda judged: ordinary(judged, log_ratios=around(judged)), equal, examples=60),
    Property("on the bounds", "weights on a bound are those of one of its sides", _on_bounds, equal),
    Property("responses of one token", "weights where T = 1",
             lambda judged: ordinary(judged, longest=1), equal, examples=25),
    Property("ragged rows, masked middles", "weights with tool tokens inside responses",
             lambda judged: ordinary(judged, holes=True), equal, examples=50),
    Property("groups of one, equal rewards, A = 0", "weights where groups say nothing",
             lambda judged: ordinary(judged, advantages=(0.0, 1.0, -1.0), groups=5), equal),
    Property("padding", "weights with more columns, other numbers in them",
             lambda judged: ordinary(judged, holes=True), padded,
             when="three more columns, -7 in all of them", absent=_no_padding, examples=25),
    Property("order of rows", "a row keeps its weights when rows change places", _several, reordered,
             when="the first row put last", examples=20),
    Property("packed neighbors", "a response keeps its weights when its neighbor changes",
             _several, apart,
             when="log pi of the first row lowered by .7", absent=_no_neighbors, examples=25),
    Property("micro-batches and ranks", "parts with the whole's divisors add up to the whole",
             _several, split, when="cut into two parts", absent=_no_parts, examples=25),
    Property("chunks of tokens", "two chunks of columns, weighted by their tokens, add up to the whole",
             _several, chunked, when="cut into two chunks of columns", absent=_no_chunks, examples=20),
    Property("gradient accumulation", "a second call adds the same gradient again", ordinary, repeated,
             when="called twice", examples=8),
    Property("detached weights", "no gradient leads to the old log-probabilities", ordinary, attached,
             robust=True, when="old log-probabilities with a gradient", absent=_not_detached, examples=8),
    Property("inputs unchanged", "no input is changed in place", _several, changed,
             when="an input has other numbers after the call", examples=8),
    Property("float32", f"weights of float64 to {SINGLE:g}", lambda judged: ordinary(judged, holes=True),
             rounded(torch.float32, SINGLE, 1e-5), when="in float32", examples=30),
    Property("bfloat16", f"weights of float64 to {HALF:g}", exact_halves,
             rounded(torch.bfloat16, HALF, 0.03), when="in bfloat16", examples=25),
    Property("log-ratios up to 80", "finite and right in float64 and float32", far(80.0), extreme,
             when="in float64 or float32", examples=25),
    Property("log-ratios up to 800", "finite and right where exp overflows", far(800.0), extreme, robust=True,
             when="in float64 or float32",
             examples=25),
    Property("NaN under the mask", "NaN, infinities and garbage there leave no trace",
             lambda judged: ordinary(judged, holes=True), garbage, robust=True,
             when="NaN, inf and 1e4 under the mask", examples=12),
)  # fmt: skip
"""Failures of robust properties are warnings: common code has them, and harm depends on the trainer."""
