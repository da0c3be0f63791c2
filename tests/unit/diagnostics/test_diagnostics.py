"""Diagnostics against limits that are known in closed form.

The third estimate of a KL divergence is never negative, and infinite where the ratio overflows.
pass@k and max@k: unbiased by enumeration of every sample, and what they refuse.
Metrics: each has one definition, aliases belong to them, and the page says what the code says.
"""

import json
import math
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from support.command_line import refused, told
from support.fixtures import batch_of
from support.refusals import refuses

from analysis.pages.metrics_page import page
from testbed.diagnostics.held_out_metrics import max_at_k, pass_at_k
from testbed.diagnostics.metric_aliases import ALIASES, rows
from testbed.diagnostics.metric_names import HISTOGRAM_EDGES, METRICS, ON_REQUEST
from testbed.diagnostics.ratio_metrics import (
    HOW,
    clip_share,
    ess,
    kl_estimates,
    log_ratio_histogram,
    quantiles,
    ratio_metrics,
)
from testbed.diagnostics.tail_indices import Flat, pareto_k, tail_metrics
from testbed.diagnostics.weight_sums import WeightSums
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


@pytest.mark.parametrize("how", HOW)
def test_weights_in_two_bytes_or_whole_numbers_lose_no_more_than_their_own_rounding(how):
    log_w = torch.tensor(np.random.default_rng(0).normal(0, 0.5, 5000)).bfloat16()
    assert float(ess(log_w, how=how)) == pytest.approx(float(ess(log_w.double(), how=how)), rel=1e-5)
    given = log_w[None], torch.ones(1, 5000, dtype=torch.bool)
    for name, value in kl_estimates(*given).items():
        assert float(value) == pytest.approx(float(kl_estimates(given[0].double(), given[1])[name]), rel=1e-4)
    whole = torch.tensor([0, 1, -1])
    torch.testing.assert_close(ess(whole, how=how), ess(whole.float(), how=how))
    refuses("Unknown ESS 'kisch'. Did you mean 'kish'", ess, whole, how="kisch")


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


@pytest.mark.parametrize(
    ("log_rho", "dtype"), [(710.0, torch.float64), (90.0, torch.float32), (math.inf, torch.float32)]
)
def test_an_overflowing_ratio_is_infinite_not_nan(log_rho, dtype):
    assert third(log_rho, dtype) == (float("inf"), float("inf"))


def test_a_ratio_of_zero_has_the_limits_of_all_six_estimates():
    found = kl_estimates(torch.tensor([[-math.inf, 0.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert [value.item() for value in found.values()] == [math.inf] * 3 + [0.0, 0.0, 0.5]


@pytest.mark.parametrize("spread", [1e-7, 1e-5, 1e-3])
def test_small_spreads_in_float32_are_never_negative(spread):
    x = torch.tensor(np.random.default_rng(0).normal(0, spread, (64, 32)), dtype=torch.float32)
    found = kl_estimates(x, torch.ones_like(x, dtype=torch.bool))
    for name in (MU, PI):
        assert float(found[name]) == pytest.approx(float((x.double() ** 2).mean() / 2), rel=1e-2)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_is_unbiased_over_all_samples(k):
    success_XN = np.array(list(product([0, 1], repeat=5)))
    for p in (0.0, 0.1, 0.6, 1.0):
        chance_X = np.where(success_XN, p, 1 - p).prod(-1)
        assert chance_X @ pass_at_k(success_XN, k) == pytest.approx(1 - (1 - p) ** k, abs=1e-14)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_max_at_k_is_unbiased_over_all_samples(k):
    value, chance = np.array([-0.5, 0.25, 1.0]), np.array([0.5, 0.3, 0.2])

    def law(n):
        index_XN = np.array(list(product(range(3), repeat=n)))
        return value[index_XN], chance[index_XN].prod(-1)

    reward_XN, chance_X = law(5)
    best, weight = law(k)
    assert chance_X @ max_at_k(reward_XN, k) == pytest.approx(weight @ best.max(-1), abs=1e-14)


def test_of_rewards_zero_and_one_both_are_the_same():
    success_XN = np.random.default_rng(0).random((3, 7, 8)) < 0.3
    for k in range(1, 9):
        assert pass_at_k(success_XN, k).shape == (3, 7)
        np.testing.assert_allclose(pass_at_k(success_XN, k), max_at_k(success_XN, k), atol=1e-14)


@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize("estimator", [pass_at_k, max_at_k])
def test_a_k_that_the_samples_do_not_allow_is_refused(estimator, k):
    refuses(f"k is {k} for 4 samples", estimator, np.zeros((2, 4)), k)


ROOT = Path(__file__).parents[3]
WIDE = np.random.default_rng(0).normal(0, 1, 500)


def test_aliases_belong_to_metrics_and_no_stack_has_one_key_for_two_of_them_unremarked():
    assert set(ALIASES) <= set(METRICS)
    plain = [(a.stack, a.key) for aliases in ALIASES.values() for a in aliases if not a.differs]
    assert len(plain) == len(set(plain))


def test_sums_and_tails_name_what_they_return():
    known = {**METRICS, **ON_REQUEST}
    for level in ("token", "prefix", "sequence"):
        for which in ("raw", "clamped"):
            assert set(WeightSums.of(WIDE).metrics(level, which)) <= set(known)
        assert set(tail_metrics(WIDE, level)) <= set(known)
    assert isinstance(pareto_k(np.zeros(500)), Flat)
    assert tail_metrics(np.zeros(500), "sequence") == {}
    mostly_zero = np.where(np.arange(500) < 480, -np.inf, WIDE)
    assert np.isfinite(list(tail_metrics(mostly_zero, "token").values())).all()


def test_a_number_on_request_is_that_of_the_batch_where_both_exist():
    sums = WeightSums.of(WIDE).metrics("sequence")
    assert sums["rollout_corr/ess_floor"] == 1 / 500
    assert sums["rollout_corr/ess_kish_sequence_raw"] == WeightSums.of(WIDE).ess("kish")
    for call in (lambda: WeightSums.of(WIDE).metrics("turn"), lambda: tail_metrics(WIDE, "turn")):
        refuses("Unknown level 'turn'", call, error=ValueError)
    with pytest.raises(ValueError, match="Unknown kind of weights 'clipped'"):
        WeightSums.of(WIDE).metrics("token", "clipped")


def test_the_page_is_what_the_code_says(capsys, tmp_path):
    again = "not what the code says; run: testbed evidence pages metrics"
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), again
    told(capsys, "evidence", "pages", "metrics", "--docs", str(tmp_path / "new"))
    assert (tmp_path / "new" / "metrics.md").read_text() == page()


def test_the_command_finds_metrics_by_our_name_and_by_another_stacks(capsys):
    found = json.loads(told(capsys, "list", "metrics", "*k3_kl*", "--json"))
    assert [row["name"] for row in found] == ["rollout_corr/kl_mu_pi_k3"]
    assert len(json.loads(told(capsys, "list", "metrics", "--json"))) == len(rows())
    assert "exp(entropy" in told(capsys, "list", "metrics", "rollout_corr/ess_perplexity_token_raw")


def test_an_unknown_metric_is_an_error_with_a_suggestion(capsys):
    assert "Did you mean 'rollout_corr/chi2_token'?" in refused(
        capsys, "list", "metrics", "rollout_corr/chi2_tokens"
    )
