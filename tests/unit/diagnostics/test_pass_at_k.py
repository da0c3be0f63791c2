"""pass@k and max@k: unbiased by enumeration of every sample, and what they refuse."""

from itertools import product

import numpy as np
import pytest

from testbed.diagnostics.pass_at_k import max_at_k, pass_at_k
from testbed.errors import UserError


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_unbiased_over_all_samples(k):
    success_XN = np.array(list(product([0, 1], repeat=5)))
    for p in (0.0, 0.1, 0.6, 1.0):
        chance_X = np.where(success_XN, p, 1 - p).prod(-1)
        assert chance_X @ pass_at_k(success_XN, k) == pytest.approx(1 - (1 - p) ** k, abs=1e-14)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_max_at_k_is_unbiased_over_all_samples(k):
    value, chance = np.array([-0.5, 0.25, 1.0]), np.array([0.5, 0.3, 0.2])

    def law(n):
        index_XN = np.array(list(product(range(3), repeat=n)))
        return value[index_XN], chance[index_XN].prod(-1)

    reward_XN, chance_X = law(5)
    best, weight = law(k)
    assert chance_X @ max_at_k(reward_XN, k) == pytest.approx(weight @ best.max(-1), abs=1e-14)


def test_of_rewards_zero_and_one_both_are_the_same():
    success_XN = np.random.default_rng(0).random((3, 7, 8)) < 0.3
    for k in range(1, 9):
        assert pass_at_k(success_XN, k).shape == (3, 7)
        np.testing.assert_allclose(pass_at_k(success_XN, k), max_at_k(success_XN, k), atol=1e-14)


@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize("estimator", [pass_at_k, max_at_k])
def test_a_k_that_the_samples_do_not_allow_is_refused(estimator, k):
    with pytest.raises(UserError, match=f"k is {k} for 4 samples"):
        estimator(np.zeros((2, 4)), k)
