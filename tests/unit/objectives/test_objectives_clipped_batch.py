"""The clipped objectives with a batch statistic: BAPO's bounds and what runs under the name of M2PO."""

import math

import numpy as np
import pytest
import torch
from support.fixtures import Sequence, batch_of, changed, weights

from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import objective
from testbed.objectives.clipped.bapo import BOUNDS, RELEASED_BOUNDS
from testbed.objectives.clipped.m2po import BREAKPOINT, mismatch_keep, trust_region_keep


def of_logs(*sequences):
    """Sequences of (advantage, log-ratios)."""
    return [Sequence(adv, tuple(math.exp(x) for x in logs)) for adv, logs in sequences]


def close(one, other, atol=1e-12):
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


# BAPO


UNIT = [Sequence(1.0, (2.0, 0.5)), Sequence(-1.0, (0.5, 1.5, 1.45))]


def bounds(statistic=BOUNDS, sequences=UNIT, **hyper):
    if statistic is BOUNDS:
        hyper = {"mu_weights": False, **hyper}
    return statistic(*batch_of(sequences), **hyper).tolist()


def test_bapo_raises_the_upper_bound_until_positives_have_their_share():
    assert bounds(target=0.3238) == pytest.approx([0.6, 1.2])  # 1.7 / 5.25 at the start
    assert bounds(target=0.3239) == pytest.approx([0.6, 1.25])
    assert bounds() == pytest.approx([0.6, 1.9])
    assert bounds(target=2.4 / 5.95 + 1e-9) == pytest.approx([0.6, 1.95])


def test_bapo_by_the_share_of_tokens_that_keep_a_gradient():
    sequences = [Sequence(1.0, (1.98, 0.5)), UNIT[1]]
    assert bounds(sequences=sequences, share="gradient") == pytest.approx([0.6, 2.0])
    # Raising c_low above 0.6 cuts a negative at 0.65, which only this reading counts as progress.
    low = [Sequence(1.0, (1.0,)), Sequence(-1.0, (0.65, 1.2))]
    assert bounds(sequences=low, share="gradient", target=0.45)[0] == pytest.approx(0.66)
    assert bounds(sequences=low, share="value", target=0.45)[0] == pytest.approx(0.9)


def test_bapo_literally_is_not_confined_to_shares():
    assert bounds(share="literal", target=0.9) == pytest.approx([0.6, 1.2])  # 1.7 / |1.7 - 3.55| = 0.919


def test_bapo_weighs_tokens_by_the_samplers_probability():
    weighted = bounds(mu_weights=True, target=0.36)
    assert weighted != bounds(target=0.36)
    mu = [math.exp(-1.6 - 0.1 * t) for t in range(2)], [math.exp(-1.65 - 0.1 * t) for t in range(3)]
    negative = np.dot(mu[1], (0.6, 1.5, 1.45))
    shares = [
        np.dot(mu[0], (min(2.0, h), 0.5)) / (np.dot(mu[0], (min(2.0, h), 0.5)) + negative)
        for h in (weighted[1] - 0.05, weighted[1])
    ]
    assert shares[0] < 0.36 <= shares[1]


def test_bapo_without_room_below_does_not_move():
    assert bounds(low_end=0.61) == pytest.approx([0.6, 1.2])


def test_bapo_that_cannot_reach_its_target_ends_at_both_limits():
    assert bounds(target=0.99) == pytest.approx([0.9, 3.0])


def test_bapo_without_a_search_is_ppo_with_absolute_bounds():
    fixed = {"low_start": 0.7, "low_end": 0.7, "high_start": 1.4, "high_end": 1.4}
    close(weights("bapo", **fixed), weights("ppo_clip", eps_low=0.3, eps_high=0.4))


def test_bapos_released_code_exhausts_the_lower_bound_first():
    assert bounds(RELEASED_BOUNDS) == pytest.approx([0.8, 2.0])
    # 1.7 / 3.55 = 0.4789 at the start; c_low takes it to 1.7 / 3.75 = 0.4533.
    assert bounds(RELEASED_BOUNDS, target=0.4788) == pytest.approx([0.6, 1.2])
    assert bounds(RELEASED_BOUNDS, target=0.479) == pytest.approx([0.8, 1.3])
    assert bounds(RELEASED_BOUNDS, target=9.0, high_end=2.02)[1] == pytest.approx(2.02)


def share_of(u, size, share, low, high):
    up, down = size > 0, size < 0
    if share == "gradient":
        positive, negative = (size * u)[up & (u <= high)].sum(), -(size * u)[down & (u >= low)].sum()
    else:
        positive = (size * np.minimum(u, high))[up].sum()
        negative = -(size * np.maximum(u, low))[down].sum()
    return positive / (abs(positive - negative) if share == "literal" else positive + negative)


def loop(u, size, share, target):
    """Algorithm 1 as its loop, in hundredths."""
    low, high = 60, 120
    while share_of(u, size, share, low / 100, high / 100) < target and low + 2 <= 90:
        low, high = (low, high + 5) if high + 5 <= 300 else (low + 2, high)
    return [low / 100, high / 100]


@pytest.mark.parametrize("share", ["value", "literal", "gradient"])
def test_bapos_one_pass_over_the_tokens_is_the_loop_of_algorithm_1(share):
    draws = np.random.default_rng(0)
    found = []
    for _ in range(40):
        u, adv = np.exp(draws.normal(0, 0.6, (5, 3))), np.array([-1.0, 1.0, 0.5, -2.0, 1.0])
        sequences = [Sequence(float(a), tuple(row)) for a, row in zip(adv, u, strict=True)]
        flat = u.ravel(), np.repeat(adv, 3), share
        ends = sorted([share_of(*flat, 0.6, 1.2), share_of(*flat, 0.9, 3.0)])
        target = draws.uniform(ends[0] - 0.01, ends[1] + 0.03)
        expected = loop(*flat, target)
        assert bounds(sequences=sequences, share=share, target=target) == pytest.approx(expected)
        found.append(tuple(expected))
    assert len(set(found)) > 5


def test_bapo_on_a_batch_of_one_sign_keeps_the_bounds_it_starts_with_or_ends_with():
    assert bounds(sequences=UNIT[:1]) == pytest.approx([0.6, 1.2])
    assert bounds(sequences=UNIT[1:]) == pytest.approx([0.9, 3.0])
    assert (weights("bapo", changed(adv=0.0)) == 0).all()


# M2PO and what runs under its name


MOVES = [(1.0, (0.1,)), (-1.0, (-(0.02**0.5),)), (1.0, (0.3,)), (-1.0, (-0.6,))]


def test_the_released_m2po_clips_two_of_the_four_that_the_paper_keeps_three_of():
    sequences = of_logs(*MOVES)
    assert float(BREAKPOINT(*batch_of(sequences))) == pytest.approx(0.02)
    kept = weights("m2po@author", sequences) != 0
    assert kept.flatten().tolist() == [True, True, False, False]
    assert (weights("m2po", sequences, tau=0.0400001) != 0).sum() == 3
    loss = objective["m2po@author"].function(*batch_of(sequences)).flatten()
    np.testing.assert_allclose(loss[2:], [-1.1519, 0.8681], atol=5e-5)


def test_the_released_m2po_within_budget_is_importance_weighting():
    sequences = of_logs((1.0, (0.1, 0.2)), (-1.0, (-0.1, 3.0)))
    close(weights("m2po@author", sequences), weights("importance_reinforce", sequences, level="token"))


def test_trinitys_clamp_takes_the_gradient_of_what_it_clamps():
    close(weights("m2po@trinity"), weights("m2po"), atol=0)
    far = of_logs((-1.0, (25.0, 0.1)))
    assert weights("m2po", far)[0, 0] < -1e10
    assert weights("m2po@trinity", far)[0].tolist() == pytest.approx([0.0, -math.exp(0.1)])


def steps_of(*log_steps):
    """One sequence whose anchor is behavior plus exact steps, and whose policy is the anchor."""
    mu = torch.full((1, len(log_steps)), -2.0, dtype=torch.float64)
    anchor, one = mu + torch.tensor([log_steps], dtype=torch.float64), torch.ones_like(mu)
    return anchor, Batch(mu, one, one.bool(), one[:, 0], torch.zeros(1, dtype=torch.int64), anchor)


def test_the_released_m2po_lets_everything_pass_that_is_exactly_on_budget():
    logp, batch = steps_of(0.25, 0.5)  # squares 1/16 and 1/4, mean 5/32
    assert (effective_weights("m2po@author", logp, batch, tau=5 / 32) != 0).tolist() == [[True, True]]
    assert (effective_weights("m2po@author", logp, batch, tau=5 / 32 - 1e-9) != 0).tolist() == [[True, False]]


def test_areal_drops_at_the_budget_where_the_paper_keeps():
    logp, batch = steps_of(0.25, 0.5)  # squares 1/16 and 1/4, mean 5/32
    assert trust_region_keep(logp, batch, tau=5 / 32).tolist() == [[True, True]]
    assert mismatch_keep(logp, batch, tau=5 / 32).tolist() == [[True, False]]
    assert mismatch_keep(logp, batch, tau=5 / 32 + 1e-9).tolist() == [[True, True]]


def test_areal_counts_every_token_keeps_one_at_least_and_caps_the_engine_ratio():
    logp, batch = steps_of(0.5, -0.25, 0.375)
    assert mismatch_keep(logp, batch, tau=1e-6).tolist() == [[False, True, False]]
    logp, batch = steps_of(1.75, 1.5)
    assert mismatch_keep(logp, batch, tau=9.0).tolist() == [[False, True]]  # e^1.75 = 5.75, e^1.5 = 4.48
    np.testing.assert_allclose(effective_weights("m2po@areal", logp, batch, tau=9.0), [[0, math.exp(1.5)]])


def test_areal_stops_a_token_as_soon_as_it_moves_with_its_advantage():
    sequences = of_logs((1.0, (1e-6, -1e-6)), (-1.0, (1e-6, -1e-6)))
    assert (weights("m2po@areal", sequences) != 0).tolist() == [[False, True], [True, False]]
