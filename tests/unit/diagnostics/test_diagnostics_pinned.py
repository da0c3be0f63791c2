"""Every metric of drawn weights, compared whole: ragged masks, ties, zeros, infinite and missing weights."""

import numpy as np
import pytest
import torch
from support.fixtures import batch_of, hostile
from support.pins import outcome, pinned

from testbed.diagnostics import held_out_metrics as held
from testbed.diagnostics import peer_limits, ratio_metrics, tail_indices
from testbed.diagnostics.sign_shares import sign_shares
from testbed.diagnostics.weight_sums import WeightSums, expected_share
from testbed.inspection.effective_weights import effective_weights

DRAW = np.random.default_rng(5)
LOG_W = {
    "ragged": (DRAW.normal(0, 1.2, (7, 5)), DRAW.random((7, 5)) < 0.6),
    "heavy": (DRAW.standard_t(1.5, (40, 3)), DRAW.random((40, 3)) < 0.9),
    "tied": (np.array([[0.5, 0.5, -1.0], [0.5, -1.0, 2.0], [0.0, 0.0, 0.0]]), np.eye(3) < 1),
    "zeros": (np.array([[-np.inf, 0.3], [0.2, -np.inf], [-np.inf, -np.inf]]), np.ones((3, 2), bool)),
    "infinite": (np.array([[np.inf, 0.3], [0.2, 800.0]]), np.ones((2, 2), bool)),
    "empty row": (np.array([[0.1, 0.7, -0.2], [9.0, 9.0, 9.0]]), np.array([[1, 1, 1], [0, 0, 0]], bool)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOG_W)
def test_every_metric_of_ratios_is_as_before(name):
    log_w, mask = LOG_W[name]
    log_BT, mask_BT = torch.from_numpy(log_w), torch.from_numpy(np.asarray(mask))
    log_B, any_B = ratio_metrics.sequence_weights(log_BT, mask_BT)
    found = {
        "family": ratio_metrics.ess_family(log_BT, mask_BT),
        "at": ratio_metrics.ess_at("sequence", log_B, any_B),
        "sequence": (log_B, any_B),
        "mean": ratio_metrics.masked_mean(log_BT, mask_BT),
        "kl": ratio_metrics.kl_estimates(log_BT, mask_BT),
        "quantiles": ratio_metrics.quantiles(log_BT, mask_BT),
        "histogram": np.flatnonzero(outcome(ratio_metrics.log_ratio_histogram, log_B)),
        "of one": {how: ratio_metrics.ess(log_BT[0], how=how) for how in ("kish", "perplexity", "max")},
    }
    pinned("diagnostics", f"ratios, {name}", found)


@pytest.mark.parametrize("name", LOG_W)
def test_sums_of_weights_give_every_metric_as_before(name):
    log_w, mask = LOG_W[name]
    for upper in (np.inf, 2.0):
        sums = outcome(WeightSums.of, log_w, mask, upper=upper)
        if isinstance(sums, str):
            pinned("diagnostics", f"sums, {name}, {upper}", sums)
            continue
        found = {
            each: outcome(getattr(sums, each))
            for each in ("ess", "floor", "max_share", "chi2", "kish_upper_limit", "excess_kurtosis", "kl")
        }
        found |= {"tight": outcome(sums.kish_upper_limit, 0.01), "array": sums.to_array()}
        found |= {how: outcome(sums.ess, how) for how in ("perplexity", "max")}
        other = outcome(WeightSums.of, log_w[::-1] - 0.3, np.asarray(mask)[::-1], upper=upper)
        both = sums if isinstance(other, str) else sums + other
        pinned(
            "diagnostics",
            f"sums, {name}, {upper}",
            found | {"both": outcome(both.metrics, "token", "clamped")},
        )


def test_tails_are_fitted_as_before():
    for name, x in {
        "heavy": LOG_W["heavy"][0].ravel(), "normal": np.random.default_rng(1).normal(size=300),
        "few": np.arange(7.0), "flat": np.zeros(60), "with zeros": np.append(np.arange(60.0), [-np.inf] * 5),
        "tied": np.repeat(np.arange(12.0), 9), "lost": np.array([0.0, np.nan, 1.0] * 20), "none": np.zeros(0),
    }.items():  # fmt: skip
        found = {
            "length": tail_indices.tail_length(len(x)),
            "k": outcome(tail_indices.pareto_k, x), "k of 12": outcome(tail_indices.pareto_k, x, 12),
            "smooth": outcome(lambda x: tail_indices.smooth(x)[0][-30:], x),
            "hill": outcome(tail_indices.hill, x, 9), "moment": outcome(tail_indices.moment, x, 9),
            "metrics": outcome(tail_indices.tail_metrics, x, "token"),
        }  # fmt: skip
        pinned("diagnostics", f"tails, {name}", found)


def test_a_batch_has_the_metrics_it_had():
    for seed in (3, 4):
        logp, batch = batch_of(hostile(seed))
        weight = effective_weights("ppo_clip", logp, batch)
        found = {
            "ratios": ratio_metrics.ratio_metrics(logp, batch), "signs": sign_shares(weight, batch),
            "clipped": ratio_metrics.clip_share(weight, batch),
        }  # fmt: skip
        pinned("diagnostics", f"batch {seed}", found)


def test_held_out_metrics_are_subsets_counted_as_before():
    reward = np.round(np.random.default_rng(2).random((2, 3, 8)), 1)
    level = np.array([[1, 2, 2], [3, 3, 1]])
    found = {
        "pass": held.pass_metrics(np.where(reward > 0.6, 1.0, reward)),
        "levels": held.difficulty_metrics(reward, level, (1, 2, 3, 4)),
        "share": expected_share([0.5, 0.0, 2.0, 1.0], [0.4, 0.1, 0.2, 0.3], 5),
        "perplexity": expected_share([0.5, 0.0, 2.0], [0.4, 0.3, 0.3], 4, "perplexity"),
        "max": expected_share([0.5, 0.0, 2.0], [0.4, 0.3, 0.3], 4, "max"),
    }
    pinned("diagnostics", "held out", found)


def test_every_limit_of_a_peer_fires_as_before():
    rows = []
    for step in range(6):
        rows.append({"step": 3.0 * step})
        for n, each in enumerate(peer_limits.PEERS):
            side = 0.5 + (step * (n + 1)) % 4 / 3
            rows[-1][each.metric] = each.limit * side if (n + step) % 5 else np.nan
    found = {
        f"{n}": {"plain": alert.plain(), "fired": alert.fired}
        for n, alert in enumerate(peer_limits.alerts(rows, peer_limits.PEERS))
    }
    pinned("diagnostics", "limits", found)
