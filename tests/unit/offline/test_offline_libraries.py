"""Kernels beside libraries that compute the same: where one is not installed, its comparison is skipped."""

import pytest
from references.reference_libraries import COMPARISONS, missing


@pytest.mark.parametrize("each", COMPARISONS, ids=lambda each: f"{each.library}, {each.what}")
def test_the_kernel_has_the_librarys_value(each):
    if reason := missing(each):
        pytest.skip(reason)
    assert each.gap() <= each.most
