"""One compiled step of generation through a block, one replica after another.

Handwritten: a replica's weights and features (100 KB) then stay in the innermost cache from the first product
to the last, while torch's products over all replicas use slower memory. Columns are padded to multiples of
32, so that products use full vectors only.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.policies.toy.products import copy, cut, normalize, padded, product
from testbed.policies.toy.simd import (
    Vector,
    compiled,
    compiled_for_weights,
    exp2,
    largest,
    load,
    load_some,
    spread,
    store,
    store_some,
)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Counts = NDArray[np.uint64]
Tokens = NDArray[np.int64]
Flags = NDArray[np.bool_]
Block = tuple[Floats, Floats, Floats, Floats]
"""Weights [R, outputs, inputs]: qkv, out, up, down."""
Rooms = tuple[Floats, Floats, Floats, Floats, Floats]
Three = tuple[int, int, int]
Own = tuple[Floats, int, int]
"""Queries, keys and values of own tokens; first row of token 0, and rows from token to token."""
Cache = tuple[Floats, Floats]
"""Queries, keys and values of prompts, and the biases of their columns."""
Served = tuple[int, int, int, bool]
"""First response and number of responses (at most eight), column of their prompts, True if it serves all."""

U: Any = np.uint64
ZERO, ONE, TWO, THREE, FOUR, EIGHT = (U(i) for i in (0, 1, 2, 3, 4, 8))
NOTHING, UNIT = np.float32(0.0), np.float32(1.0)
LOG2_E = 1.0 / math.log(2.0)


@compiled_for_weights("embedding_RDE", "layers", "head_RVD")
def generate(
    token_RBT: Tokens,
    mask_RBT: Flags,
    logp_RBT: Floats,
    uniform_RBT: Doubles,
    first_RVN: Floats,
    prompts: tuple[Floats, ...],
    bias_RC: Floats,
    embedding_RDE: Floats,
    layers: tuple[Block, ...],
    head_RVD: Floats,
    counts: Three,
    numbers: tuple[np.float32, np.float32],
) -> None:
    """Draw whole responses by inverse CDF, from first-token probabilities and the cache of `prompts`.

    counts: prompts' tokens, heads, end token (V if none). numbers: temperature, epsilon.
    """
    length, heads, end = counts
    R, B, T = U(token_RBT.shape[0]), U(token_RBT.shape[1]), U(token_RBT.shape[2])
    D, V = U(embedding_RDE.shape[1]), U(head_RVD.shape[1])
    group, rows, width = B // U(first_RVN.shape[2]), THREE * D, padded(B)
    rooms = _rooms(D, U(layers[0][2].shape[1]), width)
    x, normed = rooms[0], rooms[1]
    logp, power = np.zeros((V, width), np.float32), np.zeros((V, width), np.float32)
    own = np.zeros((U(len(layers)), T * rows, width), np.float32)
    scores = np.zeros((length + T, EIGHT), np.float32)
    drawn, alive = np.zeros(B, np.uint64), np.ones(B, np.bool_)
    for r in range(R):
        alive[:] = True
        for v in range(V):
            for b in range(B):
                logp[v, b] = first_RVN[r, v, b // group]
        for t in range(T):
            _draw(drawn, logp, power, uniform_RBT[r, :, t])
            living = ZERO
            for b in range(B):
                if alive[b]:
                    token_RBT[r, b, t], mask_RBT[r, b, t] = drawn[b], True
                    logp_RBT[r, b, t] = logp[drawn[b], b]
                    alive[b] = drawn[b] != end
                    living += U(alive[b])
            if t == T - ONE or living == ZERO:
                break
            for d in range(D):
                for b in range(B):
                    x[d, b] = embedding_RDE[r, d, drawn[b]] + embedding_RDE[r, d, V + length + t]
            for i in range(U(len(layers))):
                place, now = (ZERO, rows, t * rows), (t + ONE, length, heads)
                cache = prompts[i][r], bias_RC[r : r + ONE]
                _block(rooms, scores, own[i], place, cache, layers[i], r, now, B, numbers[1])
            _next_logp(logp, normed, x, head_RVD[r], numbers)


@compiled_for_weights("layer")
def step(
    y_RDB: Floats,
    x_RDB: Floats,
    own_XB: Floats,
    prompt_RIC: Floats,
    bias_RC: Floats,
    layer: Block,
    counts: Three,
    epsilon: np.float32,
) -> None:
    """y = the block's output for the newest tokens' features x; stores their queries, keys and values.

    own_XB: queries, keys and values of the responses' tokens, rows (token, replica, 3 D), the newest last.
    prompt_RIC: those of prompts; column k C + c is token k of column c, which serves B / C responses side by
    side. bias_RC is HIDDEN at padding. counts: tokens of responses, tokens of prompts, heads.
    """
    R, D, B = U(x_RDB.shape[0]), U(x_RDB.shape[1]), U(x_RDB.shape[2])
    rows, stride = THREE * D, R * THREE * D
    rooms = _rooms(D, U(layer[2].shape[1]), padded(B))
    x = rooms[0]
    scores = np.zeros((counts[0] + counts[1], EIGHT), np.float32)
    for r in range(R):
        copy(x, ZERO, x_RDB[r], B)
        place = r * rows, stride, (counts[0] - ONE) * stride + r * rows
        cache = prompt_RIC[r], bias_RC[r : r + ONE]
        _block(rooms, scores, own_XB, place, cache, layer, r, counts, B, epsilon)
        copy(y_RDB[r], ZERO, x, B)


@compiled
def _rooms(D: int, H: int, width: int) -> Rooms:
    """Allocate features, normalized ones, attended ones, queries with keys and values, hidden units."""
    x, normed = np.zeros((D, width), np.float32), np.zeros((D, width), np.float32)
    o, qkv = np.zeros((D, width), np.float32), np.zeros((THREE * D, width), np.float32)
    return x, normed, o, qkv, np.zeros((H, width), np.float32)


@compiled
def _block(
    rooms: Rooms,
    scores: Floats,
    own_XB: Floats,
    place: Three,
    cache: Cache,
    layer: Block,
    r: int,
    counts: Three,
    B: int,
    epsilon: np.float32,
) -> None:
    """Pass x through a block. place: first row of own token 0, rows from token to token, the newest's."""
    (first, stride, newest), (x, normed, o, qkv, hidden) = place, rooms
    normalize(normed, x, epsilon)
    product(qkv, layer[0][r], normed, False)
    copy(own_XB, newest, qkv, B)
    _attend(o, (own_XB, first, stride), cache, scores, counts, B)
    product(x, layer[1][r], o, True)
    normalize(normed, x, epsilon)
    product(hidden, layer[2][r], normed, False)
    cut(hidden)
    product(x, layer[3][r], hidden, True)


@compiled
def _next_logp(
    logp: Floats, normed: Floats, x: Floats, head: Floats, numbers: tuple[np.float32, np.float32]
) -> None:
    """Fill logp with log softmax(head norm(x) / temperature)."""
    V, B = U(logp.shape[0]), U(logp.shape[1])
    normalize(normed, x, numbers[1])
    product(logp, head, normed, False)
    for b in range(ZERO, B, EIGHT):
        high = load(logp, ZERO, b) / spread(numbers[0])
        for v in range(V):
            logit = load(logp, v, b) / spread(numbers[0])
            store(logp, v, b, logit)
            high = largest(logit, high)
        total = spread(NOTHING)
        for v in range(V):
            logit = load(logp, v, b) - high
            store(logp, v, b, logit)
            total = total + exp2(logit * spread(np.float32(LOG2_E)))
        store(normed, ZERO, b, total)
    for b in range(B):
        normed[ZERO, b] = np.log(normed[ZERO, b])
    for v in range(V):
        for b in range(B):
            logp[v, b] -= normed[ZERO, b]


@compiled
def _draw(drawn: Counts, logp: Floats, power: Floats, uniform_B: Doubles) -> None:
    """Draw the tokens at which the cumulative distribution passes each uniform, as `sampler.inverse_cdf`."""
    V, B = U(logp.shape[0]), U(drawn.size)
    for v in range(V):
        for b in range(ZERO, U(logp.shape[1]), EIGHT):
            store(power, v, b, exp2(load(logp, v, b) * spread(np.float32(LOG2_E))))
    for b in range(B):
        total = 0.0
        for v in range(V):
            total += power[v, b]
        threshold, passed, drawn[b] = min(uniform_B[b] * total, np.nextafter(total, 0.0)), 0.0, ZERO
        for v in range(V):
            passed += power[v, b]
            drawn[b] += U(passed <= threshold)


@compiled
def attend_step(o_RDB: Floats, own_XB: Floats, prompt_RIC: Floats, bias_RC: Floats, counts: Three) -> None:
    """Compute only the attention of the newest token, for a block that `step` does not cover."""
    R, rows = U(o_RDB.shape[0]), U(prompt_RIC.shape[1])
    scores = np.zeros((counts[0] + counts[1], EIGHT), np.float32)
    for r in range(R):
        cache = prompt_RIC[r], bias_RC[r : r + ONE]
        _attend(o_RDB[r], (own_XB, r * rows, R * rows), cache, scores, counts, U(own_XB.shape[1]))


@compiled
def _attend(o: Floats, own: Own, cache: Cache, scores: Floats, counts: Three, B: int) -> None:
    """o = attention of the newest of the own tokens; token t's rows start at first + t stride."""
    third = U(cache[0].shape[0]) // THREE
    C = U(cache[0].shape[1]) // counts[1] if counts[1] else B
    blocks = C if C < B else ONE
    group = B // blocks
    for c in range(blocks):
        for i in range(ZERO, group, EIGHT):
            b = c * group + i
            to = b, min(EIGHT, group - i), c if C < B else i, C < B
            for row in range(ZERO, third, third // counts[2]):
                _score(scores, own, cache, counts, row, to)
                total = _exponentials(scores, counts[0] + counts[1])
                _mix(o, scores, total, own, cache, counts, row, to)


@compiled
def _score(scores: Floats, own: Own, cache: Cache, counts: Three, row: int, to: Served) -> None:
    """scores = query key / sqrt(head width) log2(e) of up to eight responses, prompt's tokens first."""
    (own_XB, first, stride), (prompt_IC, bias_1C) = own, cache
    (tokens, length, heads), (b, n, left, shared) = counts, to
    third = U(prompt_IC.shape[0]) // THREE
    head = third // heads
    C, newest = U(prompt_IC.shape[1]) // max(length, ONE), first + (tokens - ONE) * stride
    for k in range(length):
        store(scores, k, ZERO, _given(bias_1C, ZERO, k * C + left, n, shared))
    for t in range(tokens):
        store(scores, length + t, ZERO, spread(NOTHING))
    scale = spread(np.float32(LOG2_E / math.sqrt(head)))
    for d in range(row, row + head, FOUR):
        q0 = load_some(own_XB, newest + d, b, n) * scale
        q1 = load_some(own_XB, newest + d + ONE, b, n) * scale
        q2 = load_some(own_XB, newest + d + TWO, b, n) * scale
        q3 = load_some(own_XB, newest + d + THREE, b, n) * scale
        for k in range(length):
            i, j = third + d, k * C + left
            s = load(scores, k, ZERO)
            s = s + q0 * _given(prompt_IC, i, j, n, shared) + q1 * _given(prompt_IC, i + ONE, j, n, shared)
            s = s + q2 * _given(prompt_IC, i + TWO, j, n, shared)
            s = s + q3 * _given(prompt_IC, i + THREE, j, n, shared)
            store(scores, k, ZERO, s)
        for t in range(tokens):
            i = first + t * stride + third + d
            s = load(scores, length + t, ZERO)
            s = s + q0 * load_some(own_XB, i, b, n) + q1 * load_some(own_XB, i + ONE, b, n)
            s = s + q2 * load_some(own_XB, i + TWO, b, n) + q3 * load_some(own_XB, i + THREE, b, n)
            store(scores, length + t, ZERO, s)


@compiled
def _exponentials(scores: Floats, rows: int) -> Vector:
    """Turn scores into 2^(score - largest); return their sum."""
    high, total = load(scores, ZERO, ZERO), spread(NOTHING)
    for k in range(ONE, rows):
        high = largest(load(scores, k, ZERO), high)
    for k in range(rows):
        power = exp2(load(scores, k, ZERO) - high)
        store(scores, k, ZERO, power)
        total = total + power
    return total


@compiled
def _mix(
    o: Floats, p: Floats, total: Vector, own: Own, cache: Cache, counts: Three, row: int, to: Served
) -> None:
    """o = sum of values, weighted by p / total."""
    (own_XB, first, stride), prompt_IC = own, cache[0]
    (tokens, length, heads), (b, n, left, shared) = counts, to
    third = U(prompt_IC.shape[0]) // THREE
    C, share = U(prompt_IC.shape[1]) // max(length, ONE), spread(UNIT) / total
    for d in range(row, row + third // heads, FOUR):
        o0 = o1 = o2 = o3 = spread(NOTHING)
        for k in range(length):
            w, i, j = load(p, k, ZERO), third + third + d, k * C + left
            o0 = o0 + w * _given(prompt_IC, i, j, n, shared)
            o1 = o1 + w * _given(prompt_IC, i + ONE, j, n, shared)
            o2 = o2 + w * _given(prompt_IC, i + TWO, j, n, shared)
            o3 = o3 + w * _given(prompt_IC, i + THREE, j, n, shared)
        for t in range(tokens):
            w, i = load(p, length + t, ZERO), first + t * stride + third + third + d
            o0, o1 = o0 + w * load_some(own_XB, i, b, n), o1 + w * load_some(own_XB, i + ONE, b, n)
            o2, o3 = o2 + w * load_some(own_XB, i + TWO, b, n), o3 + w * load_some(own_XB, i + THREE, b, n)
        store_some(o, d, b, o0 * share, n)
        store_some(o, d + ONE, b, o1 * share, n)
        store_some(o, d + TWO, b, o2 * share, n)
        store_some(o, d + THREE, b, o3 * share, n)


@compiled
def _given(a: Floats, i: int, j: int, n: int, shared: bool) -> Vector:
    """Values of column j for n responses: one number for all, or one for each."""
    return spread(a[i, j]) if shared else load_some(a, i, j, n)
