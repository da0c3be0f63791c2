"""Trajectory estimators: each equals its formula written as a loop, and has the exact moments of theory.

The contract of trajectory estimators; episodes refuse bad input and open to scope-rl's names.
"""

import itertools

import numpy as np
import pytest
from references import reference_trajectories as slow
from support.refusals import refuses

from testbed.errors import UserError
from testbed.estimators import estimator
from testbed.estimators.abstraction import recent_weights, star
from testbed.estimators.doubly_robust_trajectory import trajectory_dr, wdr
from testbed.estimators.magic import magic
from testbed.estimators.marginal import marginalized_is, marginalized_is_counts
from testbed.estimators.trajectory import cwpdis, pdis, trajectory_is, trajectory_wis
from testbed.estimators.trajectory_weights import LoggedEpisodes

FOUR = (trajectory_is, trajectory_wis, pdis, cwpdis)


def floats(table):
    return np.array(table, dtype=object).astype(float)


def logged(data, pi, mu, gamma, steps, **fields) -> LoggedEpisodes:
    """Lists of paths as arrays, padded with nonsense that must never be read."""
    shape = (len(data), steps)
    state, action, following = (np.full(shape, 10**6) for _ in range(3))
    reward, mask = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for i, path in enumerate(data):
        for t, (s, a, r, k) in enumerate(path):
            state[i, t], action[i, t], reward[i, t], following[i, t], mask[i, t] = s, a, float(r), k, True
    return LoggedEpisodes.tabular(
        state_NT=state, action_NT=action, reward_NT=reward, next_state_NT=following, mask_NT=mask,
        pi_SA=floats(pi), mu_SA=floats(mu), gamma=float(gamma), **fields,
    )  # fmt: skip


def random_world(seed, states=3, actions=2, horizon=3, **changes):
    """E7: 3^3 2^3 2^3 = 1728 trajectories with noise; everything random."""
    rng = np.random.default_rng(seed)
    given = {
        "transition": rng.dirichlet(np.ones(states), size=(states, actions)).tolist(),
        "reward": rng.normal(size=(states, actions)).tolist(),
        "start": rng.dirichlet(np.ones(states)).tolist(), "horizon": horizon, "gamma": 0.9, "noise": 0.4,
    }  # fmt: skip
    pi, mu = rng.dirichlet(np.full(actions, 2.0), size=(2, states)).tolist()
    q_hat = rng.normal(size=(horizon, states, actions))
    return slow.World(**{**given, **changes}), pi, mu, q_hat


def singles(world, pi, mu, q_hat=None):
    """Every trajectory as a data set of its own, and the probabilities."""
    chance, data = zip(*slow.paths(world, mu), strict=True)
    episodes = logged(data, pi, mu, world.gamma, world.horizon)
    if q_hat is not None:
        episodes = episodes.with_model(np.asarray(q_hat))
    fields = ("reward_NT", "log_rho_NT", "mask_NT", "q_NT", "v_NT", "state_NT", "action_NT")
    alone = {name: getattr(episodes, name)[:, None] for name in fields if getattr(episodes, name) is not None}
    return np.array(chance, dtype=float), LoggedEpisodes(
        **alone, gamma=episodes.gamma, pi_SA=episodes.pi_SA, mu_SA=episodes.mu_SA
    )


def sample(seed=0, n=7, lead=(2, 3), ending=True, same=False):
    """Random data of a random world, cut at random lengths, with actions that pi never takes."""
    rng = np.random.default_rng(seed)
    pi = np.array([[0.0, 0.3, 0.7], [0.5, 0.25, 0.25]])
    mu = pi if same else np.array([[0.3, 0.2, 0.5], [0.1, 0.6, 0.3]])
    state = rng.integers(2, size=(*lead, n, 4))
    action = 1 + rng.integers(2, size=state.shape) if same else rng.integers(3, size=state.shape)
    length = rng.integers(1, 5, size=(*lead, n, 1)) if ending else 4
    mask = np.broadcast_to(np.arange(4) < length, state.shape)
    episodes = LoggedEpisodes.tabular(
        state_NT=state, action_NT=action, reward_NT=rng.normal(size=state.shape), mask_NT=mask,
        pi_SA=pi, mu_SA=mu, gamma=0.8,
    )  # fmt: skip
    return episodes.with_model(rng.normal(size=(*lead, 4, 2, 3)))


def as_paths(episodes, at):
    """The data set at an index of the leading axes as lists."""
    return [tuple((int(s), int(a), float(r), -1)
                  for s, a, r, live in zip(episodes.state_NT[at][i], episodes.action_NT[at][i],
                                           episodes.reward_NT[at][i], episodes.live_NT[at][i],
                                           strict=True) if live)
            for i in range(episodes.reward_NT.shape[-2])]  # fmt: skip


Q_HAT = np.random.default_rng(5).normal(size=(4, 2, 3))


@pytest.mark.parametrize(
    ("fast", "loop", "model"),
    [(trajectory_is, slow.importance, ()), (trajectory_wis, slow.weighted, ()),
     (pdis, slow.per_decision, ()), (cwpdis, slow.per_decision_weighted, ()),
     (trajectory_dr, slow.doubly_robust, (Q_HAT, False)), (wdr, slow.doubly_robust, (Q_HAT, True))],
)  # fmt: skip
def test_an_estimator_is_its_formula_written_as_a_loop_in_every_data_set(fast, loop, model):
    episodes = sample()
    found = fast(episodes.with_model(Q_HAT) if model else episodes).value
    for at in np.ndindex(2, 3):
        expected = loop(as_paths(episodes, at), episodes.pi_SA, episodes.mu_SA, 0.8, 4, *model)
        assert found[at] == pytest.approx(expected, rel=1e-12)


def test_a_model_per_data_set_is_read_by_its_own_data_set():
    episodes = sample()
    q_hat = np.random.default_rng(6).normal(size=(2, 3, 4, 2, 3))
    found = episodes.with_model(q_hat)
    for r, k, i, t in itertools.product(range(2), range(3), range(7), range(4)):
        s, a = found.state_NT[r, k, i, t], found.action_NT[r, k, i, t]
        if found.live_NT[r, k, i, t]:
            assert found.q_NT[r, k, i, t] == q_hat[r, k, t, s, a]
            assert found.v_NT[r, k, i, t] == pytest.approx(episodes.pi_SA[s] @ q_hat[r, k, t, s])


# On-policy, every estimator is the mean return, whatever the sample


@pytest.mark.parametrize("fast", [*FOUR, marginalized_is_counts])
def test_on_policy_an_importance_estimator_is_the_mean_return_in_every_sample(fast):
    episodes = sample(same=True)
    np.testing.assert_allclose(fast(episodes).value, episodes.return_N.mean(-1), rtol=1e-13)


@pytest.mark.parametrize("label_S", [[0, 1], [0, 0], [1, 0], None])
@pytest.mark.parametrize("c", [None, 1, 3])
def test_on_policy_an_abstract_chain_has_the_mean_return_in_every_sample(label_S, c):
    episodes = sample(same=True)
    found = star(episodes, abstraction_S=label_S, c=c).value
    np.testing.assert_allclose(found, episodes.return_N.mean(-1), rtol=1e-12)


# Exact moments over all trajectories


@pytest.mark.parametrize("terminal", [frozenset(), frozenset({2})])
def test_the_variance_of_doubly_robust_estimation_is_the_recursion(terminal):
    world, pi, mu, q_hat = random_world(3, start=[0.6, 0.4, 0.0], terminal=terminal)
    p, alone = singles(world, pi, mu, q_hat)
    x = trajectory_dr(alone).value
    assert p @ x == pytest.approx(slow.value(world, pi), abs=1e-13)
    assert p @ x**2 - (p @ x) ** 2 == pytest.approx(slow.dr_variance(world, pi, mu, q_hat), rel=1e-12)
    zero = trajectory_dr(alone.with_model(np.zeros_like(q_hat))).value
    np.testing.assert_allclose(zero, pdis(alone).value, rtol=1e-12)


def test_normalized_estimators_ignore_the_scale_of_the_weights_even_beyond_double_precision():
    episodes = sample()
    heavy = replaced(episodes, log_rho_NT=episodes.log_rho_NT + np.array([800.0, 0, 0, 0]))
    for fast in (trajectory_wis, cwpdis):
        np.testing.assert_allclose(fast(heavy).value, fast(episodes).value, rtol=1e-9)
    refuses("beyond double precision", trajectory_is, heavy)


def test_the_product_of_the_last_c_ratios_forgets_the_earlier_ones():
    episodes = sample()
    rho = np.exp(episodes.log_rho_NT)
    np.testing.assert_allclose(recent_weights(episodes, 0), 1.0)
    np.testing.assert_allclose(recent_weights(episodes, 1), rho)
    np.testing.assert_allclose(recent_weights(episodes, 2)[..., 3], rho[..., 2] * rho[..., 3])
    np.testing.assert_allclose(recent_weights(episodes), np.cumprod(rho, -1))


@pytest.mark.parametrize("fast", [trajectory_wis, cwpdis, wdr])
def test_the_standard_error_of_a_ratio_is_the_derivative_with_respect_to_one_episodes_share(fast):
    # Infinitesimal jackknife by numbers: repeat episode i in 4000 copies of the data and see what moves.
    episodes = sample(lead=(), n=5)
    copies = 4000
    base = fast(episodes)
    moved = []
    for i in range(5):
        rows = np.concatenate([np.tile(np.arange(5), copies), [i] * 5])
        more = replaced(episodes, **{
            name: getattr(episodes, name)[rows] for name in
            ("reward_NT", "log_rho_NT", "mask_NT", "q_NT", "v_NT", "state_NT", "action_NT")
        })  # fmt: skip
        moved.append((fast(more).value - base.value) * copies)
    expected = np.sqrt(np.sum(np.square(moved)) / 5 / 4)
    assert float(base.stderr) == pytest.approx(expected, rel=2e-3)


def test_effective_size_is_kish_of_the_sequence_weights():
    episodes = sample(lead=())
    w = episodes.weight_NT[:, -1]
    for fast in (*FOUR, trajectory_dr, wdr, magic):
        assert float(fast(episodes).ess) == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-12)


@pytest.mark.parametrize("log_ratio", [-2.0, 2.0])
def test_effective_size_and_error_of_long_episodes_do_not_depend_on_the_size_of_the_weights(log_ratio):
    """200 tokens with ratios e^2 weigh e^400, and the square of that is no double."""
    log_rho_NT = np.full((3, 200), log_ratio)
    log_rho_NT[:, -1] = [0.0, 0.5, 1.0]
    reward_NT = np.zeros((3, 200))
    reward_NT[:, -1] = [1.0, 0.0, 1.0]
    w = np.exp([0.0, 0.5, 1.0])
    spread = np.std(w * [1, 0, 1], ddof=1) / np.sqrt(3)
    for rows in (1, 200):  # 200 copies are read by the compiled pass
        copies = [np.tile(each, (rows, 1)) for each in (reward_NT, log_rho_NT)]
        for fast in (trajectory_is, pdis):
            found = fast(LoggedEpisodes(reward_NT=copies[0], log_rho_NT=copies[1]))
            assert float(found.ess) == pytest.approx(rows * w.sum() ** 2 / (w**2).sum(), rel=1e-9)
            if rows == 1:
                scale = float(np.exp(199 * log_ratio))
                assert float(found.stderr) == pytest.approx(spread * scale, rel=1e-9)


def test_effective_size_of_marginalized_weights_counts_episodes_that_end_early():
    episodes = LoggedEpisodes(
        reward_NT=np.ones((3, 4)),
        log_rho_NT=np.log(np.full((3, 4), [1.0, 2.0, 3.0, 9.0])),
        state_marginal_importance_weight_NT=np.ones((3, 4)),
        mask_NT=np.arange(4) < np.array([[1], [2], [3]]),
    )
    assert float(marginalized_is(episodes).ess) == pytest.approx(36 / 14)


def replaced(episodes, **changes):
    import dataclasses

    return dataclasses.replace(episodes, **changes)


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
    assert name != "trajectory_dm" or np.isnan(entry.function(episodes).ess)  # it weighs nothing
    assert entry.formula
    assert entry.source
    for needed in entry.promises["needs"]:
        refuses(needed, entry.function, replaced(episodes, **{needed: None}))
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


@pytest.mark.parametrize(
    "changes",
    [{"reward_NT": np.zeros(3)}, {"log_rho_NT": np.zeros((2, 3))}, {"gamma": 1.5},
     {"log_rho_NT": np.full((2, 2), np.inf)}, {"log_rho_NT": np.full((2, 2), np.nan)},
     {"reward_NT": np.full((2, 2), np.inf)}, {"mask_NT": np.array([[True, True], [False, True]])},
     {"pi_SA": np.array([[0.5, 0.6]])}, {"state_NT": np.full((2, 2), 3), "pi_SA": np.array([[0.5, 0.5]])}],
)  # fmt: skip
def test_bad_episodes_are_refused_with_one_sentence(changes):
    refuses(".", LoggedEpisodes, **{"reward_NT": np.zeros((2, 2)), "log_rho_NT": np.zeros((2, 2)), **changes})


def test_weights_that_sum_to_zero_are_refused_by_normalized_estimators():
    episodes = LoggedEpisodes(reward_NT=np.ones((2, 2)), log_rho_NT=np.array([[0, -np.inf], [-np.inf, 0]]))
    assert trajectory_is(episodes).value == 0.0
    refuses("All 2 weights of a step are 0", trajectory_wis, episodes)


def test_actions_that_mu_never_takes_are_named():
    with pytest.raises(UserError, match="Action 1 was logged in state 0, but mu never takes it"):
        LoggedEpisodes.tabular(
            state_NT=[[0]], action_NT=[[1]], reward_NT=np.zeros((1, 1)), pi_SA=[[0.5, 0.5]],
            mu_SA=[[1.0, 0.0]],
        )  # fmt: skip


def test_indices_that_are_not_whole_are_refused():
    pi = np.full((2, 2), 0.5)
    given = {
        "state_NT": [[0, 1]],
        "action_NT": [[1, 0]],
        "reward_NT": np.ones((1, 2)),
        "pi_SA": pi,
        "mu_SA": pi,
    }
    assert LoggedEpisodes.tabular(**{**given, "state_NT": [[0.0, 1.0]]}).state_NT.dtype == np.int64
    for name in ("state_NT", "action_NT"):
        refuses(
            f"{name} holds a number that is not whole", LoggedEpisodes.tabular, **{**given, name: [[0, 0.7]]}
        )
    padded = {**given, "state_NT": [[0, 0.7]], "mask_NT": np.array([[True, False]])}
    assert (LoggedEpisodes.tabular(**padded).state_NT == 0).all(), "padding is never read"


def test_scope_rl_names_open_the_same_episodes():
    first = sample()
    q_hat = np.random.default_rng(1).normal(size=(*first.reward_NT.shape, 3))
    second = LoggedEpisodes.from_policies(
        action_NT=first.action_NT, reward_NT=first.reward_NT,
        pscore_NT=np.where(first.mask_NT, first.mu_SA[first.state_NT, first.action_NT], -7.0),
        evaluation_policy_action_dist_NTA=first.pi_SA[first.state_NT],
        state_action_value_prediction_NTA=q_hat, mask_NT=first.mask_NT, gamma=0.8,
    )  # fmt: skip
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
