"""Large data are read by one compiled pass and summed without terms: the same numbers, the same errors."""

from dataclasses import fields, replace

import numpy as np
import pytest
from benchmarks.bench_estimators import BITING  # hyperparameters that bite

from testbed.errors import UserError
from testbed.estimators import bandit, estimator
from testbed.estimators.bandit import Logged, logged

ROUNDS, ACTIONS = 9_000, 4  # more than two blocks
NAMES = [
    name
    for name, entry in ((n, estimator[n]) for n in estimator)
    if entry.promises["family"] == "bandit"
    and set(entry.promises["needs"]) <= {"pscore_N", "q_N", "q_pi_N", "action_N", "action_dist_NA"}
    and name != "instrumental_variable"
]


def arrays(lead=()):
    rng = np.random.default_rng(0)
    pi, mu = rng.dirichlet(np.ones(ACTIONS), (2, *lead, ROUNDS))
    pi[..., ::7, 0] = 0.0
    pi /= pi.sum(-1, keepdims=True)
    action = rng.integers(0, ACTIONS, (*lead, ROUNDS))
    return {
        "reward": rng.random((*lead, ROUNDS)),
        "action": action,
        "pscore": np.take_along_axis(0.9 * mu + 0.1 / ACTIONS, action[..., None], -1)[..., 0],
        "action_dist": pi,
        "estimated_rewards_by_reg_model": rng.random((*lead, ROUNDS, ACTIONS)),
    }


def both_ways(monkeypatch, make):
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(bandit, "COMPILED_FROM", least)
        found.append(make())
    return found


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("model", [True, False])
def test_the_compiled_pass_reads_what_numpy_reads(monkeypatch, lead, model):
    given = arrays(lead)
    if not model:
        del given["estimated_rewards_by_reg_model"]
    quick, plain = both_ways(monkeypatch, lambda: logged(**given))
    assert "log_w_N" in plain.given
    assert "log_w_N" not in quick.given
    for field in fields(Logged):
        a, b = getattr(quick, field.name), getattr(plain, field.name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-15, atol=0)


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("name", NAMES)
def test_values_without_terms_are_the_means_of_the_terms(monkeypatch, name, lead):
    given = arrays(lead)

    def make():
        found = estimator[name].bind(**BITING.get(name, {}))(logged(**given))
        return [found.value, found.stderr, found.ess, found.terms_N]

    for a, b in zip(*both_ways(monkeypatch, make), strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def spoiled(name, index, value):
    given = arrays()
    given[name] = given[name].copy()
    given[name][index] = value
    return given


@pytest.mark.parametrize("place", [0, 4096, ROUNDS - 1])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", np.nan),
        ("action", ACTIONS),
        ("action", -1),
        ("pscore", 0.0),
        ("pscore", 1.5),
        ("pscore", np.nan),
        ("action_dist", np.nan),
        ("action_dist", [1.1, -0.1, 0.0, 0.0]),
        ("action_dist", [0.3, 0.3, 0.3, 0.2]),
    ],
)
def test_one_bad_round_is_refused_in_the_same_words(monkeypatch, name, value, place):
    given = spoiled(name, place, value)

    def words():
        with pytest.raises(UserError) as refused:
            logged(**given)
        return str(refused.value)

    assert len(set(both_ways(monkeypatch, words))) == 1


def test_rounds_can_be_taken_before_the_log_weights_are_known(monkeypatch):
    index = np.arange(ROUNDS - 1, 4, -2)
    quick, plain = both_ways(monkeypatch, lambda: logged(**arrays()).take(index))
    np.testing.assert_array_equal(quick.log_w_N, plain.log_w_N)
    assert replace(quick, reward_N=2 * quick.reward_N).log_w_N.shape == index.shape


def test_weights_that_sum_to_zero_or_overflow_are_refused_in_large_data_too(monkeypatch):
    monkeypatch.setattr(bandit, "COMPILED_FROM", 1)
    given = arrays()
    given["action"] = np.zeros(ROUNDS, dtype=np.int64)
    given["action_dist"] = np.tile([0.0, 1.0, 0.0, 0.0], (ROUNDS, 1))
    with pytest.raises(UserError, match="sum to 0"):
        estimator["snips"].bind()(logged(**given)).value  # noqa: B018
    far = logged(reward=np.zeros(3), log_weight=[0.0, 800.0, 0.0])
    with pytest.raises(UserError, match="709"):
        estimator["ips"].bind()(far).value  # noqa: B018
