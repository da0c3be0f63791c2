"""Compiled attention of the toy transformer; `attention.Tree` says which column is which token.

Why by hand: rows of a tree are short (a response sees its prompt and itself), so a dense mask wastes four
fifths of its scores, and products of twelve by twelve matrices are all overhead. Queries lie side by side,
slot-major: the key that is e slots back of every query is then the same row of memory shifted by e * group,
and one long loop serves all queries of all responses of all prompts; where the shift reaches into another
prompt the probability is 0. Scores have one row per distance e, then one per token of the prompt. Prompts
are the same thing without keys from elsewhere, their "group" being all prompts.

Every index is unsigned: a signed one may count from the end of an array, and the test for that keeps the
compiler from using vector instructions. Sums may be reordered and products fused; NaN and infinity keep
their meaning, so a diverged model shows.

All compiled code that calls each other stays in this one file: the cache on disk looks at the file of the
function called from Python, and would not see a change elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Counts = NDArray[np.uint64]

U = np.uint64
ZERO, ONE, TWO, THREE, FOUR = U(0), U(1), U(2), U(3), U(4)
NOTHING, UNIT = np.float32(0.0), np.float32(1.0)
HIDDEN = np.float32(-1e30)
"""Score of a key that a query must not see; its probability is exactly 0."""
LOG2_E = 1.0 / math.log(2.0)

compiled = njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@compiled
def tree_forward(
    qkv_RIM: Floats, first_RN: Counts, attended_RDM: Floats, prompt_p: Floats, response_p: Floats, group: int
) -> None:
    """Fill attended_RDM and the probabilities, [R, H, Q, N Q] for prompts and [R, H, S + Q', N S G].

    Q' is Q rounded up to a multiple of 4.
    """
    N, H, third = U(first_RN.shape[1]), U(prompt_p.shape[1]), U(attended_RDM.shape[1])
    length, n_prompt, n_response = U(prompt_p.shape[2]), U(prompt_p.shape[3]), U(response_p.shape[3])
    head, slots = third // H, n_response // (N * group)
    keys = U(response_p.shape[2]) - slots
    key, value = np.zeros((N, keys, head), np.float32), np.zeros((N, head, keys), np.float32)
    none = np.zeros((0, 0, head), np.float32)
    for r in range(qkv_RIM.shape[0]):
        qkv, o = qkv_RIM[r], attended_RDM[r]
        for h in range(H):
            row, p = h * head, response_p[r, h]
            _hide_future(prompt_p[r, h], length, N, ONE)
            _hide_padding(prompt_p[r, h], first_RN[r], length)
            _attend(o, qkv, row, ZERO, N, none, value, prompt_p[r, h])
            _hide_future(p, slots, group, N)
            _hide_rest(p, slots, first_RN[r], length)
            _take(key, value, qkv, third + row, third + third + row, length)
            _attend(o, qkv, row, n_prompt, group, key, value, p)


@compiled
def tree_backward(
    grad_RIM: Floats,
    g_RDM: Floats,
    qkv_RIM: Floats,
    attended_RDM: Floats,
    prompt_p: Floats,
    response_p: Floats,
    prompts: int,
    group: int,
) -> None:
    """Add to grad_RIM the gradient of queries, keys and values, given the gradient g of the attended."""
    H, third = U(prompt_p.shape[1]), U(attended_RDM.shape[1])
    length, n_prompt, n_response = U(prompt_p.shape[2]), U(prompt_p.shape[3]), U(response_p.shape[3])
    head, slots = third // H, n_response // (prompts * group)
    keys = U(response_p.shape[2]) - slots
    value, key = np.zeros((prompts, keys, head), np.float32), np.zeros((prompts, head, keys), np.float32)
    grad_key, grad_value = np.empty_like(key), np.empty_like(key)
    none = np.zeros((0, 0, head), np.float32)
    ds_prompt, ds = np.empty_like(prompt_p[0, 0]), np.empty_like(response_p[0, 0])
    for r in range(qkv_RIM.shape[0]):
        grad, g, o, qkv = grad_RIM[r], g_RDM[r], attended_RDM[r], qkv_RIM[r]
        for h in range(H):
            row, krow, vrow = h * head, third + h * head, third + third + h * head
            p_prompt, p = prompt_p[r, h], response_p[r, h]
            _score_gradient(ds_prompt, p_prompt, g, o, qkv, row, ZERO, prompts, none)
            _own_gradient(grad, ds_prompt, p_prompt, g, qkv, row, ZERO, prompts, length, head)
            _take(value, key, qkv, vrow, krow, length)
            _score_gradient(ds, p, g, o, qkv, row, n_prompt, group, value)
            _own_gradient(grad, ds, p, g, qkv, row, n_prompt, group, slots, head)
            grad_key[:], grad_value[:] = NOTHING, NOTHING
            _prompt_gradient(grad, grad_key, grad_value, ds, p, g, qkv, row, n_prompt, key)
            _give(grad, grad_key, krow, length)
            _give(grad, grad_value, vrow, length)


@compiled
def step_forward(
    own_TRIB: Floats, prompt_QRJB: Floats, bias_RQB: Floats, attended_RDB: Floats, heads: int
) -> None:
    """Attention of the newest own token; scores have one row per prompt's token, then one per own token."""
    T, Q, B = U(own_TRIB.shape[0]), U(prompt_QRJB.shape[0]), U(own_TRIB.shape[3])
    third = U(attended_RDB.shape[1])
    head, p = third // heads, np.empty((Q + T, B), np.float32)
    for r in range(attended_RDB.shape[0]):
        newest, o = own_TRIB[T - ONE, r], attended_RDB[r]
        o[:] = NOTHING
        for row in range(ZERO, third, head):
            p[:Q], p[Q:] = bias_RQB[r], NOTHING
            for d in range(row, row + head, FOUR):
                for k in range(Q):
                    _dots(p, k, ZERO, newest, d, ZERO, prompt_QRJB[k, r], d, ZERO, B)
                for t in range(T):
                    _dots(p, Q + t, ZERO, newest, d, ZERO, own_TRIB[t, r], third + d, ZERO, B)
            _softmax(p, np.float32(LOG2_E / math.sqrt(head)))
            for d in range(row, row + head, FOUR):
                for k in range(Q):
                    _scaled(o, d, ZERO, p, k, ZERO, prompt_QRJB[k, r], third + d, ZERO, B)
                for t in range(T):
                    _scaled(o, d, ZERO, p, Q + t, ZERO, own_TRIB[t, r], third + third + d, ZERO, B)


@compiled
def _hide_future(p: Floats, slots: int, group: int, blocks: int) -> None:
    """Start the rows of own keys: 0 where a key e slots back exists in the same block, HIDDEN elsewhere."""
    width = slots * group
    for e in range(slots):
        for n in range(blocks):
            for i in range(width):
                p[e, n * width + i] = HIDDEN if i < e * group else NOTHING


@compiled
def _hide_padding(p: Floats, first_N: Counts, length: int) -> None:
    """Hide a prompt's padding from its own tokens; padding still sees itself, so that no column is empty."""
    prompts = U(first_N.size)
    for e in range(ONE, length):
        for n in range(prompts):
            for k in range(e, min(e + first_N[n], length)):
                p[e, k * prompts + n] = HIDDEN


@compiled
def _hide_rest(p: Floats, slots: int, first_N: Counts, length: int) -> None:
    """Start the rows of prompt keys: 0 at the prompt's tokens, HIDDEN at padding and behind the prompt."""
    width = U(p.shape[1]) // U(first_N.size)
    for j in range(slots, U(p.shape[0])):
        for n in range(U(first_N.size)):
            seen = slots + first_N[n] <= j and j < slots + length
            for i in range(n * width, n * width + width):
                p[j, i] = NOTHING if seen else HIDDEN


@compiled
def _take(a_NQD: Floats, b_NDQ: Floats, qkv: Floats, a_row: int, b_row: int, length: int) -> None:
    """Copy two blocks of features at the prompts' tokens; what lies behind `length` stays 0."""
    prompts, head = U(b_NDQ.shape[0]), U(b_NDQ.shape[1])
    for d in range(head):
        for k in range(length):
            for n in range(prompts):
                a_NQD[n, k, d] = qkv[a_row + d, k * prompts + n]
                b_NDQ[n, d, k] = qkv[b_row + d, k * prompts + n]


@compiled
def _give(grad: Floats, grad_NDQ: Floats, row: int, length: int) -> None:
    """Add a block of gradients to the prompts' tokens."""
    prompts = U(grad_NDQ.shape[0])
    for d in range(U(grad_NDQ.shape[1])):
        for k in range(length):
            for n in range(prompts):
                grad[row + d, k * prompts + n] += grad_NDQ[n, d, k]


@compiled
def _attend(
    o: Floats, qkv: Floats, row: int, column: int, group: int, key_NQD: Floats, value_NDQ: Floats, p: Floats
) -> None:
    """o[row:row+d, column:column+n] = attention of n queries to their own past and to their prompt's keys."""
    blocks, keys, width = U(key_NQD.shape[0]), U(key_NQD.shape[1]), U(key_NQD.shape[2])
    third, slots, n = U(o.shape[0]), U(p.shape[0]) - keys, U(p.shape[1])
    for d in range(row, row + width, FOUR):
        for e in range(slots):
            s = e * group
            _dots(p, e, s, qkv, d, column + s, qkv, third + d, column, n - s)
        for b in range(blocks):
            x, left = n // blocks, b * (n // blocks)
            for j in range(ZERO, keys, FOUR):
                _product(p, slots + j, left, key_NQD[b], j, d - row, qkv, d, column + left, x)
    _softmax(p, np.float32(LOG2_E / math.sqrt(width)))
    for d in range(row, row + width):
        for i in range(n):
            o[d, column + i] = NOTHING
    for d in range(row, row + width, FOUR):
        for e in range(slots):
            s = e * group
            _scaled(o, d, column + s, p, e, s, qkv, third + third + d, column, n - s)
        for b in range(blocks):
            x, left = n // blocks, b * (n // blocks)
            for j in range(ZERO, keys, FOUR):
                _product(o, d, column + left, value_NDQ[b], d - row, j, p, slots + j, left, x)


@compiled
def _score_gradient(
    ds: Floats, p: Floats, g: Floats, o: Floats, qkv: Floats, row: int, column: int, group: int, v_NQD: Floats
) -> None:
    """ds = p (g v - g o) / sqrt(d): the gradient of q k for every pair, through the softmax."""
    blocks, keys, width = U(v_NQD.shape[0]), U(v_NQD.shape[1]), U(v_NQD.shape[2])
    third, slots, n = U(o.shape[0]), U(p.shape[0]) - keys, U(p.shape[1])
    total = np.zeros((1, n), np.float32)
    ds[:] = NOTHING
    for d in range(row, row + width, FOUR):
        _dots(total, ZERO, ZERO, g, d, column, o, d, column, n)
        for e in range(slots):
            s = e * group
            _dots(ds, e, s, g, d, column + s, qkv, third + third + d, column, n - s)
        for b in range(blocks):
            x, left = n // blocks, b * (n // blocks)
            for j in range(ZERO, keys, FOUR):
                _product(ds, slots + j, left, v_NQD[b], j, d - row, g, d, column + left, x)
    scale = np.float32(1.0 / math.sqrt(width))
    for j in range(U(p.shape[0])):
        for i in range(n):
            ds[j, i] = scale * p[j, i] * (ds[j, i] - total[ZERO, i])


@compiled
def _own_gradient(
    grad: Floats,
    ds: Floats,
    p: Floats,
    g: Floats,
    qkv: Floats,
    row: int,
    column: int,
    group: int,
    slots: int,
    width: int,
) -> None:
    """Add the gradient that passes between a query and its own past."""
    n, third = U(p.shape[1]), U(g.shape[0])
    for d in range(row, row + width, FOUR):
        for e in range(slots):
            s = e * group
            _scaled(grad, d, column + s, ds, e, s, qkv, third + d, column, n - s)
            _scaled(grad, third + d, column, ds, e, s, qkv, d, column + s, n - s)
            _scaled(grad, third + third + d, column, p, e, s, g, d, column + s, n - s)


@compiled
def _prompt_gradient(
    grad: Floats,
    grad_key: Floats,
    grad_value: Floats,
    ds: Floats,
    p: Floats,
    g: Floats,
    qkv: Floats,
    row: int,
    column: int,
    key_NDQ: Floats,
) -> None:
    """Add the gradient that passes between queries and the keys and values of their prompt."""
    blocks, width, keys = U(key_NDQ.shape[0]), U(key_NDQ.shape[1]), U(key_NDQ.shape[2])
    slots, x = U(p.shape[0]) - keys, U(p.shape[1]) // blocks
    for b in range(blocks):
        left = b * x
        for d in range(ZERO, width, FOUR):
            for j in range(ZERO, keys, FOUR):
                source = slots + j
                _product(grad, row + d, column + left, key_NDQ[b], d, j, ds, source, left, x)
                _outer(grad_key[b], d, j, qkv, row + d, column + left, ds, source, left, x)
                _outer(grad_value[b], d, j, g, row + d, column + left, p, source, left, x)


# 2^t = sum_i c_i t^i on [-1/2, 1/2], relative error 2e-9: least squares on Chebyshev nodes.
_NODES = 0.5 * np.cos(np.pi * (np.arange(512) + 0.5) / 512)
_POWERS = _NODES[:, None] ** np.arange(7) / 2.0 ** _NODES[:, None]
C0, C1, C2, C3, C4, C5, C6 = np.linalg.lstsq(_POWERS, np.ones(512), rcond=None)[0].astype(np.float32)
HALF, LOWEST = np.float32(0.5), np.float32(-126.0)
EXPONENT_BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)


@intrinsic
def _float_from_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""
    del typing_context, bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return types.float32(types.int32), generate


@compiled
def exp2(exponent: np.float32) -> np.float32:
    """2^exponent in float32 for exponents up to 0, within 1e-7; exactly 0 below -126; NaN stays NaN.

    The library's exponential takes one number at a time, this one a vector.
    """
    clamped = max(exponent, LOWEST)  # NaN in the first place stays NaN
    whole = np.floor(clamped + HALF)
    t = clamped - whole
    mantissa = C0 + t * (C1 + t * (C2 + t * (C3 + t * (C4 + t * (C5 + t * C6)))))
    power = mantissa * _float_from_bits((np.int32(whole) + EXPONENT_BIAS) << MANTISSA_BITS)
    return NOTHING if exponent < LOWEST else power


@compiled
def _product(
    y: Floats, yr: int, yc: int, a: Floats, ar: int, ac: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr:yr+4, yc:yc+n] += a[ar:ar+4, ac:ac+4] @ x[xr:xr+4, xc:xc+n]."""
    r1, r2, r3, c1, c2, c3 = ar + ONE, ar + TWO, ar + THREE, ac + ONE, ac + TWO, ac + THREE
    a00, a01, a02, a03 = a[ar, ac], a[ar, c1], a[ar, c2], a[ar, c3]
    a10, a11, a12, a13 = a[r1, ac], a[r1, c1], a[r1, c2], a[r1, c3]
    a20, a21, a22, a23 = a[r2, ac], a[r2, c1], a[r2, c2], a[r2, c3]
    a30, a31, a32, a33 = a[r3, ac], a[r3, c1], a[r3, c2], a[r3, c3]
    for i in range(n):
        x0, x1, x2, x3 = x[xr, xc + i], x[xr + ONE, xc + i], x[xr + TWO, xc + i], x[xr + THREE, xc + i]
        y[yr, yc + i] += a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
        y[yr + ONE, yc + i] += a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
        y[yr + TWO, yc + i] += a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
        y[yr + THREE, yc + i] += a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3


@compiled
def _outer(
    a: Floats, ar: int, ac: int, y: Floats, yr: int, yc: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """a[ar:ar+4, ac:ac+4] += y[yr:yr+4, yc:yc+n] @ x[xr:xr+4, xc:xc+n].T."""
    for k in range(FOUR):
        s0, s1, s2, s3 = NOTHING, NOTHING, NOTHING, NOTHING
        for i in range(n):
            z = x[xr + k, xc + i]
            s0 += y[yr, yc + i] * z
            s1 += y[yr + ONE, yc + i] * z
            s2 += y[yr + TWO, yc + i] * z
            s3 += y[yr + THREE, yc + i] * z
        a[ar, ac + k] += s0
        a[ar + ONE, ac + k] += s1
        a[ar + TWO, ac + k] += s2
        a[ar + THREE, ac + k] += s3


@compiled
def _dots(
    y: Floats, yr: int, yc: int, a: Floats, ar: int, ac: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr, yc:yc+n] += dot products of the columns of a[ar:ar+4, ac:ac+n] and x[xr:xr+4, xc:xc+n]."""
    for i in range(n):
        y[yr, yc + i] += (
            a[ar, ac + i] * x[xr, xc + i]
            + a[ar + ONE, ac + i] * x[xr + ONE, xc + i]
            + a[ar + TWO, ac + i] * x[xr + TWO, xc + i]
            + a[ar + THREE, ac + i] * x[xr + THREE, xc + i]
        )


@compiled
def _scaled(
    y: Floats, yr: int, yc: int, p: Floats, pr: int, pc: int, x: Floats, xr: int, xc: int, n: int
) -> None:
    """y[yr:yr+4, yc:yc+n] += p[pr, pc:pc+n] * x[xr:xr+4, xc:xc+n]."""
    for i in range(n):
        weight = p[pr, pc + i]
        y[yr, yc + i] += weight * x[xr, xc + i]
        y[yr + ONE, yc + i] += weight * x[xr + ONE, xc + i]
        y[yr + TWO, yc + i] += weight * x[xr + TWO, xc + i]
        y[yr + THREE, yc + i] += weight * x[xr + THREE, xc + i]


@compiled
def _softmax(p: Floats, scale: np.float32) -> None:
    """Turn scores into probabilities 2^(scale p) / sum, column by column."""
    rows, n = U(p.shape[0]), U(p.shape[1])
    high, total = p[0].copy(), np.zeros(p.shape[1], np.float32)
    for j in range(ONE, rows):
        for i in range(n):
            high[i] = max(high[i], p[j, i])
    for j in range(rows):
        for i in range(n):
            power = exp2(scale * (p[j, i] - high[i]))
            p[j, i] = power
            total[i] += power
    for i in range(n):
        total[i] = UNIT / total[i]
    for j in range(rows):
        for i in range(n):
            p[j, i] *= total[i]
