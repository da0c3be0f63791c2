"""Compiled attention of the toy transformer; `attention.Tree` defines the order of columns.

Handwritten because rows of a tree are short (a response sees its prompt and itself): a dense mask wastes four
fifths of its scores, and products of twelve by twelve matrices are all overhead. Queries lie side by side,
slot-major, and are processed eight at a time: each one's key e slots back is e * group columns to the left,
and a key of their prompt is one number for all. Eight queries share a block of probabilities, in the order of
use: one row per distance e, then one per token of the prompt; keys that none of the eight sees have no row.
Prompts work alike, without keys from elsewhere; their "group" is all prompts.

Every index is unsigned, because a signed one is tested for counting from the end, which is slow. Sums may be
reordered and products fused; NaN and infinity keep their meaning, so a diverged model is visible.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.policies.toy.simd import (
    Vector,
    compiled,
    exp2,
    hide,
    largest,
    load,
    load_some,
    spread,
    store,
    store_some,
    total,
)

Floats = NDArray[np.float32]
Counts = NDArray[np.uint64]
Queries = tuple[int, int, int, int, int]
"""A head's first feature and feature count; first column of prompt 0's queries, their slots and group."""
Eight = tuple[int, int, int, int, int]
"""Up to eight queries: first row of their block, first column, number, distances to own keys, group."""
Prompt = tuple[int, int, int, int]
"""Index and number of prompts, first token that is not padding, length."""

U: Any = np.uint64
ZERO, ONE, TWO, THREE, FOUR, EIGHT = (U(i) for i in (0, 1, 2, 3, 4, 8))
NOTHING, UNIT = np.float32(0.0), np.float32(1.0)
HIDDEN = np.float32(-1e30)
"""Score of a key hidden from a query; its probability is exactly 0."""
LOG2_E = 1.0 / math.log(2.0)


@compiled
def tree_forward(
    qkv_RIM: Floats,
    first_RN: Counts,
    attended_RDM: Floats,
    prompt_p: Floats,
    response_p: Floats,
    counts: tuple[int, int, int],
) -> None:
    """Fill attended_RDM and probabilities [R, H, rows, 8]; prompts' blocks have Q rows, others S + Q.

    counts: tokens of a prompt, Q, and of a response, S, and the responses G to a prompt.
    """
    N, H, third = U(first_RN.shape[1]), U(prompt_p.shape[1]), U(attended_RDM.shape[1])
    (length, slots, group), head = counts, third // H
    n_prompt = N * length
    prompt_bias, bias = _future(length, N), _future(slots, group)
    for r in range(U(qkv_RIM.shape[0])):
        qkv, o = qkv_RIM[r], attended_RDM[r]
        _hide_padding(prompt_bias, first_RN[r])
        for h in range(H):
            p, queries = response_p[r, h], (h * head, head, n_prompt, slots, group)
            own, nobody = (h * head, head, ZERO, length, N), (ZERO, N, ZERO, ZERO)
            _attend(o, prompt_p[r, h], qkv, prompt_bias, own, nobody)
            for n in range(N):
                _attend(o, p, qkv, bias, queries, (n, N, first_RN[r, n], length))


@compiled
def tree_backward(
    grad_RIM: Floats,
    g_RDM: Floats,
    qkv_RIM: Floats,
    attended_RDM: Floats,
    prompt_p: Floats,
    response_p: Floats,
    first_RN: Counts,
    counts: tuple[int, int, int],
) -> None:
    """Fill grad_RIM, the gradient of queries, keys and values, given the gradient g of the attended."""
    N, H, third = U(first_RN.shape[1]), U(prompt_p.shape[1]), U(attended_RDM.shape[1])
    (length, slots, group), head = counts, third // H
    n_prompt = N * length
    ds_prompt = np.empty_like(prompt_p[0, 0])
    ds = np.empty((U(response_p.shape[2]) // N, EIGHT), np.float32)
    for r in range(U(qkv_RIM.shape[0])):
        grad, g, o, qkv = grad_RIM[r], g_RDM[r], attended_RDM[r], qkv_RIM[r]
        for h in range(H):
            queries, nobody = (h * head, head, ZERO, length, N), (ZERO, N, ZERO, ZERO)
            _query_gradient(grad, ds_prompt, prompt_p[r, h], g, o, qkv, queries, nobody)
            _own_gradient(grad, ds_prompt, prompt_p[r, h], g, qkv, queries, nobody)
            p, queries = response_p[r, h], (h * head, head, n_prompt, slots, group)
            for n in range(N):
                prompt = n, N, first_RN[r, n], length
                _query_gradient(grad, ds, p, g, o, qkv, queries, prompt)
                _own_gradient(grad, ds, p, g, qkv, queries, prompt)
                _prompt_gradient(grad, ds, p, g, qkv, queries, prompt)


@compiled
def _future(slots: int, group: int) -> Floats:
    """Biases of own keys [S, S G]: 0 where a key e slots back exists, HIDDEN elsewhere."""
    bias = np.zeros((slots, slots * group), np.float32)
    for e in range(slots):
        for i in range(e * group):
            bias[e, i] = HIDDEN
    return bias


@compiled
def _hide_padding(bias: Floats, first_N: Counts) -> None:
    """Hide a prompt's padding from its tokens; padding still sees itself, so that no column is empty."""
    length, prompts = U(bias.shape[0]), U(first_N.size)
    for e in range(ONE, length):
        for k in range(e, length):
            for n in range(prompts):
                bias[e, k * prompts + n] = HIDDEN if k < e + first_N[n] else NOTHING


@compiled
def _attend(o: Floats, p: Floats, qkv: Floats, bias: Floats, queries: Queries, prompt: Prompt) -> None:
    """o = attention of one prompt's queries, with columns from `column` + prompt * queries on."""
    (row, head, column, slots, group), (which, _, start, length) = queries, prompt
    x, third = slots * group, U(o.shape[0])
    scale, blocks = spread(np.float32(LOG2_E / math.sqrt(head))), (x + EIGHT - ONE) // EIGHT
    base = which * blocks * (slots + length)
    for i in range(ZERO, x, EIGHT):
        n = min(EIGHT, x - i)
        c = column + which * x + i
        own = (i + n - ONE) // group + ONE
        end = base + own + length - start
        for j in range(base, end):
            store(p, j, ZERO, spread(NOTHING))
        for d in range(row, row + head, FOUR):
            _add_dots(p, qkv, d, qkv, third + d, (base, c, n, own, group), prompt)
        high, powers = spread(HIDDEN), spread(NOTHING)
        for j in range(base, end):
            s = load(p, j, ZERO) * scale
            s = hide(s, load_some(bias, j - base, i, n)) if j < base + own else s
            store(p, j, ZERO, s)
            high = largest(s, high)
        for j in range(base, end):
            power = exp2(load(p, j, ZERO) - high)
            store(p, j, ZERO, power)
            powers = powers + power
        share = spread(UNIT) / powers
        for j in range(base, end):
            store(p, j, ZERO, load(p, j, ZERO) * share)
        for d in range(row, row + head, FOUR):
            _mix(o, d, p, qkv, third + third + d, (base, c, n, own, group), prompt)
        base += slots + length


@compiled
def _query_gradient(
    grad: Floats, ds: Floats, p: Floats, g: Floats, o: Floats, qkv: Floats, queries: Queries, prompt: Prompt
) -> None:
    """ds = p (g v - g o) / sqrt(d), the gradient of q k for every pair, and the queries' part of it."""
    (row, head, column, slots, group), (which, _, start, length) = queries, prompt
    x, third = slots * group, U(o.shape[0])
    scale, base, rows = spread(np.float32(1.0 / math.sqrt(head))), ZERO, slots + length
    before = which * ((x + EIGHT - ONE) // EIGHT) * rows
    for i in range(ZERO, x, EIGHT):
        n = min(EIGHT, x - i)
        c = column + which * x + i
        own = (i + n - ONE) // group + ONE
        end = base + own + length - start
        for j in range(base, end):
            store(ds, j, ZERO, spread(NOTHING))
        mean = spread(NOTHING)
        for d in range(row, row + head, FOUR):
            _add_dots(ds, g, d, qkv, third + third + d, (base, c, n, own, group), prompt)
            mean = mean + load_some(g, d, c, n) * load_some(o, d, c, n)
            mean = mean + load_some(g, d + ONE, c, n) * load_some(o, d + ONE, c, n)
            mean = mean + load_some(g, d + TWO, c, n) * load_some(o, d + TWO, c, n)
            mean = mean + load_some(g, d + THREE, c, n) * load_some(o, d + THREE, c, n)
        for j in range(base, end):
            store(ds, j, ZERO, scale * load(p, before + j, ZERO) * (load(ds, j, ZERO) - mean))
        for d in range(row, row + head, FOUR):
            _mix(grad, d, ds, qkv, third + d, (base, c, n, own, group), prompt)
        base += rows


@compiled
def _add_dots(y: Floats, q: Floats, d: int, key: Floats, row: int, eight: Eight, prompt: Prompt) -> None:
    """Add to y the products of four features of n queries with each key's: own keys, then the prompt's."""
    (base, c, n, own, group), (which, N, start, length) = eight, prompt
    r1, r2, r3 = row + ONE, row + TWO, row + THREE
    q0, q1 = load_some(q, d, c, n), load_some(q, d + ONE, c, n)
    q2, q3 = load_some(q, d + TWO, c, n), load_some(q, d + THREE, c, n)
    for e in range(own):
        j = c - e * group
        s = load(y, base + e, ZERO) + q0 * load_some(key, row, j, n) + q1 * load_some(key, r1, j, n)
        store(y, base + e, ZERO, s + q2 * load_some(key, r2, j, n) + q3 * load_some(key, r3, j, n))
    for k in range(start, length):
        j, to = k * N + which, base + own + k - start
        s = load(y, to, ZERO) + q0 * spread(key[row, j]) + q1 * spread(key[r1, j])
        store(y, to, ZERO, s + q2 * spread(key[r2, j]) + q3 * spread(key[r3, j]))


@compiled
def _mix(y: Floats, d: int, p: Floats, value: Floats, row: int, eight: Eight, prompt: Prompt) -> None:
    """y = four features of the sum of values, own and the prompt's, weighted by p."""
    (base, c, n, own, group), (which, N, start, length) = eight, prompt
    r1, r2, r3 = row + ONE, row + TWO, row + THREE
    a0 = a1 = a2 = a3 = spread(NOTHING)
    for e in range(own):
        w, j = load(p, base + e, ZERO), c - e * group
        a0, a1 = a0 + w * load_some(value, row, j, n), a1 + w * load_some(value, r1, j, n)
        a2, a3 = a2 + w * load_some(value, r2, j, n), a3 + w * load_some(value, r3, j, n)
    for k in range(start, length):
        w, j = load(p, base + own + k - start, ZERO), k * N + which
        a0, a1 = a0 + w * spread(value[row, j]), a1 + w * spread(value[r1, j])
        a2, a3 = a2 + w * spread(value[r2, j]), a3 + w * spread(value[r3, j])
    _put(y, d, c, a0, a1, a2, a3, n)


@compiled
def _put(y: Floats, d: int, c: int, a0: Vector, a1: Vector, a2: Vector, a3: Vector, n: int) -> None:
    """Store four rows of n columns."""
    store_some(y, d, c, a0, n)
    store_some(y, d + ONE, c, a1, n)
    store_some(y, d + TWO, c, a2, n)
    store_some(y, d + THREE, c, a3, n)


@compiled
def _own_gradient(
    grad: Floats, ds: Floats, p: Floats, g: Floats, qkv: Floats, queries: Queries, prompt: Prompt
) -> None:
    """Add each query's gradient to own keys and values; 0 for keys outside the group."""
    (row, head, column, slots, group), (which, _, _, length) = queries, prompt
    x, third, rows, base = slots * group, U(g.shape[0]), slots + length, ZERO
    before = which * ((x + EIGHT - ONE) // EIGHT) * rows
    for i in range(ZERO, x, EIGHT):
        n = min(EIGHT, x - i)
        c = column + which * x + i
        for d in range(row, row + head, FOUR):
            q0, q1 = load_some(qkv, d, c, n), load_some(qkv, d + ONE, c, n)
            q2, q3 = load_some(qkv, d + TWO, c, n), load_some(qkv, d + THREE, c, n)
            g0, g1 = load_some(g, d, c, n), load_some(g, d + ONE, c, n)
            g2, g3 = load_some(g, d + TWO, c, n), load_some(g, d + THREE, c, n)
            s, w = load(ds, base, ZERO), load(p, before + base, ZERO)
            _put(grad, third + d, c, s * q0, s * q1, s * q2, s * q3, n)
            _put(grad, third + third + d, c, w * g0, w * g1, w * g2, w * g3, n)
            for e in range(ONE, (i + n - ONE) // group + ONE):
                s, w, j = load(ds, base + e, ZERO), load(p, before + base + e, ZERO), c - e * group
                _add(grad, third + d, j, s * q0, s * q1, s * q2, s * q3, n)
                _add(grad, third + third + d, j, w * g0, w * g1, w * g2, w * g3, n)
        base += rows


@compiled
def _add(y: Floats, d: int, c: int, a0: Vector, a1: Vector, a2: Vector, a3: Vector, n: int) -> None:
    """Add to four rows of n columns."""
    a0, a1 = a0 + load_some(y, d, c, n), a1 + load_some(y, d + ONE, c, n)
    _put(y, d, c, a0, a1, a2 + load_some(y, d + TWO, c, n), a3 + load_some(y, d + THREE, c, n), n)


@compiled
def _prompt_gradient(
    grad: Floats, ds: Floats, p: Floats, g: Floats, qkv: Floats, queries: Queries, prompt: Prompt
) -> None:
    """Add what a prompt's keys and values get from its responses' queries."""
    (row, head, column, slots, group), (which, N, start, length) = queries, prompt
    x, third, rows = slots * group, U(g.shape[0]), slots + length
    before = which * ((x + EIGHT - ONE) // EIGHT) * rows
    for k in range(start, length):
        to = k * N + which
        for d in range(row, row + head, FOUR):
            k0 = k1 = k2 = k3 = v0 = v1 = v2 = v3 = spread(NOTHING)
            base = k - start
            for i in range(ZERO, x, EIGHT):
                n = min(EIGHT, x - i)
                c = column + which * x + i
                j = base + (i + n - ONE) // group + ONE
                s, w = load(ds, j, ZERO), load(p, before + j, ZERO)
                k0, k1 = k0 + s * load_some(qkv, d, c, n), k1 + s * load_some(qkv, d + ONE, c, n)
                k2, k3 = k2 + s * load_some(qkv, d + TWO, c, n), k3 + s * load_some(qkv, d + THREE, c, n)
                v0, v1 = v0 + w * load_some(g, d, c, n), v1 + w * load_some(g, d + ONE, c, n)
                v2, v3 = v2 + w * load_some(g, d + TWO, c, n), v3 + w * load_some(g, d + THREE, c, n)
                base += rows
            _add_totals(grad, third + d, to, k0, k1, k2, k3)
            _add_totals(grad, third + third + d, to, v0, v1, v2, v3)


@compiled
def _add_totals(y: Floats, d: int, c: int, a0: Vector, a1: Vector, a2: Vector, a3: Vector) -> None:
    """Add each vector's total to one of four rows."""
    y[d, c] += total(a0)
    y[d + ONE, c] += total(a1)
    y[d + TWO, c] += total(a2)
    y[d + THREE, c] += total(a3)
