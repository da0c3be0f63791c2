"""Limits on a fixed mu: closed forms, the flows that lead there, and the figures drawn from them."""

import fcntl
import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.refusals import refuses

from analysis.tables.committed import load_committed
from analysis.tables.making import add_tables, write_tables
from testbed.exact import flows

MU = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
REWARD = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
SUCCESS = np.array([True, True, False, False])
FOUR = np.array([0.4, 0.3, 0.2, 0.1])


def entropy(pi):
    return -sum(p * np.log(p) for p in pi if p > 0)


def end(drift, start=MU, until=1e6):
    return flows.flow(drift, start, np.array([0.0, until])).pi_TA[-1]


def loss_gradient(loss, log_pi, step=1e-6):
    """Central differences of loss(log pi) in the logits."""
    found = []
    for k in range(len(log_pi)):
        shift = np.zeros(len(log_pi))
        shift[k] = step
        up, down = (x - np.log(np.exp(x).sum()) for x in (log_pi + shift, log_pi - shift))
        found.append((loss(up) - loss(down)) / (2 * step))
    return np.array(found)


def test_an_action_is_left_exactly_when_the_sum_of_c_exceeds_its_threshold():
    rng = np.random.default_rng(3)
    for _ in range(200):
        drift = rng.normal(size=6) + rng.uniform(0, 1)
        if drift.sum() <= 0:
            continue
        left = flows.drift_limit(drift) > 1e-12
        assert (left == (drift.sum() > flows.drift_threshold(drift))).all()
        level = flows.drift_level(drift)
        assert (left == (drift > level)).all()
        assert np.maximum(drift - level, 0).sum() == pytest.approx(drift.sum())
    # The level of positive c is 0, also where .1 + .2 + .3 is more than .3 + .2 + .1.
    assert flows.drift_level(np.array([0.1, 0.2, 0.3])) == 0.0
    refuses("expected more than 0", flows.drift_level, np.array([1.0, -1.0]))


def test_asymre_drops_each_action_at_its_threshold_and_nowhere_else():
    thresholds = flows.asymre_thresholds(MU, REWARD)
    assert thresholds.max() == 0.0
    assert np.sort(thresholds)[-2] == pytest.approx(flows.asymre_transition(MU, REWARD), abs=1e-14)
    for y, delta_v in enumerate(thresholds):
        if delta_v < 0:
            beside = [flows.asymre_limit(MU, REWARD, delta_v + step)[y] for step in (-1e-7, 1e-7)]
            assert beside[0] > 0 == beside[1]
    # Along the flow itself: between two thresholds, exactly those with the lower one are left.
    ordered = np.sort(thresholds)
    for low, high in itertools.pairwise(ordered[:-1]):
        middle = (low + high) / 2
        found = end(flows.linear_drift(flows.asymre_drift(MU, REWARD, middle)))
        assert ((found > 1e-3) == (thresholds > middle)).all()


def test_topr_drops_each_success_at_its_threshold():
    thresholds = flows.topr_thresholds(FOUR, SUCCESS)
    assert thresholds == pytest.approx([0.7 / 0.3, 0.6 / 0.3, 0, 0])
    for y, a_minus in enumerate(thresholds[:2]):
        assert flows.topr_limit(FOUR, SUCCESS, a_minus - 1e-9)[y] > 0
    assert flows.topr_limit(FOUR, SUCCESS, thresholds[1] + 1e-9) == pytest.approx([1, 0, 0, 0])
    refuses("depends on the start", flows.topr_limit, FOUR, SUCCESS, thresholds[0] + 1e-9)
    rare = np.array([0.1, 0.2, 0.7])  # most of mu fails: no failure is in the way of a success
    found = flows.topr_thresholds(rare, np.array([True, True, False]))
    assert found == pytest.approx([0.2 / 0.7, 0.3 / 0.7, 0])


def test_thresholds_need_mass_on_both_sides():
    refuses("has no threshold", flows.asymre_thresholds, np.array([0.5, 0.5, 0.0]), REWARD[:3])
    refuses("expected both above 0", flows.topr_thresholds, FOUR, np.ones(4, bool))


# The flows descend the losses that they name


def test_flows_are_minus_the_gradients_of_their_losses():
    log_pi = np.log(np.array([0.1, 0.4, 0.2, 0.05, 0.25]))
    adv, log_mu = REWARD - 0.3, np.log(MU)

    def residual(x):
        return MU @ (0.2 * (x - log_mu) - adv) ** 2 / (2 * 0.2)

    def asymre(x):
        return -MU @ ((REWARD - MU @ REWARD + 0.1) * x)

    for loss, drift in (
        (residual, flows.residual_drift(MU, adv, 0.2)),
        (asymre, flows.linear_drift(flows.asymre_drift(MU, REWARD, -0.1))),
    ):
        assert drift(log_pi) == pytest.approx(-loss_gradient(loss, log_pi), abs=1e-8)


@pytest.mark.parametrize(
    ("delta_v", "value", "support"),
    [(-1, 0.489, 5), (-0.3, 0.723, 4), (-0.1, 0.841, 3), (-0.03, 0.890, 2), (-0.01, 0.880, 2),
     (-0.003, 0.845, 2)],
)  # fmt: skip
def test_asymre_has_the_published_values(delta_v, value, support):
    limit = flows.asymre_limit(MU, REWARD, delta_v)
    assert limit.sum() == pytest.approx(1.0)
    assert limit @ REWARD == pytest.approx(value, abs=5e-4)
    assert (limit > 0).sum() == support
    assert end(flows.linear_drift(flows.asymre_drift(MU, REWARD, delta_v))) == pytest.approx(limit, abs=1e-7)


def test_asymre_leaves_one_action_where_the_gap_of_the_drifts_says_so():
    edge = flows.asymre_transition(MU, REWARD)
    # c(1) - c(2) = .15 (.43 - d) - .1 (.63 - d) = .0015 - .05 d at delta_v = d, which is -d at the edge.
    assert edge == pytest.approx(-0.0015 / 0.95)
    ordered = np.sort(flows.asymre_drift(MU, REWARD, edge))
    assert ordered[-1] - ordered[-2] == pytest.approx(-edge)
    assert [(flows.asymre_limit(MU, REWARD, x * edge) > 0).sum() for x in (0.99, 1.01)] == [1, 2]
    assert flows.asymre_transition(np.array([0.25, 0.25, 0.5]), np.array([1.0, 1.0, 0.0])) == 0.0


def test_from_zero_on_the_limit_is_a_vertex_that_may_depend_on_the_start():
    assert flows.asymre_limit(MU, REWARD, 0.0).tolist() == [0, 0, 0, 1, 0]
    drift = flows.asymre_drift(MU, REWARD, 0.1)
    assert flows.stable_vertices(drift) == [2, 3, 4]
    for first in (2, 3, 4):
        start = np.full(5, 0.01)
        start[first] = 0.96
        assert end(flows.linear_drift(drift), start)[first] == pytest.approx(1.0)
    refuses("depends on the start", flows.asymre_limit, MU, REWARD, 0.1)
    assert flows.stable_vertices(flows.asymre_drift(MU, REWARD, -0.01)) == []


@pytest.mark.parametrize(
    ("a_minus", "limit"), [(0.0, (4 / 7, 3 / 7)), (0.6, (0.596, 0.404)), (1.0, (0.625, 0.375))]
)
def test_topr_has_the_published_limits(a_minus, limit):
    found = flows.topr_limit(FOUR, SUCCESS, a_minus)
    assert found[:2] == pytest.approx(limit, abs=5e-4)
    drift = flows.linear_drift(flows.topr_drift(FOUR, SUCCESS, a_minus))
    assert end(drift, FOUR) == pytest.approx(found, abs=1e-5)


def test_oapl_with_equal_temperatures_is_the_tilt():
    reward = np.array([0.0, 0, 1, 0, 1])
    found = flows.oapl_stationary(MU, reward, 1.0, 1.0)
    assert found == pytest.approx([0.198, 0.165, 0.3587, 0.099, 0.1794], abs=5e-5)
    assert found == pytest.approx(flows.tilt(MU, reward, 1.0))


def test_oapl_at_its_default_is_a_filter_and_kimi_is_softer_than_the_tilt():
    assert flows.oapl_stationary(MU, REWARD, 1, 1e-3) == pytest.approx([0, 0, 0.109, 0.439, 0.452], abs=5e-4)
    kimi = flows.kimi_stationary(MU, REWARD, 0.1)
    assert kimi == pytest.approx([0.007, 0.038, 0.198, 0.382, 0.376], abs=6e-4)
    assert entropy(kimi) > entropy(flows.tilt(MU, REWARD, 0.1))


@pytest.mark.parametrize(("beta1", "beta2"), [(1.0, 0.5), (1.0, 0.01), (0.5, 0.5)])
def test_a_stationary_point_solves_its_equation(beta1, beta2):
    adv = flows.oapl_advantage(MU, REWARD, beta1)
    pi = flows.residual_stationary(MU, adv, beta2)
    assert pi.sum() == pytest.approx(1.0)
    with np.errstate(divide="ignore"):
        assert flows.residual_drift(MU, adv, beta2)(np.log(pi)) == pytest.approx(np.zeros(5), abs=1e-12)


def test_a_stationary_point_is_found_when_the_best_action_is_all_but_absent():
    mu, reward = np.array([1 - 1e-30, 1e-30]), np.array([0.0, 1.0])
    pi = flows.oapl_stationary(mu, reward, 1.0, 1e-3)
    # beta2 ln w - w d = A with the same d for both actions.
    w = pi / mu
    level = 1e-3 * np.log(w) - flows.oapl_advantage(mu, reward, 1.0)
    assert level[0] / w[0] == pytest.approx(level[1] / w[1], rel=1e-6)


def test_without_a_unique_stationary_point_there_is_no_closed_form():
    refuses("beta2 <= beta1", flows.oapl_stationary, MU, REWARD, 0.1, 1.0)
    refuses("more than 0", flows.oapl_stationary, MU, REWARD, 1.0, 0.0)


def test_oapls_entropy_falls_to_2e_5_and_comes_back():
    drift = flows.residual_drift(MU, flows.oapl_advantage(MU, REWARD, 1.0), 1e-3)
    time, lowest = flows.lowest_entropy(drift, MU, 1e6)
    assert lowest == pytest.approx(1.98e-5, rel=5e-3)
    assert 550 < time < 610
    read = flows.flow(drift, MU, np.array([0.0, 256.0, 4000.0, 1e6])).entropy_T
    assert read == pytest.approx([entropy(MU), 0.00137, 0.693, 0.962], rel=2e-3)


def test_writing_a_table_keeps_the_others(tmp_path):
    small = {name: load_committed([name])[name] for name in ("ess-warns", "staleness")}
    write_tables({"staleness": small["staleness"]}, tmp_path)
    (written,) = add_tables({"ess-warns": small["ess-warns"]}, tmp_path)
    assert written.read_bytes() == small["ess-warns"].csv
    assert sorted(json.loads((tmp_path / "manifest.json").read_text())["tables"]) == sorted(small)


def test_who_adds_a_table_waits_for_another_who_does(tmp_path):
    small = {name: load_committed([name])[name] for name in ("ess-warns", "staleness")}
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(add_tables, {"ess-warns": small["ess-warns"]}, tmp_path)
        with pytest.raises(TimeoutError):
            waits.result(0.2)
        write_tables({"staleness": small["staleness"]}, tmp_path)
        os.close(folder)
        waits.result(60)
    assert sorted(json.loads((tmp_path / "manifest.json").read_text())["tables"]) == sorted(small)
