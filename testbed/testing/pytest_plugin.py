"""pytest fixture `declared_rates`: pytest_plugins = ["testbed.testing.pytest_plugin"] in your conftest.py."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.testing.sample_size import FALSE_ALARM, MISSED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --false-alarm, --missed and --estimator-seed."""
    group = parser.getgroup("testbed", "assertions with declared rates")
    group.addoption("--false-alarm", type=float, default=FALSE_ALARM, help="chance of a false alarm per test")
    group.addoption("--missed", type=float, default=MISSED, help="chance to miss the declared discrepancy")
    group.addoption("--estimator-seed", type=int, default=0, help="rotate it in a nightly job, nowhere else")


@pytest.fixture
def declared_rates(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Rates and a seed for this test: `assert_unbiased(…, **declared_rates)`.

    The seed is a SeedSequence of --estimator-seed and the test's id: tests share no draws, and a new test
    changes no other. Each further assertion of a test uses the next `seed.spawn(1)[0]`.
    """
    option = request.config.getoption
    name = int.from_bytes(hashlib.sha256(request.node.nodeid.encode()).digest()[:8], "little")
    return {
        "false_alarm": option("--false-alarm"),
        "missed": option("--missed"),
        "seed": np.random.SeedSequence([option("--estimator-seed"), name]),
    }
