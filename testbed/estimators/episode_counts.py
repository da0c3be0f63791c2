"""Weighted counts per data set, the input of every tabular estimator."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Floats, Ints


def tally(index_xM: Ints, size: int, weight_xM: NDArray[Any]) -> Floats:
    """Sum the weights per index over the last axis, [x, size]; leading axes are counted separately."""
    lead = index_xM.shape[:-1]
    flat_RM = index_xM.reshape(math.prod(lead), index_xM.shape[-1])
    # Each data set has indices of its own, so that one bincount serves all.
    shifted_RM = flat_RM + size * np.arange(len(flat_RM))[:, None]
    weight_M = np.broadcast_to(weight_xM, index_xM.shape).astype(np.float64).ravel()
    total_RS = np.bincount(shifted_RM.ravel(), weight_M, minlength=size * len(flat_RM))
    return total_RS.astype(np.float64).reshape(*lead, size)


def unflatten(values_xK: Floats, shape: tuple[int, ...]) -> Floats:
    """Reshape the last axis to `shape`."""
    return values_xK.reshape(values_xK.shape[:-1] + tuple(shape))


def ratio(top_x: Floats, bottom_x: Floats, empty: float = 0.0) -> Floats:
    """top / bottom; `empty` where bottom is 0."""
    return np.divide(top_x, bottom_x, out=np.full_like(top_x, empty), where=bottom_x > 0)


def merged(values_xNT: NDArray[Any]) -> NDArray[Any]:
    """Merge the steps of all episodes into one row, [x, N T]."""
    return values_xNT.reshape(*values_xNT.shape[:-2], -1)
