"""Compiled tree attention, forward and backward; `toy_attention.Tree` says which column is which token.

Why by hand: rows of a tree are short (a response sees its prompt and itself), so a dense mask wastes four
fifths of its scores, and products of twelve by twelve matrices are all overhead. Queries lie side by side,
slot-major: the key that is e slots back of every query is then the same row of memory shifted by e * group,
and one long loop serves all queries of all responses. Scores have one row per distance e, then one per token
of the prompt. Prompts are the same thing without keys from elsewhere, their "group" being all prompts.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from testbed.policies.toy_loops import (
    FOUR,
    HIDDEN,
    LOG2_E,
    NOTHING,
    ONE,
    RELAXED,
    ZERO,
    Floats,
    U,
    dots,
    outer,
    product,
    scaled,
    softmax,
)

Counts = NDArray[np.uint64]


@njit(cache=True, nogil=True, fastmath=RELAXED)
def tree_forward(
    qkv_RCM: Floats,
    first_RN: Counts,
    attended_RDM: Floats,
    prompt_p: Floats,
    response_p: Floats,
    group: int,
) -> None:
    """Fill attended_RDM and the probabilities, [R, H, K, N K] for prompts and [R, H, N, S + K', S G].

    K' is K rounded up to a multiple of 4.
    """
    N, H = U(first_RN.shape[1]), U(prompt_p.shape[1])
    length, n_prompt, n_response = U(prompt_p.shape[2]), U(prompt_p.shape[3]), U(response_p.shape[4])
    third, slots = U(attended_RDM.shape[1]), n_response // group
    head, keys = third // H, U(response_p.shape[3]) - slots
    key_KD, value_DK = np.zeros((keys, head), np.float32), np.zeros((head, keys), np.float32)
    prompt_bias = np.empty((length, n_prompt), np.float32)
    bias = np.empty((slots + keys, n_response), np.float32)
    high = np.empty(max(n_prompt, n_response), np.float32)
    total = np.empty_like(high)
    for r in range(qkv_RCM.shape[0]):
        qkv, o = qkv_RCM[r], attended_RDM[r]
        _hide_future(prompt_bias, length, N)
        _hide_padding(prompt_bias, first_RN[r], length)
        for h in range(H):
            row, p = h * head, prompt_p[r, h]
            _attend(o, qkv, row, ZERO, n_prompt, N, key_KD[:0], value_DK, prompt_bias, p, high, total)
        for n in range(N):
            column = n_prompt + n * n_response
            _hide_future(bias, slots, group)
            _hide_rest(bias, slots, first_RN[r, n], length)
            for h in range(H):
                row, p = h * head, response_p[r, h, n]
                _take(key_KD, value_DK, qkv, third + row, third + third + row, length, n, N)
                _attend(o, qkv, row, column, n_response, group, key_KD, value_DK, bias, p, high, total)


@njit(cache=True, nogil=True, fastmath=RELAXED)
def tree_backward(
    grad_RCM: Floats,
    g_RDM: Floats,
    qkv_RCM: Floats,
    attended_RDM: Floats,
    prompt_p: Floats,
    response_p: Floats,
    group: int,
) -> None:
    """Add to grad_RCM the gradient of queries, keys and values, given the gradient g of the attended."""
    H, N = U(prompt_p.shape[1]), U(response_p.shape[2])
    length, n_prompt, n_response = U(prompt_p.shape[2]), U(prompt_p.shape[3]), U(response_p.shape[4])
    third, rows = U(attended_RDM.shape[1]), U(response_p.shape[3])
    head, keys = third // H, rows - n_response // group
    value_KD, key_DK = np.zeros((keys, head), np.float32), np.zeros((head, keys), np.float32)
    grad_key, grad_value = np.empty_like(key_DK), np.empty_like(key_DK)
    ds = np.empty((max(length, rows), max(n_prompt, n_response)), np.float32)
    total = np.empty((1, max(n_prompt, n_response)), np.float32)
    for r in range(qkv_RCM.shape[0]):
        grad, g, o, qkv = grad_RCM[r], g_RDM[r], attended_RDM[r], qkv_RCM[r]
        for h in range(H):
            row, p = h * head, prompt_p[r, h]
            krow, vrow = third + row, third + third + row
            _score_gradient(ds, total, p, g, o, qkv, row, ZERO, n_prompt, N, value_KD[:0])
            _spread(grad, grad_key, grad_value, ds, p, g, qkv, row, ZERO, n_prompt, N, key_DK[:, :0])
            for n in range(N):
                column, p = n_prompt + n * n_response, response_p[r, h, n]
                _take(value_KD, key_DK, qkv, vrow, krow, length, n, N)
                grad_key[:], grad_value[:] = NOTHING, NOTHING
                _score_gradient(ds, total, p, g, o, qkv, row, column, n_response, group, value_KD)
                _spread(grad, grad_key, grad_value, ds, p, g, qkv, row, column, n_response, group, key_DK)
                _give(grad, grad_key, krow, length, n, N)
                _give(grad, grad_value, vrow, length, n, N)


@njit(cache=True, fastmath=RELAXED)
def _hide_future(bias: Floats, slots: int, group: int) -> None:
    """Rows of own keys: 0 where a key e slots back exists, HIDDEN elsewhere."""
    for e in range(slots):
        for i in range(slots * group):
            bias[e, i] = HIDDEN if i < e * group else NOTHING


@njit(cache=True, fastmath=RELAXED)
def _hide_padding(bias: Floats, first_N: Counts, length: int) -> None:
    """Hide a prompt's padding from its own tokens; padding still sees itself, so that no column is empty."""
    prompts = U(first_N.size)
    for e in range(ONE, length):
        for n in range(prompts):
            for k in range(e, min(e + first_N[n], length)):
                bias[e, k * prompts + n] = HIDDEN


@njit(cache=True, fastmath=RELAXED)
def _hide_rest(bias: Floats, slots: int, first: int, length: int) -> None:
    """Rows of prompt keys: 0 at the prompt's tokens, HIDDEN at padding and behind the prompt."""
    for j in range(slots, U(bias.shape[0])):
        for i in range(U(bias.shape[1])):
            bias[j, i] = NOTHING if slots + first <= j and j < slots + length else HIDDEN


@njit(cache=True, fastmath=RELAXED)
def _take(
    a_KD: Floats, b_DK: Floats, qkv: Floats, a_row: int, b_row: int, length: int, n: int, prompts: int
) -> None:
    """Copy two blocks of features at the tokens of prompt n; what lies behind `length` stays 0."""
    for k in range(length):
        for d in range(U(b_DK.shape[0])):
            a_KD[k, d] = qkv[a_row + d, k * prompts + n]
            b_DK[d, k] = qkv[b_row + d, k * prompts + n]


@njit(cache=True, fastmath=RELAXED)
def _give(grad: Floats, grad_DK: Floats, row: int, length: int, n: int, prompts: int) -> None:
    """Add a block of gradients to the tokens of prompt n."""
    for d in range(U(grad_DK.shape[0])):
        for k in range(length):
            grad[row + d, k * prompts + n] += grad_DK[d, k]


@njit(cache=True, fastmath=RELAXED)
def _attend(
    o: Floats,
    qkv: Floats,
    row: int,
    column: int,
    n: int,
    group: int,
    key_KD: Floats,
    value_DK: Floats,
    bias: Floats,
    p: Floats,
    high: Floats,
    total: Floats,
) -> None:
    """o[row:row+d, column:column+n] = attention of n queries to their own past and to the given keys."""
    width, keys, third = U(value_DK.shape[0]), U(key_KD.shape[0]), U(o.shape[0])
    slots = n // group
    for j in range(slots + keys):
        for i in range(n):
            p[j, i] = bias[j, i]
    for d in range(row, row + width, FOUR):
        for e in range(slots):
            s = e * group
            dots(p, e, s, qkv, d, column + s, qkv, third + d, column, n - s)
        for j in range(ZERO, keys, FOUR):
            product(p, slots + j, ZERO, key_KD, j, d - row, qkv, d, column, n)
    softmax(p, slots + keys, n, np.float32(LOG2_E / math.sqrt(width)), high, total)
    for d in range(row, row + width):
        for i in range(n):
            o[d, column + i] = NOTHING
    for d in range(row, row + width, FOUR):
        for e in range(slots):
            s = e * group
            scaled(o, d, column + s, p, e, s, qkv, third + third + d, column, n - s)
        for j in range(ZERO, keys, FOUR):
            product(o, d, column, value_DK, d - row, j, p, slots + j, ZERO, n)


@njit(cache=True, fastmath=RELAXED)
def _score_gradient(
    ds: Floats,
    total: Floats,
    p: Floats,
    g: Floats,
    o: Floats,
    qkv: Floats,
    row: int,
    column: int,
    n: int,
    group: int,
    value_KD: Floats,
) -> None:
    """ds = p (g v - g o) / sqrt(d): the gradient of q k for every pair, through the softmax."""
    keys, width, vrow = U(value_KD.shape[0]), U(value_KD.shape[1]), U(o.shape[0]) + U(o.shape[0])
    slots = n // group
    for i in range(n):
        total[ZERO, i] = NOTHING
    for j in range(slots + keys):
        for i in range(n):
            ds[j, i] = NOTHING
    for d in range(row, row + width, FOUR):
        dots(total, ZERO, ZERO, g, d, column, o, d, column, n)
        for e in range(slots):
            s = e * group
            dots(ds, e, s, g, d, column + s, qkv, vrow + d, column, n - s)
        for j in range(ZERO, keys, FOUR):
            product(ds, slots + j, ZERO, value_KD, j, d - row, g, d, column, n)
    scale = np.float32(1.0 / math.sqrt(width))
    for j in range(slots + keys):
        for i in range(n):
            ds[j, i] = scale * p[j, i] * (ds[j, i] - total[ZERO, i])


@njit(cache=True, fastmath=RELAXED)
def _spread(
    grad: Floats,
    grad_key: Floats,
    grad_value: Floats,
    ds: Floats,
    p: Floats,
    g: Floats,
    qkv: Floats,
    row: int,
    column: int,
    n: int,
    group: int,
    key_DK: Floats,
) -> None:
    """Pass the gradient of scores and values on to queries, own keys and values, and the prompt's."""
    width, keys, third = U(key_DK.shape[0]), U(key_DK.shape[1]), U(g.shape[0])
    slots = n // group
    for d in range(row, row + width, FOUR):
        krow, vrow = third + d, third + third + d
        for e in range(slots):
            s = e * group
            scaled(grad, d, column + s, ds, e, s, qkv, krow, column, n - s)
            scaled(grad, krow, column, ds, e, s, qkv, d, column + s, n - s)
            scaled(grad, vrow, column, p, e, s, g, d, column + s, n - s)
        for j in range(ZERO, keys, FOUR):
            product(grad, d, column, key_DK, d - row, j, ds, slots + j, ZERO, n)
            outer(grad_key, d - row, j, qkv, d, column, ds, slots + j, ZERO, n)
            outer(grad_value, d - row, j, g, d, column, p, slots + j, ZERO, n)
