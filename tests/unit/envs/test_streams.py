"""The numpy stream and the compiled stream are the same stream."""

import numpy as np

from envs import kernels, streams
from testbed import rng


def test_numpy_and_numba_give_the_same_bits():
    keys = rng.keys((0, 1, 7), "sampling")
    for step in (0, 3, 2**31):
        assert np.array_equal(streams.uniforms(keys, step, 5, 9), kernels.uniforms(keys, step, 5, 9))


def test_keys_differ_by_seed_and_by_purpose_and_are_pinned():
    assert rng.key(0, "sampling") != rng.key(1, "sampling")
    assert rng.key(0, "sampling") != rng.key(0, "evaluation")
    assert rng.key(0, "sampling") == 9802809229976155402


def test_generators_are_named_by_purpose_and_step_not_by_call_order():
    first = rng.generator(3, "prompts", step=2).random(4)
    rng.generator(3, "prompts", step=1).random(9)
    assert np.array_equal(first, rng.generator(3, "prompts", step=2).random(4))
    assert not np.array_equal(first, rng.generator(3, "prompts", step=3).random(4))
