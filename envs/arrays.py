"""Types of the numpy arrays in this package."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Keys = NDArray[np.uint64]
"""Keys of counter-based random streams, one per replica."""
