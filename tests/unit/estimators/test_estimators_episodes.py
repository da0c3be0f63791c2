"""The contract of trajectory estimators; episodes refuse bad input and open to scope-rl's names."""

import itertools

import numpy as np
import pytest
from references import reference_trajectories as slow
from test_estimators_trajectory import floats, logged, replaced, sample

from testbed.errors import UserError
from testbed.estimators import estimator
from testbed.estimators.trajectory import pdis, trajectory_is, trajectory_wis
from testbed.estimators.trajectory_weights import LoggedEpisodes

TRAJECTORY = [name for name in estimator if estimator[name].promises.get("family") == "trajectory"]

# The contract of the family


def everything(lead=()):
    episodes = sample(lead=lead, ending=False)
    return replaced(
        episodes,
        state_marginal_importance_weight_NT=np.exp(episodes.q_NT),
        next_state_NT=episodes.state_NT[..., ::-1],
    )


@pytest.mark.parametrize("name", TRAJECTORY)
def test_every_trajectory_estimator_treats_data_sets_along_leading_axes_alone(name):
    both, entry = everything(lead=(2,)), estimator[name]
    found = entry.function(both)
    assert found.value.shape == found.stderr.shape == found.ess.shape == (2,)
    for r in range(2):
        fields = {
            k: v[r]
            for k, v in vars(both).items()
            if k.endswith("_NT") and k in both.__dataclass_fields__ and v is not None
        }
        one = entry.function(replaced(both, **fields))
        np.testing.assert_allclose(found.value[r], one.value, rtol=1e-9)
        np.testing.assert_allclose(found.stderr[r], one.stderr, rtol=1e-7)


@pytest.mark.parametrize("name", TRAJECTORY)
def test_every_trajectory_estimator_says_what_it_needs_and_what_it_computes(name):
    entry, episodes = estimator[name], everything()
    assert entry.formula
    assert entry.source
    for needed in entry.promises["needs"]:
        with pytest.raises(UserError, match=needed):
            entry.function(replaced(episodes, **{needed: None}))
    found = entry.function(episodes)
    if entry.promises["linear"]:
        assert found.terms_N.mean() == pytest.approx(float(found.value))


@pytest.mark.parametrize("name", [n for n in TRAJECTORY if estimator[n].promises["unbiased"]])
def test_every_trajectory_estimator_that_promises_no_bias_has_none_with_two_episodes(name):
    world, pi, mu = slow.quarters(2, horizon=2)
    table = list(slow.paths(world, mu))
    p = np.array([float(x * y) for (x, _), (y, _) in itertools.product(table, repeat=2)])
    data = [path for (_, a), (_, b) in itertools.product(table, repeat=2) for path in (a, b)]
    flat = logged(data, pi, mu, world.gamma, 2)
    target, behavior = floats(slow.marginals(world, pi)), floats(slow.marginals(world, mu))
    flat = replaced(
        flat, state_marginal_importance_weight_NT=(target / behavior)[np.arange(2), flat.state_NT]
    )
    flat = flat.with_model(np.random.default_rng(0).normal(size=(2, 2, 2)))
    fields = {k: getattr(flat, k).reshape(-1, 2, 2) for k in flat.__dataclass_fields__
              if k.endswith("_NT") and getattr(flat, k) is not None}  # fmt: skip
    pairs = LoggedEpisodes(**fields, gamma=0.8, pi_SA=flat.pi_SA, mu_SA=flat.mu_SA)
    assert p @ estimator[name].function(pairs).value == pytest.approx(float(slow.value(world, pi)), abs=1e-12)


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward_NT": np.zeros(3)}, r"expected \[..., N, T\]"),
        ({"log_rho_NT": np.zeros((2, 3))}, "log_rho_NT has shape"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"log_rho_NT": np.full((2, 2), np.inf)}, "mu must be able to take"),
        ({"log_rho_NT": np.full((2, 2), np.nan)}, "log_rho_NT is nan"),
        ({"reward_NT": np.full((2, 2), np.inf)}, "reward_NT is inf"),
        ({"mask_NT": np.array([[True, True], [False, True]])}, "without a first step or with a gap"),
        ({"pi_SA": np.array([[0.5, 0.6]])}, "not a table of action probabilities"),
        ({"state_NT": np.full((2, 2), 3), "pi_SA": np.array([[0.5, 0.5]])}, "expected 0 to 0"),
    ],
)
def test_bad_episodes_are_refused_with_one_sentence(changes, message):
    with pytest.raises(UserError, match=message):
        LoggedEpisodes(**{"reward_NT": np.zeros((2, 2)), "log_rho_NT": np.zeros((2, 2)), **changes})


def test_weights_that_sum_to_zero_are_refused_by_normalized_estimators():
    episodes = LoggedEpisodes(reward_NT=np.ones((2, 2)), log_rho_NT=np.array([[0, -np.inf], [-np.inf, 0]]))
    assert trajectory_is(episodes).value == 0.0
    with pytest.raises(UserError, match="All 2 weights of a step are 0"):
        trajectory_wis(episodes)


def test_actions_that_mu_never_takes_are_named():
    with pytest.raises(UserError, match="Action 1 was logged in state 0, but mu never takes it"):
        LoggedEpisodes.tabular(
            state_NT=[[0]],
            action_NT=[[1]],
            reward_NT=np.zeros((1, 1)),
            pi_SA=[[0.5, 0.5]],
            mu_SA=[[1.0, 0.0]],
        )


# The doors


def test_scope_rl_names_open_the_same_episodes():
    first = sample()
    q_hat = np.random.default_rng(1).normal(size=(*first.reward_NT.shape, 3))
    second = LoggedEpisodes.from_policies(
        action_NT=first.action_NT,
        reward_NT=first.reward_NT,
        pscore_NT=np.where(first.mask_NT, first.mu_SA[first.state_NT, first.action_NT], -7.0),
        evaluation_policy_action_dist_NTA=first.pi_SA[first.state_NT],
        state_action_value_prediction_NTA=q_hat,
        mask_NT=first.mask_NT,
        gamma=0.8,
    )
    np.testing.assert_allclose(second.log_rho_NT, first.log_rho_NT)
    np.testing.assert_allclose(second.v_NT, first.mask_NT * (first.pi_SA[first.state_NT] * q_hat).sum(-1))
    np.testing.assert_allclose(pdis(second).value, pdis(first).value)
    whole = {"action_NT": [[0, 1]], "reward_NT": np.ones((1, 2)), "pscore_NT": [[0.25, 0.5]], "mask_NT": None}
    even = LoggedEpisodes.from_policies(**whole, evaluation_policy_action_dist_NTA=np.full((1, 2, 2), 0.5))
    assert pdis(even).value == pytest.approx(2.0 + 2.0)
    with pytest.raises(UserError, match="do not sum to 1"):
        LoggedEpisodes.from_policies(**whole, evaluation_policy_action_dist_NTA=np.full((1, 2, 2), 0.6))
    with pytest.raises(UserError, match=r"outside \(0, 1\]"):
        LoggedEpisodes.from_policies(
            action_NT=[[0]], reward_NT=np.zeros((1, 1)), pscore_NT=[[0.0]],
            evaluation_policy_action_dist_NTA=[[[0.5, 0.5]]],
        )  # fmt: skip
