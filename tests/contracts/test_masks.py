"""What a function reads under a mask is all that it reads: finite numbers elsewhere change nothing."""

import numpy as np
import pytest
import torch

from testbed.adapters.trl_callback import live_metrics
from testbed.critics.fitted import explained
from testbed.diagnostics import ratio_metrics as metrics
from testbed.diagnostics.weight_sums import WeightSums

MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
GARBAGE = (50.0, -50.0, 1.0)
"""Outside the mask, in place of 0: ratios of exp(50) and exp(-50), and one that looks like any other."""

CASES = {
    "masked_mean": lambda x, other: metrics.masked_mean(x, MASK),
    "kl_estimates": lambda x, other: metrics.kl_estimates(x, MASK),
    "ess_at": lambda x, other: metrics.ess_at("token", x.flatten(), MASK.flatten()),
    "quantiles_at": lambda x, other: metrics.quantiles_at("token", x.flatten(), MASK.flatten()),
    "explained": lambda x, other: explained(x[None], other[None], MASK[None]),
    "weight_sums": lambda x, other: vars(WeightSums.of(x, MASK)),
    "live_metrics": lambda x, other: live_metrics(x - 3, other - 3, MASK),
} | {
    f"ess: {how}": lambda x, other, how=how: metrics.ess(x.flatten(), MASK.flatten(), how)
    for how in metrics.HOW
}  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", CASES)
def test_finite_numbers_outside_the_mask_change_nothing(name, garbage):
    stream = np.random.default_rng(3)
    x, other = (torch.tensor(stream.normal(0, 0.7, MASK.shape)) for _ in range(2))
    clean, dirty = (
        CASES[name](torch.where(MASK, x, value), torch.where(MASK, other, -value)) for value in (0.0, garbage)
    )
    torch.testing.assert_close(dirty, clean, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_numbers_under_the_mask_matter(name):
    stream = np.random.default_rng(3)
    x, other = (torch.tensor(stream.normal(0, 0.7, MASK.shape)) for _ in range(2))
    moved = torch.where(MASK, x + torch.arange(12.0).view(3, 4) / 7, x)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(CASES[name](moved, other), CASES[name](x, other), equal_nan=True)
