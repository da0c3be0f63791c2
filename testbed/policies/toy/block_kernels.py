"""Compiled halves of the toy transformer's blocks and their gradients, one replica after the other.

Values between two products stay in the caches. Cheap values are recomputed for the gradient, because memory
is slower. A replica's numbers depend only on its row, not on its neighbors in the stack.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.policies.toy.products import copy, cut, normalize, outer, padded, product
from testbed.policies.toy.simd import compiled, compiled_for_weights, load_wide, root, spread_wide, store

Floats = NDArray[np.float32]

U: Any = np.uint64
ZERO, SIXTEEN = U(0), U(16)
UNIT, NOTHING = np.float32(1.0), np.float32(0.0)


@compiled_for_weights("w_RID")
def read(y_RIM: Floats, w_RID: Floats, x_RDM: Floats, epsilon: np.float32) -> None:
    """y = w norm(x)."""
    R, D, M = U(x_RDM.shape[0]), U(x_RDM.shape[1]), U(x_RDM.shape[2])
    x, y = _room(D, M), _room(y_RIM.shape[1], M)
    for r in range(R):
        copy(x, ZERO, x_RDM[r], M)
        normalize(x, x, epsilon)
        product(y, w_RID[r], x, False)
        copy(y_RIM[r], ZERO, y, M)


@compiled_for_weights("w_RID")
def read_gradient(
    grad_w_RID: Floats, grad_x_RDM: Floats, g_RIM: Floats, w_RID: Floats, x_RDM: Floats, epsilon: np.float32
) -> None:
    """Fill the gradients of w and x, given that of w norm(x)."""
    R, D, M = U(x_RDM.shape[0]), U(x_RDM.shape[1]), U(x_RDM.shape[2])
    x, normed, grad, g = _room(D, M), _room(D, M), _room(D, M), _room(g_RIM.shape[1], M)
    for r in range(R):
        copy(x, ZERO, x_RDM[r], M)
        copy(g, ZERO, g_RIM[r], M)
        normalize(normed, x, epsilon)
        outer(grad_w_RID[r], g, normed)
        product(grad, w_RID[r].T, g, False)
        _through_norm(grad, x, normed, epsilon)
        copy(grad_x_RDM[r], ZERO, grad, M)


@compiled_for_weights("out_RDD", "up_RHD", "down_RDH")
def feed_forward(
    z_RDM: Floats,
    y_RDM: Floats,
    x_RDM: Floats,
    attended_RDM: Floats,
    out_RDD: Floats,
    up_RHD: Floats,
    down_RDH: Floats,
    epsilon: np.float32,
) -> None:
    """z = y + down relu(up norm(y)) with y = x + out attended."""
    R, D, M = U(x_RDM.shape[0]), U(x_RDM.shape[1]), U(x_RDM.shape[2])
    y, normed, hidden = _room(D, M), _room(D, M), _room(up_RHD.shape[1], M)
    for r in range(R):
        copy(y, ZERO, x_RDM[r], M)
        copy(normed, ZERO, attended_RDM[r], M)
        product(y, out_RDD[r], normed, True)
        copy(y_RDM[r], ZERO, y, M)
        normalize(normed, y, epsilon)
        product(hidden, up_RHD[r], normed, False)
        cut(hidden)
        product(y, down_RDH[r], hidden, True)
        copy(z_RDM[r], ZERO, y, M)


@compiled_for_weights("out_RDD", "up_RHD", "down_RDH")
def feed_forward_gradient(
    grads: tuple[Floats, Floats, Floats, Floats, Floats],
    g_RDM: Floats,
    y_RDM: Floats,
    attended_RDM: Floats,
    out_RDD: Floats,
    up_RHD: Floats,
    down_RDH: Floats,
    epsilon: np.float32,
) -> None:
    """Fill the gradients of x, attended, out, up and down, given that of z and the forward pass's y."""
    (R, D, M), H = y_RDM.shape, up_RHD.shape[1]
    grad_x, grad_attended, grad_out, grad_up, grad_down = grads
    y, normed, g, grad = _room(D, M), _room(D, M), _room(D, M), _room(D, M)
    hidden, g_hidden = _room(H, M), _room(H, M)
    for r in range(U(R)):
        copy(y, ZERO, y_RDM[r], U(M))
        copy(g, ZERO, g_RDM[r], U(M))
        normalize(normed, y, epsilon)
        product(hidden, up_RHD[r], normed, False)
        cut(hidden)
        outer(grad_down[r], g, hidden)
        product(g_hidden, down_RDH[r].T, g, False)
        _where_on(g_hidden, hidden)
        outer(grad_up[r], g_hidden, normed)
        product(grad, up_RHD[r].T, g_hidden, False)
        _through_norm(grad, y, normed, epsilon)
        _add(grad, g)
        copy(grad_x[r], ZERO, grad, U(M))
        copy(normed, ZERO, attended_RDM[r], U(M))
        outer(grad_out[r], grad, normed)
        product(g, out_RDD[r].T, grad, False)
        copy(grad_attended[r], ZERO, g, U(M))


@compiled
def _room(rows: int, columns: int) -> Floats:
    return np.zeros((rows, padded(U(columns))), np.float32)


@compiled
def _through_norm(g: Floats, x: Floats, normed: Floats, epsilon: np.float32) -> None:
    """g = scale (g - normed mean over features of g normed): from the gradient of normed to that of x."""
    D, per_feature = U(x.shape[0]), spread_wide(UNIT / np.float32(x.shape[0]))
    for j in range(ZERO, U(x.shape[1]), SIXTEEN):
        square, dot = spread_wide(NOTHING), spread_wide(NOTHING)
        for d in range(D):
            square = square + load_wide(x, d, j) * load_wide(x, d, j)
            dot = dot + load_wide(g, d, j) * load_wide(normed, d, j)
        scale = spread_wide(UNIT) / root(square * per_feature + spread_wide(epsilon))
        mean = dot * per_feature
        for d in range(D):
            store(g, d, j, scale * (load_wide(g, d, j) - load_wide(normed, d, j) * mean))


@compiled
def _where_on(g: Floats, hidden: Floats) -> None:
    """Set g to 0 where the hidden unit is off."""
    for i in range(U(g.shape[0])):
        for j in range(U(g.shape[1])):
            g[i, j] = NOTHING if hidden[i, j] <= NOTHING else g[i, j]


@compiled
def _add(y: Floats, x: Floats) -> None:
    for i in range(U(y.shape[0])):
        for j in range(U(y.shape[1])):
            y[i, j] += x[i, j]
