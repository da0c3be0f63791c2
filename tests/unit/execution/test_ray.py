"""Without Ray, the error says what to install; tests/campaign tries it where it is installed."""

import sys

import pytest

from testbed.errors import UserError


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.execution.ray_executor import LOOPBACK, Ray

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED", LOOPBACK):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        UserError, match=r"Ray is not installed. Install it: pip install 'off-policy-testbed\[ray\]'"
    ):
        Ray()
