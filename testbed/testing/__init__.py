"""Assertions about an estimator, with declared error rates."""

from testbed.testing.assertions import (
    assert_coverage,
    assert_equivalent,
    assert_unbiased,
    assert_variance_below,
)

__all__ = ["assert_coverage", "assert_equivalent", "assert_unbiased", "assert_variance_below"]
