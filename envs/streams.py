"""The counter-based stream of `envs.kernels` in plain numpy, bit for bit, for machines without Numba."""

import numpy as np

from envs.arrays import Floats, Keys

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# Philox-4x32-10: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3".
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10


def uniforms(key_R: Keys, step: int, sequences: int, tokens: int) -> Floats:
    """Return [R, B, T] doubles in [0, 1): the first double of counter (t, b, step, 0) under each key.

    The same numbers as `envs.kernels.uniforms`, from vectorized arithmetic.
    """
    shape = (len(key_R), sequences, tokens)
    c0 = np.broadcast_to(np.arange(tokens, dtype=np.uint64), shape)
    c1 = np.broadcast_to(np.arange(sequences, dtype=np.uint64)[:, None], shape)
    c2 = np.full(shape, step, dtype=np.uint64)
    c3 = np.zeros(shape, dtype=np.uint64)
    k0 = (key_R & _LOW)[:, None, None]
    k1 = (key_R >> _SHIFT)[:, None, None]
    for _ in range(_ROUNDS):
        product_0, product_1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0 = (product_1 >> _SHIFT) ^ c1 ^ k0
        c2 = (product_0 >> _SHIFT) ^ c3 ^ k1
        c1, c3 = product_1 & _LOW, product_0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    bits: Keys = ((c0 << _SHIFT) | c1) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
