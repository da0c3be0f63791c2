"""Random streams named by purpose, so that a new stream never changes another."""

import hashlib

import numpy as np


def key(seed: int, purpose: str) -> int:
    """Return the 64-bit key of the stream (seed, purpose)."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def keys(seeds: tuple[int, ...], purpose: str) -> np.ndarray:
    """Return one 64-bit key per replica, uint64 [R]."""
    return np.array([key(seed, purpose) for seed in seeds], dtype=np.uint64)


def generator(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """Return a Philox generator for one purpose at one step, independent of call order."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose), counter=[0, 0, 0, step]))
