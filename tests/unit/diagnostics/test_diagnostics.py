"""Diagnostics against limits that are known in closed form."""

import math

import numpy as np
import pytest
import torch
from support.fixtures import batch_of

from testbed.diagnostics.metric_names import HISTOGRAM_EDGES, METRICS
from testbed.diagnostics.ratios import (
    HOW,
    clip_share,
    ess,
    log_ratio_histogram,
    prefix_ess,
    quantiles,
    ratio_metrics,
)
from testbed.inspection.effective_weights import effective_weights

LOG_W = torch.tensor(np.random.default_rng(0).normal(0, 2, (5, 40)))


def test_ess_reaches_its_limits_on_the_two_arm_bandit():
    # mu = (3/4, 1/4), pi = (1/4, 3/4): a sample in exact proportion has the population's ESS shares.
    log_w = torch.tensor([1 / 3, 1 / 3, 1 / 3, 3.0], dtype=torch.float64).log()
    expected = {"kish": 3 / 7, "perplexity": 3**-0.5, "max": 1 / 3}
    for how, limit in expected.items():
        assert float(ess(log_w, how=how)) == pytest.approx(limit, abs=1e-12)


def test_ess_is_ordered_bounded_by_its_floor_and_blind_to_scale():
    shares = {how: ess(LOG_W, how=how) for how in HOW}
    assert (shares["max"] <= shares["kish"]).all()
    assert (shares["kish"] <= shares["perplexity"]).all()
    assert (shares["max"] >= 1 / 40).all()
    assert (shares["perplexity"] <= 1).all()
    for how in HOW:
        torch.testing.assert_close(ess(LOG_W + 300.0, how=how), shares[how])


@pytest.mark.parametrize("how", HOW)
def test_equal_weights_give_a_full_share_and_one_heavy_weight_the_floor(how):
    assert float(ess(torch.full((8,), -7.0), how=how)) == pytest.approx(1.0, abs=1e-6)
    heavy = torch.zeros(8)
    heavy[3] = 1e4
    assert float(ess(heavy, how=how)) == pytest.approx(1 / 8, abs=1e-6)


def test_masked_weights_do_not_count():
    mask = torch.zeros(5, 40, dtype=torch.bool)
    mask[:, :7] = True
    for how in HOW:
        torch.testing.assert_close(ess(LOG_W, mask, how), ess(LOG_W[:, :7], None, how))


def test_every_metric_a_batch_logs_is_defined():
    logp, batch = batch_of()
    assert set(ratio_metrics(logp, batch)) <= set(METRICS)


def test_on_policy_every_ess_is_one_and_every_distance_zero():
    _, batch = batch_of()
    for name, value in ratio_metrics(batch.logp_mu_BT, batch).items():
        floor = {"rollout_corr/ess_floor": 1 / 8, "rollout_corr/ess_floor_token": 1 / 20}
        expected = floor.get(name, 1.0 if "ess" in name else 0.0)
        assert float(value) == pytest.approx(expected, abs=1e-7), name


def test_sums_by_hand_on_one_sequence_of_two_tokens():
    logp, batch = batch_of([(1.0, (2.0, 0.5))])
    rows = {k.removeprefix("rollout_corr/"): float(v) for k, v in ratio_metrics(logp, batch).items()}
    log2 = math.log(2)
    assert rows["ess_kish_token_raw"] == pytest.approx(2.5**2 / (2 * 4.25))
    assert rows["ess_max_token_raw"] == pytest.approx(2.5 / (2 * 2))
    assert rows["ess_kish_prefix_raw"] == pytest.approx(9 / (2 * 5))  # prefix ratios 2 and 1
    assert rows["ess_kish_sequence_raw"] == pytest.approx(1.0)
    assert rows["kl_mu_pi_k1"] == pytest.approx(0.0, abs=1e-12)
    assert rows["kl_mu_pi_k2"] == pytest.approx(log2**2 / 2)
    assert rows["kl_mu_pi_k3"] == pytest.approx(2.5 / 2 - 1)
    assert rows["kl_pi_mu_k1"] == pytest.approx((2 * log2 - 0.5 * log2) / 2)
    assert rows["kl_pi_mu_k2"] == pytest.approx(2.5 * log2**2 / 4)
    assert rows["kl_pi_mu_k3"] == pytest.approx((1.5 * log2 - 2.5 + 2) / 2)
    assert rows["chi2_token"] == pytest.approx(4.25 / 2 - 1)
    assert rows["chi2_sequence"] == pytest.approx(0.0, abs=1e-12)


def test_clamped_weights_are_bounded_by_two():
    logp, batch = batch_of([(1.0, (8.0,)), (1.0, (1.0,))])
    rows = ratio_metrics(logp, batch)
    assert float(rows["rollout_corr/ess_kish_sequence_raw"]) == pytest.approx(81 / (2 * 65))
    assert float(rows["rollout_corr/ess_kish_sequence_clamped"]) == pytest.approx(9 / (2 * 5))


def test_kl_estimators_are_unbiased_where_they_promise_it():
    mu, pi = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    # One single-token sequence per symbol, repeated in exact proportion to mu.
    sequences = [(1.0, (pi[a] / mu[a],)) for a in range(3) for _ in range(int(10 * mu[a]))]
    rows = ratio_metrics(*batch_of(sequences))
    for direction, exact in (("mu_pi", mu @ np.log(mu / pi)), ("pi_mu", pi @ np.log(pi / mu))):
        for k in ("k1", "k3"):
            assert float(rows[f"rollout_corr/kl_{direction}_{k}"]) == pytest.approx(exact, abs=1e-12)


def test_quantiles_are_nearest_ranks():
    logp, batch = batch_of([(1.0, (math.exp(i),)) for i in range(100)])
    rows = quantiles(logp - batch.logp_mu_BT, batch.mask_BT)
    for label, expected in (("p50", 49), ("p90", 89), ("p99", 98), ("p999", 99)):
        assert float(rows[f"rollout_corr/log_rho_sequence_{label}"]) == pytest.approx(expected, abs=1e-9)


def test_non_finite_log_ratios_are_counted_and_not_read_as_ratio_one():
    logp, batch = batch_of([(1.0, (1.0, 3.0)), (1.0, (1.0, 1.0))])
    logp[1, 1] = float("-inf")
    rows = ratio_metrics(logp, batch)
    assert float(rows["rollout_corr/nonfinite"]) == 1
    assert float(rows["rollout_corr/chi2_token"]) == pytest.approx((9 + 1 + 1) / 3 - 1)


def test_a_sequence_that_pi_never_writes_has_weight_zero():
    logp, batch = batch_of([(1.0, (1.0, 1.0)), (1.0, (1.0, 1.0))])
    logp[1, 1] = float("-inf")
    rows = {k.removeprefix("rollout_corr/"): float(v) for k, v in ratio_metrics(logp, batch).items()}
    # Weights 1 and 0; prefixes 1, 1, 1 and 0; of the tokens three are left.
    assert rows["ess_kish_sequence_raw"] == rows["ess_floor"] == pytest.approx(1 / 2)
    assert rows["ess_kish_prefix_raw"] == pytest.approx(3 / 4)
    assert rows["ess_kish_token_raw"] == pytest.approx(1.0)
    assert rows["ess_floor_token"] == pytest.approx(1 / 3)
    assert rows["chi2_sequence"] == pytest.approx(-1 / 2)
    assert rows["log_rho_sequence_p50"] == -math.inf
    assert rows["log_rho_token_p50"] == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_sequence_whose_weight_is_undefined_is_left_out(value):
    logp, batch = batch_of([(1.0, (2.0, 1.0)), (1.0, (1.0, 1.0)), (1.0, (1.0, 1.0))])
    logp[1, 1] = value
    rows = {k.removeprefix("rollout_corr/"): float(v) for k, v in ratio_metrics(logp, batch).items()}
    assert rows["ess_floor"] == pytest.approx(1 / 2)
    assert rows["ess_kish_sequence_raw"] == pytest.approx(9 / (2 * 5))  # weights 2 and 1
    assert rows["ess_kish_prefix_raw"] == pytest.approx(49 / (5 * 11))  # 2, 2, 1, 1 and 1
    assert rows["chi2_sequence"] == pytest.approx(5 / 2 - 1)
    assert rows["log_rho_sequence_p999"] == pytest.approx(math.log(2))


def test_prefix_ess_starts_at_the_first_token_and_ends_at_the_sequence():
    logp, batch = batch_of()
    curve = prefix_ess(logp, batch)
    log_rho = torch.where(batch.mask_BT, logp - batch.logp_mu_BT, 0.0)
    torch.testing.assert_close(curve[0], ess(log_rho[:, 0]))
    torch.testing.assert_close(curve[-1], ess(log_rho.sum(-1)))


def test_clip_share_counts_tokens_cut_by_the_objective():
    logp, batch = batch_of([(1.0, (1.5, 0.5)), (-1.0, (0.5, 1.25, 4.0)), (0.0, (9.0,))])
    weight = effective_weights("ppo_clip", logp, batch)
    assert float(clip_share(weight, batch)) == pytest.approx(2 / 5)


def test_the_histogram_counts_everything_once_even_outside_its_edges():
    log_w = torch.tensor([[-99.0, -16.0, 0.0, 0.1, 15.9, 16.0, 99.0]], dtype=torch.float64)
    counts = log_ratio_histogram(log_w)[0]
    assert int(counts.sum()) == 7
    assert counts[0] == 1
    assert counts[-1] == 2  # 16 and 99: bins are closed on the left
    assert counts[1 + int(np.searchsorted(HISTOGRAM_EDGES, 0.0))] == 2
