"""The third estimate of a KL divergence is never negative, and infinite where the ratio overflows."""

import mpmath
import numpy as np
import pytest
import torch

from testbed.diagnostics.ratios import kl_estimates

MU, PI = "rollout_corr/kl_mu_pi_k3", "rollout_corr/kl_pi_mu_k3"


def third(log_rho, dtype):
    found = kl_estimates(torch.tensor([[log_rho]], dtype=dtype), torch.ones(1, 1, dtype=torch.bool))
    return float(found[MU]), float(found[PI])


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 2e-6), (torch.float64, 2e-14)])
@pytest.mark.parametrize(
    "log_rho", [1e-7, -1e-7, 1e-5, -1e-5, 0.01, -0.3, 0.49, 0.51, -0.51, 3.0, -8.0, -60.0]
)
def test_both_are_exact_to_rounding(log_rho, dtype, rel):
    with mpmath.workdps(60):
        x = mpmath.mpf(float(torch.tensor(log_rho, dtype=dtype)))
        rho = mpmath.e**x
        wanted = float(rho - 1 - x), float(rho * x - rho + 1)
    assert third(log_rho, dtype) == pytest.approx(wanted, rel=rel)


@pytest.mark.parametrize(("log_rho", "dtype"), [(710.0, torch.float64), (90.0, torch.float32)])
def test_an_overflowing_ratio_is_infinite_not_nan(log_rho, dtype):
    assert third(log_rho, dtype) == (float("inf"), float("inf"))


@pytest.mark.parametrize("spread", [1e-7, 1e-5, 1e-3])
def test_small_spreads_in_float32_are_never_negative(spread):
    x = torch.tensor(np.random.default_rng(0).normal(0, spread, (64, 32)), dtype=torch.float32)
    found = kl_estimates(x, torch.ones_like(x, dtype=torch.bool))
    for name in (MU, PI):
        assert float(found[name]) == pytest.approx(float((x.double() ** 2).mean() / 2), rel=1e-2)
