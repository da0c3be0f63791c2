"""Linear-quadratic control, continuous bandits and their kernels, against Riccati, simulation and scipy."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from support.refusals import refuses

from analysis.kernels import one_continuous_action
from analysis.kernels.one_continuous_action import BumpBandit
from envs import kernels
from envs.continuous import normals, point_mass
from testbed.errors import UserError
from testbed.offline import control

KEYS = np.arange(3, dtype=np.uint64)
MASS = point_mass(noise_std=0.1)
BEST = MASS.optimal_gain()
BUMPS = BumpBandit(
    center_K=np.array([-1.0, 1.0]), tilt_K=np.array([0.5, 0.0]), height_K=np.array([1.0, 0.7]),
    width_K=np.array([0.3, 0.5]),
)  # fmt: skip


def test_normals_are_normal_and_a_function_of_their_key():
    drawn = normals(KEYS, 5, 4000, 3)
    assert (normals(KEYS[1:2], 5, 4000, 3)[0] == drawn[1]).all()
    assert stats.kstest(drawn[0].ravel(), "norm").pvalue > 1e-4  # false alarm 1e-4
    assert abs(np.corrcoef(drawn.reshape(3, -1))[0, 1]) < 0.04


def test_the_riccati_gain_is_the_minimum_of_the_exact_cost():
    assert MASS.value(BEST) == pytest.approx(
        -np.trace(MASS.riccati() @ MASS.start_DD)
        - MASS.discount / (1 - MASS.discount) * MASS.noise_std**2 * np.trace(MASS.riccati())
    )
    around = BEST + 0.3 * np.random.default_rng(0).normal(size=(50, *BEST.shape))
    assert (MASS.value(around) < MASS.value(BEST)).all()
    assert MASS.value(-BEST) == -np.inf


@pytest.mark.parametrize("std", [0.0, 0.4])
def test_the_exact_value_is_that_of_simulated_episodes(std):
    episodes, steps = 4000, 120
    gain = BEST + 0.1
    x, total = MASS.starts(normals(KEYS[:1], 0, episodes, 2)), np.zeros((1, episodes))
    for t in range(steps):
        noise = normals(KEYS[:1], t + 1, episodes, 3)
        x, reward = MASS.step(x, -x @ gain.T + std * noise[..., :1], noise[..., 1:])
        total += MASS.discount**t * reward
    assert total.mean() == pytest.approx(float(MASS.value(gain, std)), abs=4.5 * total.std() / episodes**0.5)


def test_several_axes_are_independent_copies():
    plane = point_mass(noise_std=0.1, axes=2)
    assert plane.value(plane.optimal_gain(), 0.2) == pytest.approx(2 * MASS.value(BEST, 0.2))


def test_rewards_of_bumps_under_gaussian_policies_are_integrals():
    for std in (0.2, 1.0):
        wanted = integrate.quad(
            lambda a, std=std: float(BUMPS.mean_reward(0.3,
                                                       a)) * stats.norm.pdf(a, 0.4, std), -6, 6, limit=200,
        )[0]  # fmt: skip
        assert BUMPS.mean_reward(0.3, 0.4, std) == pytest.approx(wanted, abs=1e-7)


def test_a_bump_log_has_the_shares_means_and_noise_it_was_asked_for():
    x, a, r = BUMPS.log(KEYS, 5000, mean_W=[-2.0, 2.0], std_W=[0.1, 0.3], share_W=[0.2, 0.8])
    assert abs((a > 0).mean() - 0.8) < 0.015
    assert abs(a[a > 0].std() - 0.3) < 0.01
    assert abs((r - BUMPS.mean_reward(x, a)).std() - 0.1) < 0.004
    assert abs(np.corrcoef(x.ravel(), a.ravel())[0, 1]) < 0.04
    refuses("share_W", BUMPS.log, KEYS, 5, mean_W=[0.0], std_W=[1.0], share_W=[0.9], error=ValueError)


def test_features_are_the_monomials_of_the_form():
    rng = np.random.default_rng(0)
    x, u, weight = rng.normal(size=(4, 2)), rng.normal(size=(4, 1)), rng.normal(size=7)
    form, constant = control.quadratic_form(weight, 3)
    z = np.concatenate([x, u], axis=-1)
    np.testing.assert_allclose(
        control.quadratic_features(x, u) @ weight, np.einsum("ni,ij,nj->n", z, form, z) + constant
    )


def test_td3_comes_near_the_riccati_gain_and_its_cells_do_not_depend_on_each_other():
    run = control.Settings(steps=500, every=250, updates=2.0)
    gains = control.td3(MASS, KEYS, run)
    start = MASS.value(np.array([[[0.3, 0.3]]]))[0]
    best = MASS.value(BEST)
    assert (MASS.value(gains[-1]) > best - 0.1 * (best - start)).all()
    short = control.Settings(steps=4, every=1, updates=0.5, batch=8)
    alone, whole = (control.td3(MASS, keys, short) for keys in (KEYS[2:], KEYS))
    np.testing.assert_allclose(alone[:, 0], whole[:, 2], rtol=1e-12)


def test_a_step_is_that_of_adam_with_decays_of_nine_tenths_and_ninety_nine_hundredths():
    slope = np.random.default_rng(0).normal(size=(6, 2, 3))
    step, place = control.Adam.of([0.1, 0.3], [np.zeros((2, 3))]), torch.zeros(2, 3, dtype=torch.float64)
    outside = [torch.optim.Adam([place[r]], rate, betas=(0.9, 0.99)) for r, rate in enumerate((0.1, 0.3))]
    moved = np.zeros((2, 3))
    for each in slope:
        moved -= step([each])[0]
        for r, one in enumerate(outside):
            one.param_groups[0]["params"][0].grad = torch.from_numpy(each[r])
            one.step()
    np.testing.assert_allclose(moved, place, rtol=1e-9)


def test_steps_of_learning_are_those_of_torch_on_what_was_drawn():
    plane, rng = point_mass(noise_std=0.1, axes=2), np.random.default_rng(0)
    chosen = control.Settings(
        players=5, batch=6, polyak=0.3, actor_rate=0.05, critic_rate=0.2, exploration=0.3
    )
    run, drawn = control._Run(plane, KEYS, chosen), []
    run.critic_R2F, run.target_R2F = rng.normal(size=(2, 3, 2, 22))
    critics, targets = torch.tensor(run.critic_R2F), torch.tensor(run.target_R2F)
    for step in range(3):
        run.play(step)
    for name in ("_batch", "_normals"):
        made = getattr(run, name)
        setattr(run, name, lambda *size, made=made: drawn.append(made(*size)) or drawn[-1])
    for _ in range(5):
        run.learn()
    for r in range(3):
        given = (torch.tensor(np.concatenate([x[r] for x in each], -1) if isinstance(each, list) else each[r])
                 for each in drawn)  # fmt: skip
        target, slow = targets[r].clone(), torch.zeros(2, 4).double()
        critic, gain = critics[r].clone().requires_grad_(), slow.clone().requires_grad_()
        steps = [torch.optim.Adam([part], rate, betas=(0.9, 0.99))
                 for part, rate in ((critic, 0.2), (gain, 0.05))]  # fmt: skip

        def q(weight, x, u):
            z = [*x.T, *u.T]
            pairs = [z[i] * z[j] for i in range(6) for j in range(i, 6)]
            return torch.stack([*pairs, torch.ones(len(x))], -1) @ weight

        for update in range(1, 6):
            x, u, reward, then = next(given).split([4, 2, 1, 4], -1)
            noise = next(given)
            with torch.no_grad():
                ahead = -then @ slow.T + (0.1 * noise).clamp(-0.2, 0.2)
                worth = torch.minimum(q(target[0], then, ahead), q(target[1], then, ahead))
                aim = reward[:, 0] + plane.discount * worth
            steps[0].zero_grad()
            sum(((q(each, x, u) - aim) ** 2).mean() / 2 for each in critic).backward()
            steps[0].step()
            if update % 2 == 0:
                steps[1].zero_grad()
                (-q(critic[0].detach(), x, -x @ gain.T).mean()).backward()
                steps[1].step()
            target += 0.3 * (critic.detach() - target)
            slow += 0.3 * (gain.detach() - slow)
        for name, value in (("critic_R2F", critic), ("gain_RUD", gain),
                            ("target_R2F", target), ("slow_RUD", slow)):  # fmt: skip
            np.testing.assert_allclose(getattr(run, name)[r], value.detach(), rtol=1e-6, atol=1e-9)


def test_steps_of_play_are_stored_in_a_ring_and_restart_far_away_or_late():
    chosen = control.Settings(players=3, capacity=7, horizon=4, limit=1.2, exploration=0.6)
    run = control._Run(MASS, KEYS, chosen)
    run.gain_RUD = np.random.default_rng(0).normal(size=(3, 1, 2))
    x, places, far = MASS.starts(normals(KEYS, 1, 3, 2)), {}, []
    for step in range(9):
        noise = normals(KEYS, step + 2, 3, 5)
        for r, n in np.ndindex(3, 3):
            u = -run.gain_RUD[r] @ x[r, n] + 0.6 * noise[r, n, :1]
            then, paid = MASS.step(x[r, n], u, noise[r, n, 1:3])
            places[r, (3 * step + n) % 7] = (*x[r, n], *u, paid, *then)
            far.append(np.abs(then).max() > 1.2)
            x[r, n] = MASS.starts(noise[r, n, 3:]) if far[-1] or step in (3, 7) else then
        run.play(step)
        np.testing.assert_allclose(run.x_RND, x, rtol=1e-12)
    assert 0 < sum(far) < len(far)
    assert run.filled == 27
    stored = np.concatenate(run.memory, axis=-1)
    np.testing.assert_allclose(stored, [[places[r, k] for k in range(7)] for r in range(3)], rtol=1e-12)


@pytest.mark.parametrize("capacity", [40, 3])
def test_a_batch_is_drawn_evenly_from_what_is_stored(capacity):
    run = control._Run(MASS, KEYS, control.Settings(batch=9, players=4, capacity=capacity))
    run.play(0)
    run.drawn = 70
    found, uniform = run._batch(), kernels.uniforms(KEYS, 71, 9, 1)[..., 0]
    for r, k in np.ndindex(3, 9):
        at = int(uniform[r, k] * min(4, capacity))
        assert [v for part in found for v in part[r, k]] == [v for part in run.memory for v in part[r, at]]


def test_a_run_learns_by_its_credit_and_records_its_gains(monkeypatch):
    calls = []
    monkeypatch.setattr(control._Run, "play", lambda run, step: calls.append(step))

    def learn(run):
        calls.append("learn")
        run.gain_RUD = run.gain_RUD + 1.0

    monkeypatch.setattr(control._Run, "learn", learn)
    gains = control.td3(MASS, KEYS, control.Settings(steps=5, every=2, updates=0.75))
    assert calls == [0, 1, "learn", 2, "learn", 3, "learn", 4]
    np.testing.assert_array_equal(gains, np.array([1.0, 3.0])[:, None, None, None] * np.ones((2, 3, 1, 2)))
    for bad in ({"batch": 0}, {"updates": -0.1}):
        refuses("Expected batch >= 1 and updates >= 0", control.td3, MASS, KEYS, control.Settings(**bad))
    assert control.td3(MASS, KEYS, control.Settings(steps=2, every=1, updates=0.0)).shape == (2, 3, 1, 2)


# -- offline, one action ----------------------------------------------------------------------------

GRID_X, GRID_G = np.linspace(0, 1, 5), np.linspace(-2, 2, 81)
LOG = BUMPS.log(KEYS, 300, mean_W=[-0.2], std_W=[0.4], share_W=[1.0])


def test_a_polynomial_critic_is_ridge_regression():
    x, a, r = LOG
    q = one_continuous_action.polynomial_critic(x, a, r, GRID_X, GRID_G, 1, 0.1)
    phi = np.stack([np.ones(300), a[0], x[0]], axis=-1)
    weight = np.linalg.solve(phi.T @ phi + 0.1 * np.eye(3), phi.T @ r[0])
    np.testing.assert_allclose(q[0], weight[0] + weight[1] * GRID_G + weight[2] * GRID_X[:, None], atol=1e-10)


def test_nearest_data_is_found_in_the_weighted_distance():
    x, a, _ = LOG
    square, near = one_continuous_action.nearest_distance(x, a, GRID_X, GRID_G, 2.0)
    wanted = min(
        (4 * (GRID_X[3] - s) ** 2 + (GRID_G[7] - u) ** 2, u) for s, u in zip(x[1], a[1], strict=True)
    )
    assert (square[1, 3, 7], near[1, 3, 7]) == pytest.approx(wanted)


def test_a_weight_on_the_penalty_moves_the_action_from_the_critic_to_the_data():
    x, a, r = LOG
    q = one_continuous_action.polynomial_critic(x, a, r, GRID_X, GRID_G, 3, 1e-3)
    square, _ = one_continuous_action.nearest_distance(x, a, GRID_X, GRID_G, 1.0)
    free, held = (one_continuous_action.penalized_actions(q, square, w, GRID_G) for w in (0.0, 1e6))
    np.testing.assert_allclose(free, GRID_G[q.argmax(-1)])
    rows = np.arange(3)[:, None], np.arange(5)
    assert (square[(*rows, np.searchsorted(GRID_G, held))] <= square.min(-1) + 1e-12).all()
    mean = one_continuous_action.local_mean(x, a, GRID_X, 0.2)
    assert np.abs(mean + 0.2).max() < 0.1


def test_the_score_of_the_density_is_its_derivative_and_ascending_it_raises_the_density():
    x, a, _ = LOG
    query, width = np.tile(np.linspace(-1.5, 1.5, 5), (3, 1)), (0.3, 0.2)
    log_p, score = one_continuous_action.density_score(x, a, query, GRID_X, width)
    up, down = (one_continuous_action.density_score(x, a, query + d, GRID_X, width)[0] for d in (1e-5, -1e-5))
    np.testing.assert_allclose(score, (up - down) / 2e-5, atol=1e-5)
    kernel = stats.norm.pdf(GRID_X[2], x[0], 0.3) * stats.norm.pdf(query[0, 2], a[0], 0.2)
    assert np.exp(log_p[0, 2]) == pytest.approx(kernel.mean())
    moved = one_continuous_action.score_corrected(x, a, query, GRID_X, width, steps=5, rate=0.04)
    assert (one_continuous_action.density_score(x, a, moved, GRID_X, width)[0] >= log_p - 1e-9).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: dataclasses.replace(MASS, discount=1.0), "discount"),
     (lambda: dataclasses.replace(MASS, action_cost_UU=np.zeros((1, 1))), "positive definite"),
     (lambda: dataclasses.replace(MASS, a_DD=np.eye(3)), "must be")],
)  # fmt: skip
def test_impossible_controls_are_refused(call, message):
    refuses(message, call, error=ValueError)
    assert issubclass(UserError, ValueError)
