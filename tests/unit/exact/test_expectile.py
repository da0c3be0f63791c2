"""Expectiles of one distribution: ties and single values included, and equal to those of many at once."""

import numpy as np
import pytest

from testbed.exact.value_learning import expectile
from testbed.offline.tabular import expectiles


@pytest.mark.parametrize("tau", [0.03, 0.5, 0.9])
@pytest.mark.parametrize(
    ("values", "masses"),
    [([2.0], [1.0]), ([1.0, 1.0], [0.5, 0.5]), ([0.3, 0.3, 0.7], [0.2, 0.3, 0.5]), ([0.1] * 7, [1 / 7] * 7)],
)
def test_one_value_and_ties_have_an_expectile(values, masses, tau):
    found = expectile(np.array(values), np.array(masses), tau)
    assert found == pytest.approx(float(expectiles(np.array(values), np.array(masses), tau)), rel=1e-12)
    if len(set(values)) == 1:
        assert found == pytest.approx(values[0])


def test_the_expectile_balances_what_lies_above_and_below():
    rng = np.random.default_rng(0)
    for _ in range(500):
        values = rng.choice([0.1, 0.2, 0.3, 0.7], size=rng.integers(1, 6))
        masses, tau = rng.dirichlet(np.ones(values.size)), rng.uniform(0.02, 0.98)
        m = expectile(values, masses, tau)
        above, below = masses @ np.clip(values - m, 0, None), masses @ np.clip(m - values, 0, None)
        assert tau * above == pytest.approx((1 - tau) * below, abs=1e-12)
