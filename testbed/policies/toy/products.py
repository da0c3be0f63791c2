"""Compiled products of small matrices, and the operations between them in a transformer's block.

Handwritten because a replica's matrices fit the inner caches: all products of one replica in sequence run
twice as fast as each product over all replicas. Accumulators of four rows by 32 columns stay in registers.
Factors have a multiple of 32 columns (`padded`); extra columns are 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.policies.toy.simd import compiled, largest, load_wide, root, spread_wide, store, total

Floats = NDArray[np.float32]

U: Any = np.uint64
ZERO, ONE, TWO, THREE, FOUR, EIGHT, SIXTEEN, STRIP = (U(i) for i in (0, 1, 2, 3, 4, 8, 16, 32))
NOTHING, UNIT = np.float32(0.0), np.float32(1.0)


@compiled
def padded(columns: int) -> int:
    """Round columns up to a multiple of 32, not 256: rows that far apart compete for the same cache."""
    strips = (columns + STRIP - ONE) // STRIP
    return (strips + U(strips % EIGHT == ZERO)) * STRIP


@compiled
def copy(to: Floats, row: int, source: Floats, n: int) -> None:
    """Copy n columns of `source` to rows from `row` on."""
    for i in range(U(source.shape[0])):
        for j in range(n):
            to[row + i, j] = source[i, j]


@compiled
def normalize(normed: Floats, x: Floats, epsilon: np.float32) -> None:
    """normed = x / sqrt(mean over features of x^2 + epsilon); may be x itself."""
    D = U(x.shape[0])
    for j in range(ZERO, U(x.shape[1]), SIXTEEN):
        square = spread_wide(NOTHING)
        for d in range(D):
            square = square + load_wide(x, d, j) * load_wide(x, d, j)
        mean = square * spread_wide(UNIT / np.float32(D)) + spread_wide(epsilon)
        scale = spread_wide(UNIT) / root(mean)
        for d in range(D):
            store(normed, d, j, load_wide(x, d, j) * scale)


@compiled
def cut(x: Floats) -> None:
    """Set negative entries to 0."""
    for i in range(U(x.shape[0])):
        for j in range(ZERO, U(x.shape[1]), SIXTEEN):
            store(x, i, j, largest(load_wide(x, i, j), spread_wide(NOTHING)))


@compiled
def product(y: Floats, w: Floats, x: Floats, add: bool) -> None:
    """y = w @ x, or y += w @ x; columns are a multiple of 32."""
    rows = U(w.shape[0])
    whole = rows // FOUR * FOUR
    for j in range(ZERO, U(x.shape[1]), STRIP):
        for i in range(ZERO, whole, FOUR):
            _four_rows(y, w, x, i, j, add)
        for i in range(whole, rows):
            _row(y, w, x, i, j, add)


@compiled
def _four_rows(y: Floats, w: Floats, x: Floats, i: int, j: int, add: bool) -> None:
    i1, i2, i3, k2 = i + ONE, i + TWO, i + THREE, j + SIXTEEN
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = spread_wide(NOTHING)
    if add:
        a0, a1, a2, a3 = load_wide(y, i, j), load_wide(y, i1, j), load_wide(y, i2, j), load_wide(y, i3, j)
        b0, b1, b2, b3 = load_wide(y, i, k2), load_wide(y, i1, k2), load_wide(y, i2, k2), load_wide(y, i3, k2)
    for k in range(U(w.shape[1])):
        xa, xb = load_wide(x, k, j), load_wide(x, k, k2)
        w0, w1 = spread_wide(w[i, k]), spread_wide(w[i1, k])
        w2, w3 = spread_wide(w[i2, k]), spread_wide(w[i3, k])
        a0, a1, a2, a3 = a0 + w0 * xa, a1 + w1 * xa, a2 + w2 * xa, a3 + w3 * xa
        b0, b1, b2, b3 = b0 + w0 * xb, b1 + w1 * xb, b2 + w2 * xb, b3 + w3 * xb
    store(y, i, j, a0)
    store(y, i1, j, a1)
    store(y, i2, j, a2)
    store(y, i3, j, a3)
    store(y, i, k2, b0)
    store(y, i1, k2, b1)
    store(y, i2, k2, b2)
    store(y, i3, k2, b3)


@compiled
def _row(y: Floats, w: Floats, x: Floats, i: int, j: int, add: bool) -> None:
    a, b = spread_wide(NOTHING), spread_wide(NOTHING)
    if add:
        a, b = load_wide(y, i, j), load_wide(y, i, j + SIXTEEN)
    for k in range(U(w.shape[1])):
        w0 = spread_wide(w[i, k])
        a, b = a + w0 * load_wide(x, k, j), b + w0 * load_wide(x, k, j + SIXTEEN)
    store(y, i, j, a)
    store(y, i, j + SIXTEEN, b)


@compiled
def outer(a: Floats, y: Floats, x: Floats) -> None:
    """a = y @ x.T."""
    rows, columns = U(a.shape[0]), U(a.shape[1])
    r8, c2 = rows // EIGHT * EIGHT, columns // TWO * TWO
    for i in range(ZERO, r8, EIGHT):
        for j in range(ZERO, c2, TWO):
            _eight_by_two(a, y, x, i, j)
    for i in range(rows):
        for j in range(c2 if i < r8 else ZERO, columns):
            s = spread_wide(NOTHING)
            for m in range(ZERO, U(x.shape[1]), SIXTEEN):
                s = s + load_wide(y, i, m) * load_wide(x, j, m)
            a[i, j] = total(s)


@compiled
def _eight_by_two(a: Floats, y: Floats, x: Floats, i: int, j: int) -> None:
    i1, i2, i3, i4, j1 = i + ONE, i + TWO, i + THREE, i + FOUR, j + ONE
    i5, i6, i7 = i + U(5), i + U(6), i + U(7)
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = spread_wide(NOTHING)
    for m in range(ZERO, U(x.shape[1]), SIXTEEN):
        p, q = load_wide(x, j, m), load_wide(x, j1, m)
        y0, y1, y2, y3 = load_wide(y, i, m), load_wide(y, i1, m), load_wide(y, i2, m), load_wide(y, i3, m)
        y4, y5, y6, y7 = load_wide(y, i4, m), load_wide(y, i5, m), load_wide(y, i6, m), load_wide(y, i7, m)
        a0, a1, a2, a3 = a0 + y0 * p, a1 + y1 * p, a2 + y2 * p, a3 + y3 * p
        a4, a5, a6, a7 = a4 + y4 * p, a5 + y5 * p, a6 + y6 * p, a7 + y7 * p
        b0, b1, b2, b3 = b0 + y0 * q, b1 + y1 * q, b2 + y2 * q, b3 + y3 * q
        b4, b5, b6, b7 = b4 + y4 * q, b5 + y5 * q, b6 + y6 * q, b7 + y7 * q
    a[i, j], a[i1, j], a[i2, j], a[i3, j] = total(a0), total(a1), total(a2), total(a3)
    a[i4, j], a[i5, j], a[i6, j], a[i7, j] = total(a4), total(a5), total(a6), total(a7)
    a[i, j1], a[i1, j1], a[i2, j1], a[i3, j1] = total(b0), total(b1), total(b2), total(b3)
    a[i4, j1], a[i5, j1], a[i6, j1], a[i7, j1] = total(b4), total(b5), total(b6), total(b7)
