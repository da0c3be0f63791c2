"""pytest fixture `conforms`: `def test_my_loss(conforms): conforms(my_loss, as_="cispo")`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from testbed.conformance.conformance_report import in_words
from testbed.conformance.signature import bind

if TYPE_CHECKING:
    from testbed.conformance.conformance_check import Conformance


@pytest.fixture(scope="session")
def conforms() -> "Callable[..., Conformance]":
    """Return a function that fails the test if a loss differs from the entry it is called by.

    conforms(fn, as_="cispo", aggregation="token_mean", hyper={"eps_high": 4.0}, inputs={"a": "adv"},
    given={"beta": 0.0}, layout="packed", strict=False): arguments of conformance_check.conform and
    signature.bind in testbed.conformance. Returns the findings.
    """

    def check(
        function: Callable[..., Any],
        as_: str,
        inputs: Mapping[str, str] | None = None,
        given: Mapping[str, Any] | None = None,
        layout: str = "",
        **options: Any,
    ) -> "Conformance":
        from testbed.conformance.conformance_check import conform

        name = getattr(function, "__qualname__", repr(function))
        found = conform(bind(function, name, inputs, given, layout), as_, **options)
        if not found.holds:
            pytest.fail("\n".join(in_words(found.as_dict())), pytrace=False)
        return found

    return check
