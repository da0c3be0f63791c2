"""The clipped family: published and hand-worked values, limits between its members, bad input.

The clipped objectives with a batch statistic: BAPO's bounds and what runs under the name of M2PO.
"""

import math

import numpy as np
import pytest
import torch
from support.fixtures import SEQUENCES, Sequence, batch_of, changed, weights
from support.refusals import refuses

from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.kept_mask import kept_mask
from testbed.objectives import objective
from testbed.objectives.clipped.bapo import BOUNDS, RELEASED_BOUNDS
from testbed.objectives.clipped.holder import holder_exponent, log_power_mean
from testbed.objectives.clipped.m2po import BREAKPOINT, mismatch_keep, trust_region_keep

SAME_POLICY = changed(anchor=None)
"""Anchor and behavior agree, so that objectives against either can be compared."""


def of_logs(*sequences):
    """Sequences of (advantage, log-ratios)."""
    return [Sequence(adv, tuple(math.exp(x) for x in logs)) for adv, logs in sequences]


def uneven(sequences=SEQUENCES):
    """The fixture with advantages that vary within a sequence, and change sign in some."""
    logp, batch = batch_of(sequences)
    factor = torch.tensor([1.0, -0.5, 1.75], dtype=logp.dtype)
    return logp, Batch(
        **{**batch.__dict__, "adv_BT": torch.where(batch.mask_BT, batch.adv_BT * factor, batch.adv_BT)}
    )


def close(one, other, atol=1e-12):
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


WIDE = {"eps_low": 1.0, "eps_high": 1e9}
TURN_EACH = changed(turn=lambda s: tuple(range(len(s.ratios))))
OPEN = {"b_low": math.inf, "b_high": math.inf, "b_c": math.inf, "p": 0.0}
FIXED = {"low_start": 0.7, "low_end": 0.7, "high_start": 1.4, "high_end": 1.4}
BUDGET = of_logs((1.0, (0.1, 0.2)), (-1.0, (-0.1, 3.0)))
TOKEN = ("importance_reinforce", {"level": "token"})
LEVEL = "importance_reinforce"
SIDES = (("s_ppo", "ppo_clip"), ("st_ppo", "turn_ppo"))
LIMITS = (
    ("two_sided without a cap is ppo", ("two_sided", {"delta": math.inf}), ("ppo_clip", {})),
    ("two_sided at 1 cuts all that rises", ("two_sided", {"delta": 1.0}),
     ("dual_clip", {"eps_high": 0.0, "c": 1.2})),
    ("a skewed window of skyrl's cispo is verl's", *((f"cispo@{x}", {"eps_low": 0.5, "eps_high": 0.1})
                                                    for x in ("skyrl", "verl"))),
    ("two_sided above the bound is dual_clip", ("two_sided", {"delta": 2.5}), ("dual_clip", {"c": 2.5})),
    ("opsm that drops nothing is ppo", ("opsm", {"delta": math.inf}), ("ppo_clip", {})),
    *(("gspo_token is gspo where A is that of the sequence", ("gspo_token", {"eps_low": x, "eps_high": x}),
       ("gspo", {"eps_low": x, "eps_high": x})) for x in (3e-4, 0.3, 0.9)),
    *((f"alp unclipped has the ratio of its level {x}", ("alp", {"level": x, "c": 1e9, **WIDE}),
       (LEVEL, {"level": x})) for x in ("sequence", "prefix", "geometric", "token")),
    ("turn_ppo with one token a turn is ppo", ("turn_ppo", {}), ("ppo_clip", {}), TURN_EACH),
    ("st_ppo with one token a turn is s_ppo", ("st_ppo", {}), ("s_ppo", {}), TURN_EACH),
    *((f"{x} that subtracts nothing is {plain}", (x, {"correction": "subtract", "alpha": 0.0}), (plain, {}))
      for x, plain in SIDES),
    *((f"{x} that adds what it cut is {plain}", (x, {"correction": "subtract", "alpha": -1.0}), (plain, WIDE))
      for x, plain in SIDES),
    ("ctpo without a window is prefix weighting", ("ctpo", OPEN), (LEVEL, {"level": "prefix"}), SAME_POLICY),
    ("bapo that does not search is ppo", ("bapo", FIXED), ("ppo_clip", {"eps_low": 0.3, "eps_high": 0.4})),
    ("the released m2po within budget is token weighting", ("m2po@author", {}), TOKEN, BUDGET),
    ("m2po with an infinite budget is token weighting", ("m2po", {"tau": math.inf}), TOKEN),
    ("ppo that never clips is token weighting", ("ppo_clip", WIDE), TOKEN, SAME_POLICY),
    ("dual_clip that never clips is token weighting", ("dual_clip", {"c": 1e9, **WIDE}), TOKEN, SAME_POLICY),
)  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit[0])
def test_in_a_limit(limit):
    _, (one, hyper), (other, others), *sequences = limit
    close(weights(one, *sequences, **hyper), weights(other, *sequences, **others))


def test_verl_loses_only_the_gradient_of_ratios_beyond_e20():
    near, far = of_logs((1.0, (-19.0,)), (-1.0, (25.0,))), of_logs((1.0, (-25.0,)))
    close(weights("dual_clip@verl", near), weights("dual_clip", near), atol=0)
    assert float(weights("dual_clip", far)) > 0
    assert float(weights("dual_clip@verl", far)) == 0


def test_gspo_token_gives_each_token_its_own_advantage_and_gspo_the_mean():
    logp, batch = uneven()
    wide = {"eps_low": 0.99, "eps_high": 99.0}
    own = effective_weights("gspo_token", logp, batch, **wide)
    shared = effective_weights("gspo", logp, batch, **wide)
    length_B1 = batch.mask_BT.sum(-1, keepdim=True)
    log_u_BT = torch.where(batch.mask_BT, logp - batch.logp_anchor_BT, 0.0)
    s_B1 = (log_u_BT.sum(-1, keepdim=True) / length_B1).exp()
    close(own, torch.where(batch.mask_BT, s_B1 * batch.adv_BT / length_B1, 0.0))
    mean_B1 = torch.where(batch.mask_BT, batch.adv_BT, 0.0).sum(-1, keepdim=True) / length_B1
    close(shared, torch.where(batch.mask_BT, s_B1 * mean_B1 / length_B1, 0.0))
    close(own.sum(-1), shared.sum(-1))


def test_verl_calls_gspo_token_gspo():
    logp, batch = uneven()
    close(effective_weights("gspo@verl", logp, batch), effective_weights("gspo_token", logp, batch))
    beyond = of_logs((-1.0, (11.0, 11.0)))
    assert (weights("gspo", beyond) < -1e4).all()
    assert (weights("gspo@verl", beyond) == 0).all()


def test_gmpo_in_verl_chooses_the_side_token_by_token():
    logp, batch = batch_of([(1.0, (1.5, 1.5, 0.5))])
    signs = Batch(**{**batch.__dict__, "adv_BT": torch.tensor([[3.0, 0.0, -1.0]], dtype=logp.dtype)})
    # Cut above, no advantage, cut below: nothing has a gradient, and g = exp((0.2 + 0 - 0.2) / 3) = 1.
    assert (effective_weights("gmpo@verl", logp, signs) == 0).all()
    loss = objective["gmpo@verl"].function(logp, signs)
    close(loss.sum(), torch.tensor(-2.0 / 3, dtype=logp.dtype))
    # The paper has one sign per sequence: only what grows beyond 0.4 is cut.
    assert (effective_weights("gmpo", logp, signs) > 0).tolist() == [[False, False, True]]


@pytest.mark.parametrize("eps", [0.05, 0.3])
def test_holder_tends_to_gspo_as_p_vanishes(eps):
    bounds = {"eps_low": eps, "eps_high": eps}
    geometric = weights("gspo", **bounds)
    for p, atol in [(0.0, 1e-14), (1e-9, 1e-14), (1e-5, 1e-4), (-1e-3, 1e-2)]:
        close(weights("holder", p=p, **bounds), geometric, atol=atol)


def test_holder_clipped_by_token_tends_to_gmpo():
    bounds = {"eps_low": 1 - math.exp(-0.4), "eps_high": math.exp(0.4) - 1}
    close(weights("holder", p=0.0, clip="token", **bounds), weights("gmpo"))


def test_the_power_mean_is_precise_for_small_exponents_and_single_precision():
    log_u = torch.linspace(-0.3, 0.4, 500)[None]
    mask = torch.ones_like(log_u, dtype=torch.bool)
    for p in (0.008, 2e-6):
        # log of a mean close to 1, divided by p: log1p and expm1 lose nothing.
        exact = math.log1p(np.expm1(p * log_u.double().numpy()).mean()) / p
        assert abs(float(log_power_mean(log_u, mask, p)) - exact) < 1e-7


def test_the_exponent_follows_its_schedule():
    start_middle_end = [holder_exponent(x) for x in (0.0, 0.5, 1.0)]
    assert start_middle_end == [2.0, 0.0, -2.0]
    assert holder_exponent(0.7, schedule="constant") == 2.0
    assert holder_exponent(0.5, schedule="quadratic") == 1.0
    assert holder_exponent(0.25, schedule="cubic") == pytest.approx(2.0 * 0.5**3)
    assert holder_exponent(0.25, schedule="cosine", start=1, end=-1) == pytest.approx(math.sqrt(0.5))
    assert holder_exponent(7.0) == -2.0
    refuses("Did you mean 'linear'", holder_exponent, 0.5, schedule="linaer")


def test_ctpo_counts_positions_without_tool_tokens():
    sequences = of_logs((1.0, (0.02, 0.02, 0.045)))  # 0.085: inside at position 3 (0.0866) and no sooner
    logp, batch = batch_of(sequences, hole=True)
    with_hole = effective_weights("ctpo", logp, batch)[batch.mask_BT]
    close(with_hole, weights("ctpo", sequences)[0])
    outside = of_logs((1.0, (0.02, 0.02, 0.0477)))  # 0.0877: inside only if the tool token counted (0.1)
    logp, batch = batch_of(outside, hole=True)
    assert float(effective_weights("ctpo", logp, batch)[0, -1]) == 0


def test_ctpos_released_code_recovers_from_one_far_token():
    sequences = of_logs((1.0, (-25.0, 20.01)))
    assert float(weights("ctpo", sequences)[0, 1]) == pytest.approx(math.exp(-4.99))
    assert float(weights("ctpo@author", sequences)[0, 1]) == pytest.approx(1.0)
    wide = {"b_low": math.inf, "b_high": math.inf, "b_c": math.inf}
    far = of_logs((1.0, (9.0, 2.0)))
    assert weights("ctpo@author", far, **wide)[0].tolist() == pytest.approx([math.exp(9), 0])
    # The mean of logs is cut at 10 too, one log at 20 before it: (3 + 20)/2 > 10 > (-4 + 20)/2 = 8.
    means = of_logs((1.0, (9.0, 13.0)), (1.0, (3.0, 25.0)), (1.0, (-4.0, 25.0)))
    found = weights("ctpo@author-geomean", means, **{**wide, "p": 0.0})
    expected = [[math.exp(9), 0], [math.exp(3), 0], [math.exp(-4), math.exp(8)]]
    assert found.tolist() == [pytest.approx(row) for row in expected]


def moved(pi, mu, adv):
    logp, mu = (torch.tensor([[x]], dtype=torch.float64).log() for x in (pi, mu))
    adv = torch.full_like(logp, adv)
    return logp, Batch(mu, adv, adv != 0, adv[:, 0], torch.zeros(1, dtype=torch.int64))


UNIT = [Sequence(1.0, (2.0, 0.5)), Sequence(-1.0, (0.5, 1.5, 1.45))]


def bounds(statistic=BOUNDS, sequences=UNIT, **hyper):
    if statistic is BOUNDS:
        hyper = {"mu_weights": False, **hyper}
    return statistic(*batch_of(sequences), **hyper).tolist()


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


MOVED = {
    "low_start": 0.61, "low_end": 0.8, "low_step": 0.07, "high_start": 1.23, "high_end": 2.0,
    "high_step": 0.35, "target": 0.43, "share": "gradient", "mu_weights": False,
}  # fmt: skip


@pytest.mark.parametrize("moved", MOVED)
def test_bapo_cuts_where_the_search_with_its_own_arguments_ends(moved):
    ladder_K = np.arange(0.3, 3.4, 0.02) + 0.003
    sequences = [Sequence(1.0, tuple(ladder_K)), Sequence(-1.0, tuple(ladder_K))]
    usual = {"target": 0.45 if moved in ("share", "mu_weights") else 0.99}
    hyper = {**usual, moved: MOVED[moved]}
    low, high = BOUNDS(*batch_of(sequences), **hyper).tolist()
    assert [low, high] != pytest.approx(BOUNDS(*batch_of(sequences), **usual).tolist())
    cut = np.where(ladder_K <= high, ladder_K, 0.0), -np.where(ladder_K >= low, ladder_K, 0.0)
    np.testing.assert_allclose(weights("bapo", sequences, **hyper), np.stack(cut), rtol=1e-6)


def test_bapo_on_a_batch_of_one_sign_keeps_the_bounds_it_starts_with_or_ends_with():
    assert bounds(sequences=UNIT[:1]) == pytest.approx([0.6, 1.2])
    assert bounds(sequences=UNIT[1:]) == pytest.approx([0.9, 3.0])
    assert (weights("bapo", changed(adv=0.0)) == 0).all()


MOVES = [(1.0, (0.1,)), (-1.0, (-(0.02**0.5),)), (1.0, (0.3,)), (-1.0, (-0.6,))]


def test_the_released_m2po_clips_two_of_the_four_that_the_paper_keeps_three_of():
    sequences = of_logs(*MOVES)
    assert float(BREAKPOINT(*batch_of(sequences))) == pytest.approx(0.02)
    kept = weights("m2po@author", sequences) != 0
    assert kept.flatten().tolist() == [True, True, False, False]
    assert kept_mask("m2po@author", *batch_of(sequences)).tolist() == kept.tolist()  # the bound included
    assert (weights("m2po", sequences, tau=0.0400001) != 0).sum() == 3
    loss = objective["m2po@author"].function(*batch_of(sequences)).flatten()
    np.testing.assert_allclose(loss[2:], [-1.1519, 0.8681], atol=5e-5)


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


def test_on_budget_the_paper_and_its_release_keep_what_areal_drops():
    logp, batch = steps_of(0.25, 0.5)  # squares 1/16 and 1/4, mean 5/32
    for budget, released in ((5 / 32, True), (5 / 32 - 1e-9, False)):
        found = effective_weights("m2po@author", logp, batch, tau=budget)
        assert (found != 0).tolist() == [[True, released]]
    assert trust_region_keep(logp, batch, tau=5 / 32).tolist() == [[True, True]]
    assert mismatch_keep(logp, batch, tau=5 / 32).tolist() == [[True, False]]
    assert mismatch_keep(logp, batch, tau=5 / 32 + 1e-9).tolist() == [[True, True]]


def test_areal_counts_every_token_keeps_one_at_least_and_caps_the_engine_ratio():
    logp, batch = steps_of(0.5, -0.25, 0.375)
    assert mismatch_keep(logp, batch, tau=1e-6).tolist() == [[False, True, False]]
    padded = batch_of(width=9)
    assert torch.equal(mismatch_keep(*padded)[:, :3], mismatch_keep(*batch_of()))  # padding has no share
    logp, batch = steps_of(1.75, 1.5)
    assert mismatch_keep(logp, batch, tau=9.0).tolist() == [[False, True]]  # e^1.75 = 5.75, e^1.5 = 4.48
    np.testing.assert_allclose(effective_weights("m2po@areal", logp, batch, tau=9.0), [[0, math.exp(1.5)]])


def test_areal_stops_a_token_as_soon_as_it_moves_with_its_advantage():
    sequences = of_logs((1.0, (1e-6, -1e-6)), (-1.0, (1e-6, -1e-6)))
    assert (weights("m2po@areal", sequences) != 0).tolist() == [[False, True], [True, False]]


def test_m2po_with_no_budget_keeps_only_what_is_not_harmful():
    logp, batch = batch_of()
    harmful = batch.mask_BT & (batch.adv_BT * (logp - batch.logp_mu_BT) > 0)
    assert ((weights("m2po", tau=0.0) == 0) == (harmful | ~batch.mask_BT)).all()


def test_a_weight_that_overflows_weighs_nothing_where_there_is_no_advantage():
    logp, batch = batch_of([(0.0, (1.5, 0.5)), (1.0, (1.1,))])
    far = logp + 1e4
    weight = effective_weights("importance_reinforce", far, batch)
    assert (weight[0] == 0).all()
    assert weight[1, 0] == torch.inf
