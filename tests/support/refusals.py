"""A line for every call that must be refused."""

from collections.abc import Callable

import pytest

from testbed.errors import UserError


def refuses(says: str, call: Callable, /, *given: object, error: type = UserError, **named: object) -> str:
    """Assert that the call raises the error with a message in which the pattern is found; return it.

    says: "" for a message that the caller reads.
    """
    with pytest.raises(error, match=says or None) as told:
        call(*given, **named)
    return str(told.value)
