"""Offline kernels on tables: every fixed point against linear algebra, enumeration or another algorithm."""

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import optimize
from support.refusals import refuses
from support.small_mdps import SMALL, policies

from analysis.experiments.offline import offline_iv
from analysis.experiments.offline.offline_iv import confounded
from analysis.kernels import constrained
from envs import infinite_horizon
from envs.logged_data import Counts, collect, exact_model, expected_counts
from envs.mdps import garnet
from testbed.errors import UserError
from testbed.exact.value_learning import expectile
from testbed.offline import models, tabular_offline

WORLD = garnet(states=6, actions=3, branching=3, discount=0.9, seed=1)
MOVES, REWARD = (x[None] for x in exact_model(WORLD))
MU = policies(WORLD, 1, seed=3)
KEYS = np.arange(4, dtype=np.uint64)


def every_policy(allowed_SA):
    choices = [np.flatnonzero(row) for row in allowed_SA]
    return np.stack([np.eye(allowed_SA.shape[1])[list(c)] for c in itertools.product(*choices)])


def test_policy_q_is_that_of_the_world_with_and_without_ends():
    for name in ("terminal", "lock"):
        world = SMALL[name]
        pi = policies(world, 2)
        moves, reward = exact_model(world)
        q = tabular_offline.policy_q(moves[None].repeat(2, 0), reward[None].repeat(2, 0), pi, world.discount)
        assert_allclose(q, infinite_horizon.q_value(world, pi), atol=1e-12)


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_a_clone_has_the_shares_of_its_counts_and_is_uniform_in_unseen_states(prior):
    visits = np.array([[[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 2.0], [1.0, 1.0, 2.0]]])
    found = tabular_offline.clone(visits, prior).reshape(4, 3)
    for visit, law in zip(visits.reshape(4, 3), found, strict=True):
        mass = [n + prior for n in visit]
        assert_allclose(law, [m / sum(mass) for m in mass] if sum(mass) else [1 / 3] * 3)


def test_fitted_q_is_the_best_of_all_deterministic_policies():
    every = every_policy(np.ones((6, 3), bool))
    q = tabular_offline.fitted_q(MOVES, REWARD, 0.9)
    best = infinite_horizon.state_value(WORLD, every).max(0)
    assert_allclose(q[0].max(-1), best, atol=1e-9)


def test_many_expectiles_at_once_are_the_exact_ones():
    rng = np.random.default_rng(0)
    value, mass = rng.normal(size=(40, 5)), rng.dirichlet(np.ones(5), size=40)
    mass[::2, 1] = 0.0
    mass /= mass.sum(-1, keepdims=True)
    tau = rng.uniform(0.02, 0.98, size=40)
    wanted = [expectile(v[m > 0], m[m > 0], t) for v, m, t in zip(value, mass, tau, strict=True)]
    assert_allclose(tabular_offline.expectiles(value, mass, tau), wanted, atol=1e-12)
    assert tabular_offline.expectiles(value, 0 * mass, tau).tolist() == [0.0] * 40


def test_iql_runs_from_the_logger_to_the_best_policy_in_its_support():
    mu = np.where(np.arange(3) < 2, MU, 0.0)
    mu = mu / mu.sum(-1, keepdims=True)
    three = [np.repeat(x, 3, axis=0) for x in (MOVES, REWARD, mu)]
    unread = np.where(three[2] > 0, three[1], np.nan)
    q, value = tabular_offline.iql(three[0], unread, three[2], 0.9, [0.5, 0.9, 1 - 1e-6])
    assert_allclose(value[0], infinite_horizon.state_value(WORLD, mu[0]), atol=1e-8)
    best = tabular_offline.fitted_q(MOVES, REWARD, 0.9, (mu > 0))[..., :2].max(-1)[0]
    assert_allclose(value[2], best, atol=1e-3)
    assert (np.diff(value, axis=0) > 0).all()
    assert (np.isnan(q) == np.isnan(unread)).all()


def test_a_kl_budget_is_spent_and_a_large_one_buys_the_best_action():
    q = np.random.default_rng(1).normal(size=MU.shape)
    budget = np.linspace(0.05, 0.3, 6)[None]
    pi = tabular_offline.within_kl(MU, q, budget)
    assert_allclose(tabular_offline.kl(pi, MU), budget, atol=1e-6)
    assert_allclose(tabular_offline.within_kl(MU, q, 20.0), tabular_offline.greedy(q), atol=1e-9)
    assert_allclose(tabular_offline.within_kl(MU, q, 0.0), MU, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_best_of_n_is_the_law_of_the_winner_among_all_draws(n):
    mu, q = np.array([0.5, 0.2, 0.3]), np.array([1.0, 2.0, 1.0])
    law = np.zeros(3)
    for drawn in itertools.product(range(3), repeat=n):
        law[min(drawn, key=lambda a: (-q[a], a))] += np.prod(mu[list(drawn)])
    assert_allclose(tabular_offline.best_of_n(mu[None, None], q[None, None], n)[0, 0], law, atol=1e-12)


def test_the_gradient_of_value_consistency_is_the_complex_step():
    counts = expected_counts(WORLD, MU, 3.0)
    rng = np.random.default_rng(0)
    logits, value = rng.normal(size=(1, 6, 3, 6)), rng.normal(size=(1, 6))

    def loss(logits):
        mass = np.exp(logits)
        moves = mass / mass.sum(-1, keepdims=True)
        share = counts.going_RSAS / counts.visit_RSA.sum()
        step = np.einsum("rsa,rsat->rst", MU, moves)
        model = np.linalg.solve(np.eye(6) - 0.9 * step, (MU * counts.reward_RSA).sum(-1)[..., None])[..., 0]
        weight = counts.visit_RSA.sum(-1) / counts.visit_RSA.sum()
        return -(share * np.log(moves)).sum() + 2.0 * (weight * (model - value) ** 2).sum()

    mass = np.exp(logits)
    got, slope = models.model_loss_gradient(mass / mass.sum(-1, keepdims=True), counts, MU, value, 0.9, 2.0)
    assert got[0] == pytest.approx(loss(logits))
    for place in ((0, 1, 2, 3), (0, 5, 0, 0)):
        moved = logits.astype(complex)
        moved[place] += 1e-30j
        assert slope[place] == pytest.approx(loss(moved).imag / 1e-30, rel=1e-9)


def test_nested_regression_is_pooled_or_separate_at_its_ends():
    one = collect(WORLD, MU[:, None], 40, KEYS[:1]).counts(6, 3)
    two = collect(
        garnet(states=6, actions=3, discount=0.9, seed=2), MU[:, None], 10, KEYS[:1], step=9
    ).counts(6, 3)
    q_0, q_1 = models.nested_fitted_q(one, two, 0.9, 0.0)
    for counts, q in ((one, q_0), (two, q_1)):
        own = tabular_offline.fitted_q(counts.moves_RSAS, counts.reward_RSA, 0.9)
        assert_allclose(q[counts.seen_RSA], own[counts.seen_RSA], atol=1e-6)
    pooled_0, pooled_1 = models.nested_fitted_q(one, two, 0.9, np.inf)
    both = one + two
    assert_allclose(pooled_0, pooled_1)
    assert_allclose(pooled_0, tabular_offline.fitted_q(both.moves_RSAS, both.reward_RSA, 0.9), atol=1e-6)
    between, _ = models.nested_fitted_q(one, two, 0.9, 1e9)
    assert_allclose(between, pooled_0, atol=1e-5)


def test_a_nested_round_is_the_ridge_regression_it_says():
    rng = np.random.default_rng(0)
    n_0, n_1, y_0, y_1, ridge = *rng.integers(1, 9, 2), *rng.normal(size=2), 0.7

    def counts(n, y):  # one state that ends: the target is the reward
        return Counts(np.full((1, 1, 1), float(n)), np.zeros((1, 1, 1, 1)), np.full((1, 1, 1), y))

    q_0, q_1 = models.nested_fitted_q(counts(n_0, y_0), counts(n_1, y_1), 0.9, ridge)

    def loss(fh):
        return n_0 * (y_0 - fh[0]) ** 2 + n_1 * (y_1 - fh[0] - fh[1]) ** 2 + ridge * fh[1] ** 2

    best = optimize.minimize(loss, (0, 0), tol=1e-12).x
    assert (q_0.item(), q_1.item()) == pytest.approx((best[0], best.sum()), abs=1e-6)


def two_counts(rng):
    visit = rng.integers(0, 4, (2, 3, 2)).astype(float)
    going = visit[..., None] * rng.dirichlet(np.ones(3), (2, 3, 2))
    return Counts(visit, going, np.where(visit > 0, rng.normal(size=visit.shape), 0.0))


def test_a_low_rank_model_is_a_softmax_of_inner_products():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 3, 2, 4)), rng.normal(size=(2, 5, 4))
    found = models.low_rank_model(left, right)
    for r, s, a in np.ndindex(2, 3, 2):
        mass = np.exp(right[r] @ left[r, s, a])
        assert_allclose(found[r, s, a], mass / mass.sum())


def test_steps_of_a_value_consistent_model_are_those_of_torch():
    rng = np.random.default_rng(0)
    visit = rng.integers(1, 5, (2, 3, 2)).astype(float)
    counts = Counts(
        visit, visit[..., None] * rng.dirichlet(np.ones(3), (2, 3, 2)), rng.normal(size=(2, 3, 2))
    )
    pi, value, weight = rng.dirichlet(np.ones(2), (2, 3)), rng.normal(size=(2, 3)), (0.0, 2.0)
    found = models.value_consistent_model(
        counts, pi, value, 0.7, rank=2, consistency=weight, rng=np.random.default_rng(5), steps=7,
        learning_rate=0.1,
    )  # fmt: skip
    start = np.random.default_rng(5)
    drawn = [0.3 * start.normal(size=shape) for shape in ((1, 3, 2, 2), (1, 3, 2))]
    for r in range(2):
        left, right = (torch.tensor(x[0]).requires_grad_() for x in drawn)
        step = torch.optim.Adam([left, right], 0.1, betas=(0.9, 0.99))
        share, at = (torch.tensor(x / visit[r].sum()) for x in (counts.going_RSAS[r], visit[r].sum(-1)))
        law, paid = torch.tensor(pi[r]), torch.tensor(counts.reward_RSA[r])
        for _ in range(7):
            moves = torch.einsum("sak,tk->sat", left, right).softmax(-1)
            resolvent = torch.eye(3) - 0.7 * torch.einsum("sa,sat->st", law, moves)
            error = torch.linalg.solve(resolvent, (law * paid).sum(-1)) - torch.tensor(value[r])
            loss = -(share * moves.log()).sum() + weight[r] * (at * error**2).sum()
            step.zero_grad()
            loss.backward()
            step.step()
        moves = torch.einsum("sak,tk->sat", left, right).softmax(-1).detach()
        assert_allclose(found[r], moves, rtol=1e-6)
    ends = Counts(visit, counts.going_RSAS * (1 - 1e-8), counts.reward_RSA)
    with pytest.raises(UserError, match="Some steps ended in a terminal state"):
        models.value_consistent_model(ends, pi, value, 0.7, rank=1, consistency=0.0, rng=rng, steps=1)


def test_a_discrete_choice_is_the_soft_fixed_point_and_gives_its_reward_back():
    reward = np.random.default_rng(0).normal(size=(1, 6, 3))
    pi, value = models.discrete_choice(MOVES, reward, 0.9)
    q = reward + 0.9 * (MOVES @ value[:, None, :, None])[..., 0]
    assert_allclose(np.log(np.exp(q).sum(-1)), value, atol=1e-9)
    assert_allclose(pi, np.exp(q - value[..., None]), atol=1e-9)
    for anchor, paid in ((0, 0.0), (2, 1.5)):
        fixed = np.where(np.arange(3) == anchor, paid, reward)
        pi, _ = models.discrete_choice(MOVES, fixed, 0.9)
        given = {"anchor": anchor, "anchor_reward": paid} if anchor else {}
        assert_allclose(models.recovered_reward(pi, MOVES, 0.9, **given), fixed, atol=1e-8)
    refuses("without mass, so no finite reward", models.recovered_reward, np.eye(3)[[[0] * 6]], MOVES, 0.9)


def repeated(moves, reward, discount, seen, unseen=0.0):
    """Return the fixed point of fitted Q with a mask, by repetition."""
    q = np.zeros(reward.shape)
    for _ in range(300):
        best = [max((q[s, a] for a in np.flatnonzero(seen[s])), default=unseen) for s in range(len(q))]
        q = np.where(seen, reward + discount * moves @ best, unseen)
    return q


def test_pessimism_charges_each_seen_pair_by_its_count_and_takes_no_other():
    counts = two_counts(np.random.default_rng(3))
    own = np.random.default_rng(4).normal(size=(2, 3, 2))
    for reward in (None, own):
        given = counts.reward_RSA if reward is None else reward
        found = models.pessimistic_q(counts, 0.8, [0.0, 0.7], reward)
        for r, scale in enumerate((0.0, 0.7)):
            seen = counts.visit_RSA[r] > 0
            low = given[r] - scale / np.sqrt(np.maximum(counts.visit_RSA[r], 1))
            q = repeated(counts.moves_RSAS[r], low, 0.8, seen)
            assert_allclose(found[r], np.where(seen, q, -np.inf), atol=1e-9)


def test_fitted_q_of_a_mask_is_its_fixed_point_by_repetition():
    rng = np.random.default_rng(0)
    moves, reward = rng.dirichlet(np.ones(4), (2, 3, 2))[..., :3], rng.normal(size=(2, 3, 2))
    allowed = np.array([[[1, 0], [1, 1], [0, 0]], [[0, 1], [1, 1], [1, 1]]], bool)
    for mask, unseen in ((None, 0.0), (allowed, 0.0), (allowed, -7.0)):
        found = tabular_offline.fitted_q(moves, reward, 0.8, mask, unseen)
        for r in range(2):
            seen = np.ones((3, 2), bool) if mask is None else mask[r]
            assert_allclose(found[r], repeated(moves[r], reward[r], 0.8, seen, unseen), atol=1e-9)


def test_actions_are_chosen_within_what_is_allowed_and_ties_go_to_the_first():
    q = np.array([[[1.0, 3.0, 3.0], [5.0, 1.0, 2.0]]])
    allowed = np.array([[[True, False, True], [False, False, False]]])
    assert tabular_offline.greedy(q).tolist() == [[[0, 1, 0], [1, 0, 0]]]
    assert tabular_offline.greedy(q, allowed).tolist() == [[[0, 0, 1], [1, 0, 0]]]
    mu = np.array([[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])
    assert_allclose(tabular_offline.advantage(q, mu), [[[-1, 1, 1], [2.7, -1.3, -0.3]]])
    kept = tabular_offline.advantage_filtered(mu, np.array([[[-1.0, -2.0, 9.0], [0.0, -0.1, 4.0]]]))
    assert_allclose(kept, [[[1, 0, 0], [2 / 7, 0, 5 / 7]]])
    even = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]])
    assert_allclose(tabular_offline.kl(even, mu), [[0, np.log(5)]])
    assert_allclose(tabular_offline.kl(mu, even), [[0, np.inf]])


def test_weights_and_budgets_are_a_number_one_a_cell_or_one_a_state():
    rng = np.random.default_rng(0)
    mu, q = rng.dirichlet(np.ones(3), (2, 2)), rng.normal(size=(2, 2, 3))
    mu[0, 0] = (0.4, 0.6, 0.0)
    for given in (1.5, [0.5, 2.0], [[0.5, 1.0], [2.0, 4.0]]):
        beta = np.array(given) if np.ndim(given) == 2 else np.broadcast_to(np.reshape(given, (-1, 1)), (2, 2))
        weighted = tabular_offline.awr(mu, np.where(mu > 0, q, np.inf), given)
        for r, s in np.ndindex(2, 2):
            each = zip(mu[r, s], q[r, s], strict=True)
            mass = np.array([p * np.exp(beta[r, s] * x) if p else 0.0 for p, x in each])
            assert_allclose(weighted[r, s], mass / mass.sum())
        spent = tabular_offline.kl(tabular_offline.within_kl(mu, q, np.array(given) / 50), mu)
        assert_allclose(spent, beta / 50, atol=1e-8)
    best = tabular_offline.within_kl(np.array([[[0.5, 0.5, 0.0]]]), np.array([[[0.0, 1e-3, 9.0]]]), 1.0)
    assert_allclose(best, [[[0, 1, 0]]], atol=1e-9)
    same = np.array([[[0.3, 0.7]]])
    assert_allclose(tabular_offline.within_kl(same, np.full((1, 1, 2), 3.0), 0.1), same)
    several = tabular_offline.best_of_n(np.stack([mu[0], mu[0]]), np.stack([q[0], q[0]]), [1, 3])
    assert_allclose(several[0], mu[0])
    top = q[0, 0, :2].argmax()
    assert several[1, 0, top] == pytest.approx(1 - (1 - mu[0, 0, top]) ** 3)


def test_what_does_not_end_is_refused(monkeypatch):
    for module in (models, tabular_offline):
        monkeypatch.setattr(module, "MOST_ROUNDS", 0)
    for call, what in (
        (lambda: tabular_offline.fitted_q(MOVES, REWARD, 0.9), "policy iteration"),
        (lambda: tabular_offline.iql(MOVES, REWARD, MU, 0.9, 0.5), "expectile iteration"),
        (lambda: models.discrete_choice(MOVES, REWARD, 0.9), "soft value iteration"),
    ):
        refuses(f"{what} did not end in 0 rounds; lower the discount", call)


def test_instruments_recover_the_world_that_counts_get_wrong():
    world = garnet(states=3, actions=2, branching=2, discount=0.5, horizon=10, seed=0)
    hidden = confounded(world, instrument=0.6, hidden=0.4)
    log, z = hidden.collect(20_000, KEYS[:2])
    model = offline_iv.instrumented_model(log, z, 3, 2)
    counts = log.counts(3, 2)
    assert (
        np.abs(model.reward_RSA - world.reward_SA).max()
        < 0.05
        < np.abs(counts.reward_RSA - world.reward_SA).min()
    )
    pi = policies(world)
    value, error = offline_iv.instrumented_value(log, z, pi, world.start_S, world.discount)
    truth = infinite_horizon.value(world, pi)
    assert (np.abs(value - truth) < 4.5 * error).all()
    assert (error < 0.05).all()


def test_the_standard_error_of_an_instrumented_value_is_that_of_its_replicates():
    world = garnet(states=2, actions=2, branching=2, discount=0.5, horizon=5, seed=0)
    log, z = confounded(world).collect(400, np.arange(300, dtype=np.uint64))
    value, error = offline_iv.instrumented_value(log, z, policies(world), world.start_S, 0.5)
    # The deviation of 300 replicates has a relative error of 4%, of which these are five.
    assert np.median(error) / value.std() == pytest.approx(1, abs=0.2)
    refuses("No step", offline_iv.instrumented_model, log, np.zeros_like(z), 2, 2)


# -- constraints ------------------------------------------------------------------------------------

COST = np.maximum(REWARD[0], 0.0) * 0.5 + 0.05


def test_the_constrained_optimum_is_the_best_mixture_that_keeps_the_budget():
    every = every_policy(np.ones((6, 3), bool))
    gain = infinite_horizon.value(WORLD, every)
    paid = (infinite_horizon.occupancy(WORLD, every)[..., None] * every * COST).sum((-1, -2))
    budget = 0.5 * (paid.min() + paid[gain.argmax()])
    pi, value = constrained.constrained_optimum(MOVES[0], REWARD[0], COST, WORLD.start_S, 0.9, budget)
    # The frontier of mixtures of deterministic policies, by its dual.
    dual = optimize.minimize_scalar(
        lambda x: (gain - x * (paid - budget)).max(), bounds=(0, 1e3), method="bounded"
    )
    assert value == pytest.approx(dual.fun, abs=1e-4)
    assert infinite_horizon.value(WORLD, pi) == pytest.approx(value)
    own = (infinite_horizon.occupancy(WORLD, pi)[..., None] * pi * COST).sum()
    assert own == pytest.approx(budget)
    with pytest.raises(UserError, match="No policy"):
        constrained.constrained_optimum(MOVES[0], REWARD[0], COST, WORLD.start_S, 0.9, 0.9 * paid.min())


def test_resampled_counts_keep_their_visits_and_spread_like_the_data():
    counts = collect(WORLD, MU[:, None], 20, KEYS[:1]).counts(6, 3)
    drawn = constrained.resampled(counts, 2000, np.random.default_rng(0))
    assert_allclose(drawn.going_RSAS.sum(-1), drawn.visit_RSA, atol=1e-9)
    assert_allclose(drawn.moves_RSAS.mean(0), counts.moves_RSAS[0], atol=0.05)
    p, n = counts.moves_RSAS[0], counts.visit_RSA[0][..., None]
    assert_allclose(drawn.moves_RSAS.var(0), p * (1 - p) / (n + 1), atol=0.01)


def test_primal_dual_swings_around_its_budget_and_the_augmented_lagrangian_settles_on_the_optimum():
    budget = 3.0
    _, best = constrained.constrained_optimum(MOVES[0], REWARD[0], COST, WORLD.start_S, 0.9, budget)
    run = constrained.primal_dual(
        WORLD, COST, budget=budget, conservatism_R=np.array([0.0, 0.0, 1.0]),
        convexity_R=np.array([0.0, 1.0, 1.0]), key_R=KEYS[:1].repeat(3),
        iterations=200, episodes=8, step_size=0.3, dual_rate=0.2,
    )  # fmt: skip
    late = run.cost_KR[-50:]
    assert late[:, 0].std() > 0.5 > 5 * late[:, 1].std()
    assert abs(late[:, 1].mean() - budget) < 0.1
    assert abs(run.value_KR[-50:, 1].mean() - best) < 0.1
    # Before the policies part, the cautious critic charges more for the same one.
    assert run.cost_KR[0, 2] == run.cost_KR[0, 1]
    assert run.estimated_cost_KR[0, 2] > run.estimated_cost_KR[0, 1]
    got = constrained.augmented_multiplier(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([-1.0, -1.0]))
    assert got.tolist() == [1.0, 0.0]


def test_a_guardian_of_trajectories_forbids_what_leads_out_of_support():
    # 0 -a0-> 1, 0 -a1-> 2, 0 -a2-> 0; 1 is unsafe, 2 has no data.
    moves = np.zeros((1, 3, 3, 3))
    moves[0, 0, 0, 1] = moves[0, 0, 1, 2] = moves[0, 0, 2, 0] = moves[0, 1, :, 0] = 1.0
    visits = np.array([[[5, 5, 5], [5, 5, 5], [0, 0, 0]]])
    actions = constrained.action_support(visits)
    assert actions[0].tolist() == [[True] * 3, [True] * 3, [False] * 3]
    unsafe = np.array([False, True, False])
    kept = constrained.trajectory_support(actions, moves, unsafe)
    assert kept[0].tolist() == [[False, False, True], [False] * 3, [False] * 3]
    moves[0, 0, 2] = (0.9, 0.1, 0.0)
    assert not constrained.trajectory_support(actions, moves, unsafe)[0, 0].any()


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: tabular_offline.policy_q(MOVES, REWARD, MU, 1.0), "discount is 1, expected 0 <= discount < 1"),
     (lambda: tabular_offline.fitted_q(MOVES, REWARD, -0.1), "discount is -0.1"),
     (lambda: tabular_offline.iql(MOVES, REWARD, MU, 1.0, 0.5), "discount is 1"),
     (lambda: tabular_offline.expectiles(REWARD, MU, 0.0), "tau spans 0 to 0, expected between 0 and 1"),
     (lambda: tabular_offline.expectiles(REWARD, MU, 1.0), "between 0 and 1"),
     (lambda: tabular_offline.within_kl(MU, REWARD, -0.1), "budget is -0.1 nats, expected 0 or more"),
     (lambda: tabular_offline.best_of_n(MU, REWARD, 0), "n is 0, expected at least 1 draw"),
     (lambda: models.value_consistent_model(
         expected_counts(SMALL["terminal"], policies(SMALL["terminal"], 1)), policies(SMALL["terminal"], 1),
         np.zeros((1, 3)), 0.9, rank=1, consistency=0.0, rng=np.random.default_rng(0)), "terminal")],
)  # fmt: skip
def test_impossible_settings_are_refused(call, message):
    refuses(message, call)


def test_a_value_beyond_the_support_sets_no_scale():
    found = tabular_offline.within_kl(np.array([[[0.5, 0.5, 0.0]]]), np.array([[[0.0, 1.0, -1e9]]]), 1.0)
    assert_allclose(found, [[[0, 1, 0]]], atol=1e-9)
