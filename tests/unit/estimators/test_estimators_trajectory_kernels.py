"""Many logged steps are read and summed by compiled passes: the same numbers, the same errors.

Large data are read by one compiled pass and summed without terms: the same numbers, the same errors.
"""

import copy
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from benchmarks.bench_estimators import BITING  # hyperparameters that bite
from support.refusals import refuses

from testbed.errors import UserError
from testbed.estimators import estimator, logged_rounds
from testbed.estimators.logged_rounds import Logged, logged
from testbed.estimators.trajectory_sums import StepSums
from testbed.estimators.trajectory_weights import LoggedEpisodes

EPISODES, STEPS, STATES, ACTIONS = 4_501, 6, 3, 3  # more than two blocks of steps, more than one of episodes
PLAIN, MODELED = ("trajectory_is", "trajectory_wis", "pdis", "cwpdis"), ("trajectory_dr", "wdr")
NORMALIZED = ("trajectory_wis", "cwpdis", "wdr")
LEADS = [((), EPISODES), ((2,), EPISODES), ((40, 2), 5)]


def tables():
    rng = np.random.default_rng(0)
    pi_SA, mu_SA = rng.dirichlet(np.full(ACTIONS, 3.0), size=(2, STATES))
    pi_SA[0] = [0.4, 0.6, 0.0]  # pi never takes what mu may
    return pi_SA, mu_SA, rng.normal(size=(STEPS, STATES, ACTIONS))


def arrays(lead=(), episodes=EPISODES, ending=True):
    """What from_policies takes; what lies outside the mask is nonsense that must never be read."""
    rng, (pi_SA, mu_SA, q_TSA) = np.random.default_rng(1), tables()
    shape = (*lead, episodes, STEPS)
    state_NT, action_NT = rng.integers(STATES, size=shape), rng.integers(ACTIONS, size=shape)
    state_NT[..., 0, :] = 1  # one episode of every data set is certain to keep some weight
    given = {
        "action_NT": action_NT, "reward_NT": rng.normal(size=shape), "pscore_NT": mu_SA[state_NT, action_NT],
        "evaluation_policy_action_dist_NTA": pi_SA[state_NT],
        "state_action_value_prediction_NTA": q_TSA[np.arange(STEPS), state_NT], "gamma": 0.9,
    }  # fmt: skip
    if ending:
        length_N1 = rng.integers(1, STEPS + 1, size=(*lead, episodes, 1))
        length_N1[..., 0, :] = STEPS
        given["mask_NT"] = np.arange(STEPS) < length_N1
        for name, nonsense in (
            ("action_NT", -(10**6)), ("reward_NT", np.nan), ("pscore_NT", 0.0),
            ("evaluation_policy_action_dist_NTA", np.nan), ("state_action_value_prediction_NTA", np.inf),
        ):  # fmt: skip
            given[name][~given["mask_NT"]] = nonsense
    return given


def tabular(lead=(), episodes=EPISODES):
    rng, (pi_SA, mu_SA, q_TSA) = np.random.default_rng(2), tables()
    shape = (*lead, episodes, STEPS)
    state_NT = rng.integers(STATES, size=shape)
    state_NT[..., 0, :] = 1
    return LoggedEpisodes.tabular(
        state_NT=state_NT, action_NT=rng.integers(ACTIONS, size=shape), reward_NT=rng.normal(size=shape),
        pi_SA=pi_SA, mu_SA=mu_SA, gamma=0.9,
    ).with_model(q_TSA)  # fmt: skip


def both_ways(monkeypatch, make):
    """The result with compiled passes and without."""
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(logged_rounds, "COMPILED_FROM", least)
        found.append(make())
    return found


def numbers(name, episodes):
    found = estimator[name].function(episodes)
    assert (found.terms_N is None) == (name in NORMALIZED)
    return [found.value, found.stderr, found.ess, *([] if found.terms_N is None else [found.terms_N])]


@pytest.mark.parametrize("model", [True, False])
@pytest.mark.parametrize("ending", [True, False])
@pytest.mark.parametrize(("lead", "episodes"), LEADS)
def test_the_compiled_pass_reads_what_numpy_reads(monkeypatch, lead, episodes, ending, model):
    given = arrays(lead, episodes, ending)
    if not model:
        del given["state_action_value_prediction_NTA"]
    quick, plain = both_ways(monkeypatch, lambda: LoggedEpisodes.from_policies(**given))
    assert "log_rho_NT" not in vars(quick)  # it was the compiled pass, and it took no logarithm
    assert "log_rho_NT" in vars(plain)
    np.testing.assert_array_equal(quick.action_NT, plain.action_NT)
    np.testing.assert_allclose(quick.rho_NT, plain.rho_NT, rtol=1e-15)
    for name in ("log_rho_NT", "q_NT", "v_NT"):
        a, b = getattr(quick, name), getattr(plain, name)
        assert (a is None) == (b is None) == (not model and name != "log_rho_NT")
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("place", [(0, 0), (700, 3), (EPISODES - 1, STEPS - 1)])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("reward_NT", np.nan, "reward_NT is nan at index"),
     ("action_NT", ACTIONS, "action_NT runs from 0 to 3, but evaluation_policy_action_dist_NTA has 3"),
     ("action_NT", -1, "action_NT runs from -1 to 2, but evaluation_policy_action_dist_NTA has 3"),
     ("pscore_NT", 0.0, "pscore_NT has values outside"), ("pscore_NT", 1.5, "pscore_NT has values outside"),
     ("pscore_NT", np.nan, "pscore_NT has values outside"),
     ("evaluation_policy_action_dist_NTA", [0.5, 0.3, 0.3], "do not sum to 1"),
     ("evaluation_policy_action_dist_NTA", [1.1, -0.1, 0.0], "negative entries"),
     ("evaluation_policy_action_dist_NTA", np.nan, "do not sum to 1"),
     ("state_action_value_prediction_NTA", np.inf, "q_NT is inf")],
)  # fmt: skip
def test_one_bad_step_is_refused_in_the_same_words(monkeypatch, name, value, message, place):
    given = arrays(ending=False)
    given[name][place] = value

    words = partial(refuses, message, LoggedEpisodes.from_policies, **given)
    assert len(set(both_ways(monkeypatch, words))) == 1


def test_episodes_without_ratios_or_with_a_mask_of_another_shape_are_refused():
    refuses("log_rho_NT is missing", LoggedEpisodes, reward_NT=np.zeros((2, 2)))
    given = arrays()
    with pytest.raises(UserError, match=r"mask_NT has shape \(6, 4501\)"):
        LoggedEpisodes.from_policies(**{**given, "mask_NT": given["mask_NT"].T})


@pytest.mark.parametrize("name", [*PLAIN, *MODELED])
@pytest.mark.parametrize("ending", [True, False])
@pytest.mark.parametrize(("lead", "episodes"), LEADS)
def test_estimates_from_sums_are_those_from_arrays_of_weights(monkeypatch, lead, episodes, ending, name):
    given = arrays(lead, episodes, ending)
    quick, plain = both_ways(monkeypatch, lambda: numbers(name, LoggedEpisodes.from_policies(**given)))
    assert np.shape(quick[0]) == lead
    for a, b in zip(quick, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", [*PLAIN, *MODELED])
def test_estimates_of_known_tables_are_the_same_from_sums(monkeypatch, name):
    for a, b in zip(*both_ways(monkeypatch, lambda: numbers(name, tabular())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", [*PLAIN, *MODELED])
def test_episodes_that_pi_cannot_produce_have_weight_zero_whatever_follows(monkeypatch, name):
    episodes = tabular(episodes=300)
    log_rho_NT = episodes.log_rho_NT.copy()
    log_rho_NT[::2, 2], log_rho_NT[::2, 4] = -np.inf, 800.0  # 0 times infinity
    never = replace(episodes, log_rho_NT=log_rho_NT)
    for a, b in zip(*both_ways(monkeypatch, lambda: numbers(name, never)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", NORMALIZED)
@pytest.mark.parametrize("height", [400.0, 300.0, -300.0, -330.0, -400.0, -800.0])
def test_weights_that_leave_double_precision_and_come_back_are_not_lost(monkeypatch, name, height):
    episodes = tabular(episodes=300)
    shift_NT = np.zeros_like(episodes.log_rho_NT)
    shift_NT[::3, 1:3], shift_NT[::3, 3:5] = height, -height
    shifted = replace(episodes, log_rho_NT=episodes.log_rho_NT + shift_NT)
    for a, b in zip(*both_ways(monkeypatch, lambda: numbers(name, copy.copy(shifted))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_weights_too_large_or_all_zero_are_refused_for_large_data_too(monkeypatch):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    episodes = tabular(episodes=300)
    far = replace(episodes, log_rho_NT=episodes.log_rho_NT + np.array([800.0, 0, 0, 0, 0, 0]))
    never = replace(episodes, log_rho_NT=np.full_like(episodes.log_rho_NT, -np.inf))
    for name in ("trajectory_is", "pdis", "trajectory_dr"):
        refuses("beyond double precision", estimator[name].function, far)
        direct = episodes.v_NT[:, 0].mean() if name == "trajectory_dr" else 0.0
        assert estimator[name].function(never).value == pytest.approx(direct)
    for name in NORMALIZED:
        refuses("All 300 weights of a step are 0", estimator[name].function, never)


def test_data_sets_are_summed_apart(monkeypatch):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    given = arrays((7,), 11, ending=False)
    for name in (*PLAIN, *MODELED):
        together = numbers(name, LoggedEpisodes.from_policies(**given))
        for r in range(7):
            alone = {key: value if key == "gamma" else value[r] for key, value in given.items()}
            for a, b in zip(together, numbers(name, LoggedEpisodes.from_policies(**alone)), strict=True):
                np.testing.assert_allclose(a[r], b, rtol=1e-12)


# What is kept, and what is not


def test_a_new_model_or_new_ratios_do_not_meet_old_sums(monkeypatch):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    rng, episodes = np.random.default_rng(3), tabular()
    first = estimator["trajectory_dr"].function(episodes).value
    q_TSA = rng.normal(size=(STEPS, STATES, ACTIONS))
    fresh = tabular().with_model(q_TSA)
    assert estimator["trajectory_dr"].function(episodes.with_model(q_TSA)).value == pytest.approx(
        float(estimator["trajectory_dr"].function(fresh).value), rel=1e-13
    )
    assert abs(estimator["trajectory_dr"].function(fresh).value - first) > 1e-3
    read = LoggedEpisodes.from_policies(**arrays())
    assert estimator["pdis"].function(read).value != 0.0
    on_policy = replace(read, log_rho_NT=np.zeros_like(read.reward_NT))
    np.testing.assert_allclose(estimator["pdis"].function(on_policy).value, read.return_N.mean(), rtol=1e-12)


@pytest.mark.parametrize("name", ["cwpdis", "wdr"])
def test_the_second_pass_waits_until_a_standard_error_is_asked_for(monkeypatch, name):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    passes = []
    pull_N = StepSums.pull_N
    monkeypatch.setattr(StepSums, "pull_N", lambda self: passes.append(1) or pull_N(self))
    found = estimator[name].function(tabular())
    assert found.value.shape == found.ess.shape == ()
    assert passes == []
    assert found.stderr == found.stderr > 0
    assert passes == [1]


@pytest.mark.parametrize("name", NORMALIZED)
def test_one_episode_has_no_standard_error_in_large_data_either(monkeypatch, name):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    found = estimator[name].function(tabular(lead=(3,), episodes=1))
    assert np.isnan(found.stderr).all()
    np.testing.assert_allclose(found.ess, 1.0)


ROUNDS, BANDIT_ACTIONS = 9_000, 4  # more than two blocks
NAMES = [
    name
    for name, entry in ((n, estimator[n]) for n in estimator)
    if entry.promises["family"] == "bandit"
    and set(entry.promises["needs"]) <= {"pscore_N", "q_N", "q_pi_N", "action_N", "action_dist_NA"}
    and name != "instrumental_variable"
]


def rounds(lead=()):
    rng = np.random.default_rng(0)
    pi, mu = rng.dirichlet(np.ones(BANDIT_ACTIONS), (2, *lead, ROUNDS))
    pi[..., ::7, 0] = 0.0
    pi /= pi.sum(-1, keepdims=True)
    action = rng.integers(0, BANDIT_ACTIONS, (*lead, ROUNDS))
    return {
        "reward": rng.random((*lead, ROUNDS)), "action": action,
        "pscore": np.take_along_axis(0.9 * mu + 0.1 / BANDIT_ACTIONS, action[..., None], -1)[..., 0],
        "action_dist": pi, "estimated_rewards_by_reg_model": rng.random((*lead, ROUNDS, BANDIT_ACTIONS)),
    }  # fmt: skip


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("model", [True, False])
def test_the_compiled_pass_over_rounds_reads_what_numpy_reads(monkeypatch, lead, model):
    given = rounds(lead)
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
    given = rounds(lead)

    def make():
        found = estimator[name].bind(**BITING.get(name, {}))(logged(**given))
        return [found.value, found.stderr, found.ess, found.terms_N]

    for a, b in zip(*both_ways(monkeypatch, make), strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def spoiled(name, index, value):
    given = rounds()
    given[name] = given[name].copy()
    given[name][index] = value
    return given


@pytest.mark.parametrize("place", [0, 4096, ROUNDS - 1])
@pytest.mark.parametrize(
    ("name", "value"),
    [("reward", np.nan), ("action", BANDIT_ACTIONS), ("action", -1), ("pscore", 0.0), ("pscore", 1.5),
     ("pscore", np.nan), ("action_dist", np.nan), ("action_dist", [1.1, -0.1, 0.0, 0.0]),
     ("action_dist", [0.3, 0.3, 0.3, 0.2])],
)  # fmt: skip
def test_one_bad_round_is_refused_in_the_same_words(monkeypatch, name, value, place):
    given = spoiled(name, place, value)

    assert len(set(both_ways(monkeypatch, lambda: refuses("", logged, **given)))) == 1


def test_rounds_can_be_taken_before_the_log_weights_are_known(monkeypatch):
    index = np.arange(ROUNDS - 1, 4, -2)
    quick, plain = both_ways(monkeypatch, lambda: logged(**rounds()).take(index))
    np.testing.assert_array_equal(quick.log_w_N, plain.log_w_N)
    assert replace(quick, reward_N=2 * quick.reward_N).log_w_N.shape == index.shape


def test_weights_that_sum_to_zero_or_overflow_are_refused_in_large_data_too(monkeypatch):
    monkeypatch.setattr(logged_rounds, "COMPILED_FROM", 1)
    given = rounds()
    given["action"] = np.zeros(ROUNDS, dtype=np.int64)
    given["action_dist"] = np.tile([0.0, 1.0, 0.0, 0.0], (ROUNDS, 1))
    with pytest.raises(UserError, match="sum to 0"):
        estimator["snips"].bind()(logged(**given)).value  # noqa: B018
    far = logged(reward=np.zeros(3), log_weight=[0.0, 800.0, 0.0])
    with pytest.raises(UserError, match="709"):
        estimator["ips"].bind()(far).value  # noqa: B018
