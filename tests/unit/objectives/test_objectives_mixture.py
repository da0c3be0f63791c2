"""Facts about the mixtures: separate means, schedules, centers of clips.

max@k, off-policy and on-policy: enumeration, the exact gradient of a bandit, limits, extreme ratios.
"""

from dataclasses import replace
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import torch
from support.fixtures import Sequence, batch_of

from testbed.advantages import advantage
from testbed.data.signals import Signals
from testbed.inspection.effective_weights import effective_weights
from testbed.losses.subsets import log_binomial
from testbed.objectives.mixture.chord import expert_weight, mu_schedule
from testbed.objectives.mixture.max_at_k import exact_weights, first_order_weights
from testbed.objectives.mixture.remix import kl_convex_weight
from testbed.objectives.mixture.self_imitation import replay_weight


def test_phi_vanishes_at_certain_and_impossible_tokens_and_peaks_at_a_quarter():
    p = torch.tensor([1e-300, 1e-9, 0.5, 1 - 1e-9, 1.0], dtype=torch.float64)
    phi = expert_weight(p.log(), "on")
    torch.testing.assert_close(phi, torch.tensor([0, 1e-9, 0.25, 1e-9, 0]).double(), rtol=1e-6, atol=1e-17)
    grid = expert_weight(torch.linspace(-8, 0, 4001, dtype=torch.float64), "on")
    assert float(grid.max()) <= 0.25
    assert float(grid.max()) == pytest.approx(0.25, abs=1e-6)
    assert (expert_weight(p.log(), "off") == 1).all()
    torch.testing.assert_close(expert_weight(p.log(), "is"), p)
    # A probability above 1 does not exist; rounding must not turn imitation around.
    assert (expert_weight(torch.tensor([0.1, 1e4]), "on") == 0).all()


@pytest.mark.parametrize("name", ["chord", "self_imitation"])
def test_expert_tokens_need_no_log_probability_of_a_sampler(name):
    logp, batch = batch_of()
    wild = batch.logp_anchor_BT.clone()
    wild[7] = -1e4
    without = effective_weights(name, logp, replace(batch, logp_anchor_BT=wild))
    torch.testing.assert_close(without, effective_weights(name, logp, batch))


def test_mu_rises_linearly_to_its_peak_and_falls_like_a_cosine():
    steps = (0, 100, 200, 400, 600, 10_000)
    assert [mu_schedule(s) for s in steps] == pytest.approx([0, 0.25, 0.5, 0.26, 0.02, 0.02])
    quarter = mu_schedule(300)
    assert quarter == pytest.approx(0.02 + 0.48 * (1 + np.sqrt(0.5)) / 2)
    alone = {"warmup": 0, "decay": 200, "peak": 0.9, "valley": 0.05}
    assert [mu_schedule(s, **alone) for s in (0, 100, 200)] == pytest.approx([0.9, 0.475, 0.05])
    assert mu_schedule(0, warmup=0, decay=0, peak=0.5, valley=0.1) == 0.1


def test_kappa_rises_like_half_a_cosine():
    assert [*map(replay_weight, (0, 50, 100, 200, 500))] == pytest.approx([0, 0.146447, 0.5, 1, 1], abs=1e-6)
    assert replay_weight(150, full=300) == pytest.approx(0.5)


def test_remixs_anchor_to_the_base_model_fades_in_steps_of_a_tenth():
    steps = (0, 50, 51, 60, 61, 90, 91, 1000)
    assert [kl_convex_weight(s) for s in steps] == pytest.approx([1, 1, 0.9, 0.9, 0.8, 0.6, 0.5, 0.5])


DRAWS = np.random.default_rng(29)


def group_weights(rewards, ratios, k, order="exact", groups=None):
    """w of one-token sequences with the given rewards and ratios."""
    groups = groups or [0] * len(rewards)
    rows = zip(rewards, ratios, groups, strict=True)
    logp, batch = batch_of([Sequence(1.0, (float(w),), reward=float(r), group=g) for r, w, g in rows])
    return effective_weights("max_at_k", logp, batch, k=k, order=order)[:, 0].numpy()


def by_enumeration(rewards, ratios, k, order="exact"):
    n = len(rewards)
    total = np.zeros(n)
    for subset in map(list, combinations(range(n), k)):
        chosen = ratios[subset]
        weight = np.prod(chosen) if order == "exact" else 1 + np.sum(chosen - 1)
        total[subset] += weight * rewards[subset].max()
    return n * total / comb(n, k)


@pytest.mark.parametrize(("n", "k"), [(8, 1), (8, 2), (8, 4), (8, 8), (10, 3)])
@pytest.mark.parametrize("order", ["exact", "first"])
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_it_equals_the_sum_over_all_subsets(n, k, order, kind):
    rewards = DRAWS.normal(size=n) if kind == "real" else DRAWS.integers(0, 2, n).astype(float)
    ratios = np.exp(0.7 * DRAWS.normal(size=n))
    expected = by_enumeration(rewards, ratios, k, order)
    np.testing.assert_allclose(group_weights(rewards, ratios, k, order), expected, rtol=1e-12, atol=1e-12)


def policy(theta):
    return np.exp(theta) / np.exp(theta).sum()


@pytest.fixture(scope="module")
def bandit():
    mu, reward = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.0, 0.3, 0.6, 1.0])
    return np.array([0.1, 0.5, -0.2, 0.4]), mu, reward


@pytest.mark.parametrize("order", ["exact", "first"])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_without_a_shift_it_is_the_on_policy_advantage(order, k):
    rewards, groups = DRAWS.normal(size=9), [0] * 5 + [1] * 3 + [2]
    signals = Signals(torch.tensor(rewards), torch.tensor(groups))
    expected = advantage["max_at_k"].bind(k=k)(signals).numpy()
    np.testing.assert_allclose(group_weights(rewards, np.ones(9), k, order, groups), expected, rtol=1e-12)


def test_binary_rewards_give_the_published_pass_at_k():
    # PKPO: k/n for a success, k/n (1 - C(n-1-c, k-1) / C(n-1, k-1)) for a failure, c successes; times n here.
    n, c, k = 9, 2, 4
    signals = Signals(torch.tensor([1.0] * c + [0.0] * (n - c)).double(), torch.zeros(n, dtype=torch.int64))
    found = advantage["max_at_k"].bind(k=k)(signals)
    failure = k * (1 - comb(n - 1 - c, k - 1) / comb(n - 1, k - 1))
    np.testing.assert_allclose(found, [k] * c + [failure] * (n - c), rtol=1e-12)


def test_large_groups_do_not_overflow_the_binomials():
    reward = torch.tensor(DRAWS.uniform(size=2000))
    found = advantage["max_at_k"].bind(k=1000)(Signals(reward, torch.zeros(2000, dtype=torch.int64)))
    # A half of the group: the best response has n / C(n, k) C(n-1, k-1) = k of its reward.
    best = int(reward.argmax())
    assert float(found[best]) == pytest.approx(1000 * float(reward[best]), rel=1e-9)
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("log_w", [[1e4, -1e4, 0.0, 2.0], [1e4] * 4, [-1e4] * 4])
@pytest.mark.parametrize("rewards", [[1.0, -1.0, 0.0, 0.5], [0.0] * 4, [-1.0, -1.0, 2.0, 2.0]])
@pytest.mark.parametrize("compute", [exact_weights, first_order_weights])
def test_extreme_ratios_give_infinities_of_a_sign_but_never_nan(log_w, rewards, compute):
    order = np.argsort(rewards, kind="stable")
    log_w, reward = torch.tensor(log_w).double()[order][None], torch.tensor(rewards).double()[order][None]
    for k in (1, 2, 3, 4):
        assert not torch.isnan(compute(log_w, reward, torch.tensor([[4]]), k)).any()


def test_a_product_of_a_tiny_and_a_huge_ratio_is_what_it_is():
    # 2 / C(2, 2) * e^600 e^-600 * 3: neither factor of the pair is out of place.
    log_w, reward = torch.tensor([[600.0, -600.0]]).double(), torch.tensor([[1.0, 3.0]]).double()
    found = exact_weights(log_w, reward, torch.tensor([[2]]), 2)
    torch.testing.assert_close(found, torch.full_like(found, 6.0))


def test_binomials_count_subsets():
    for n, k in product(range(-1, 7), range(-2, 8)):
        expected = comb(n, k) if n >= 0 and k >= 0 else 0
        found = float(log_binomial(torch.tensor(n), torch.tensor(k)).exp())
        assert found == pytest.approx(expected, rel=1e-12)
