"""Which values of a parameter the quick tests try; the whole suite tries all."""

from collections.abc import Iterable

import pytest


def quick(few: set[str], every: Iterable[str]) -> list:
    """Return every name; tests of those that are not among the few are slow."""
    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in every]
