"""Step-size rules on VCPO's worked example, on-policy, and where estimates are not numbers."""

import math

import pytest
import torch
from support.refusals import refuses

from testbed.recipes.composition import ess_factor, trust_region_factor

LOG_W = torch.tensor([1.0, 1.0, 4.0, 0.25], dtype=torch.float64).log()
SHARE = 6.25**2 / (1 + 1 + 16 + 0.0625) / 4  # .54066


@pytest.mark.parametrize(
    ("rule", "reference", "expected"),
    [("sqrt", 1.0, 0.7353), ("sqrt", 0.55, 0.9915), ("linear", 1.0, 0.54066),
     ("linear", 0.55, 0.54066 / 0.55), ("sqrt", 0.3, 1.0)],
)  # fmt: skip
def test_the_worked_example(rule, reference, expected):
    assert float(ess_factor(LOG_W, reference=reference, rule=rule)) == pytest.approx(expected, abs=5e-5)
    exact = min(1.0, SHARE / reference)
    exact = math.sqrt(exact) if rule == "sqrt" else exact
    assert float(ess_factor(LOG_W, reference=reference, rule=rule)) == pytest.approx(exact, rel=1e-12)


def test_every_replica_has_its_own_factor_and_the_scale_of_weights_does_not_matter():
    both = ess_factor(torch.stack([LOG_W + 50, torch.zeros_like(LOG_W), LOG_W - 900]))
    torch.testing.assert_close(both, torch.stack([ess_factor(LOG_W), both.new_ones(()), ess_factor(LOG_W)]))


def test_one_weight_that_carries_everything_leaves_the_floor():
    assert float(ess_factor(torch.tensor([1e4, 0.0, -1e4, 0.0]).double())) == pytest.approx(0.5, rel=1e-12)


def test_an_unknown_rule_and_a_useless_reference_are_refused():
    refuses("Did you mean 'sqrt'", ess_factor, LOG_W, rule="sqr")
    for reference in (0.0, -1.0, math.nan):
        refuses("above 0", ess_factor, LOG_W, reference=reference)


LOG_RHO = torch.tensor([[[0.5, -0.5, 0.0]], [[0.0, 0.0, 0.0]], [[0.1, 0.1, 9.0]]], dtype=torch.float64)
MASK = torch.tensor([[[True, True, True]], [[True, True, True]], [[True, True, False]]])


def test_a_step_outside_the_trust_region_is_skipped():
    # k2 per token: (.125 + .125 + 0) / 3 = .0833; 0; .005, whatever stands outside the mask.
    factor = trust_region_factor(LOG_RHO * MASK, MASK, limit=0.08, estimator="mu_pi_k2")
    assert factor.tolist() == [0.0, 1.0, 1.0]
    assert trust_region_factor(LOG_RHO * MASK, MASK, limit=0.084, estimator="mu_pi_k2").tolist() == [1.0] * 3


def test_the_estimator_is_named_and_a_bound_that_is_met_is_kept():
    # k1 of KL(mu, pi) is -mean log rho: 0, 0, -.1. k1 of the other direction is mean rho log rho > 0.
    assert trust_region_factor(LOG_RHO * MASK, MASK, limit=0.0, estimator="mu_pi_k1").tolist() == [1.0] * 3
    other = trust_region_factor(LOG_RHO * MASK, MASK, limit=0.0, estimator="pi_mu_k1")
    assert other.tolist() == [0.0, 1.0, 0.0]
    refuses("mu_pi_k3", trust_region_factor, LOG_RHO, MASK, limit=0.1, estimator="k4")


def test_an_estimate_that_is_not_a_number_stops():
    bad = LOG_RHO.clone()
    bad[0, 0, 0] = torch.nan
    assert trust_region_factor(bad, MASK, limit=100.0).tolist() == [0.0, 1.0, 1.0]
