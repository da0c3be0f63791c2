"""Logged bandits, preference sets and trajectory preferences, by enumeration, scipy and the exact bandit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, special, stats
from support.small_mdps import policies

from analysis.experiments.offline import logged_policies
from envs.logged_bandit import logged_bandit
from testbed.errors import UserError
from testbed.offline import preferences

KEYS = np.arange(3, dtype=np.uint64)
WORLD = logged_bandit(contexts=2, arms=3)
LOG = WORLD.log(KEYS, 400)
PI = policies(WORLD, 3, seed=1)


def test_a_score_table_is_the_estimator_of_every_policy():
    weight = PI[np.arange(3)[:, None], LOG.context_RN, LOG.action_RN]
    model = np.random.default_rng(0).random((3, 2, 3))
    row = np.arange(3)[:, None], LOG.context_RN, LOG.action_RN
    expected = (PI * model).sum(-1)[np.arange(3)[:, None], LOG.context_RN]
    wanted = {
        "ips": weight / LOG.propensity_RN * LOG.reward_RN,
        "smooth": weight / LOG.propensity_RN**0.6 * LOG.reward_RN,
        "dr": expected + weight / LOG.propensity_RN * (LOG.reward_RN - model[row]),
        "twice": weight / LOG.propensity_RN * 2 * LOG.reward_RN,
    }
    tables = {
        "ips": logged_policies.score_table(LOG, 2, 3),
        "smooth": logged_policies.score_table(LOG, 2, 3, alpha=0.6),
        "dr": logged_policies.score_table(LOG, 2, 3, model_RSA=model),
        "twice": logged_policies.score_table(LOG, 2, 3, reward_RN=2 * LOG.reward_RN),
    }
    for name, table in tables.items():
        assert_allclose((PI * table).sum((-1, -2)), wanted[name].mean(-1), atol=1e-12, err_msg=name)


def test_the_model_shrinks_to_the_mean_reward():
    model = logged_policies.mean_model(LOG, 2, 3)
    here = (LOG.context_RN[0] == 1) & (LOG.action_RN[0] == 2)
    mean = LOG.reward_RN[0].mean()
    assert model[0, 1, 2] == pytest.approx((LOG.reward_RN[0][here].sum() + mean) / (here.sum() + 1))


# -- preferences ------------------------------------------------------------------------------------

REWARD = np.array([[0.0, 1.0, -0.5], [0.3, 0.0, 2.0]])
REF = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
TABLE = np.eye(6).reshape(2, 3, 6)
CONTEXT = np.array([0.5, 0.5])
CHANCE = preferences.bradley_terry(REWARD)
EVEN = preferences.pair_dist(CONTEXT, np.full((1, 2, 3), 1 / 3), np.full((1, 2, 3), 1 / 3))


def test_with_every_pair_dpo_ends_at_the_tilt_of_the_true_reward():
    theta, history = preferences.train_on_pairs(
        TABLE, REF, (EVEN, CHANCE[None]), cells=1, steps=600, rate=50.0, beta=0.5
    )
    assert_allclose(np.exp(history[-1])[0], preferences.tilt(REF, REWARD, 0.5), atol=1e-6)
    assert_allclose(preferences.log_policy(theta, TABLE, REF), history[-1])
    assert_allclose(np.exp(history[0])[0], REF)
    score = preferences.fit_reward(EVEN * 1e6, np.broadcast_to(CHANCE, EVEN.shape), TABLE, 1e-3)
    assert_allclose(np.diff(score[0]), np.diff(REWARD), atol=1e-5)
    few = np.concatenate([EVEN, EVEN * (np.arange(2) > 0)[:, None, None], EVEN * (np.arange(3) > 0)])
    label = np.broadcast_to(CHANCE, few.shape)
    together = preferences.fit_reward(few, label, TABLE, 1e-3)
    for r in range(3):  # a pair that one cell has not seen counts for those that have
        alone = preferences.fit_reward(few[r : r + 1], label[:1], TABLE, 1e-3)[0]
        assert_allclose(together[r], alone, atol=1e-8)


@pytest.mark.parametrize("kind", ["dpo", "ipo"])
def test_pair_gradients_are_those_of_their_losses(kind):
    rng = np.random.default_rng(0)
    feature, theta, label = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4)), rng.random((2, 2, 3, 3))
    weight = rng.integers(0, 5, (2, 2, 3, 3)).astype(float)
    _, slope = preferences.pair_gradient(theta, feature, weight, label, beta=[0.5, 2.0], kind=kind)

    def again(flat, r):
        each = theta.copy()
        each[r] = flat
        return preferences.pair_gradient(each, feature, weight, label, beta=[0.5, 2.0], kind=kind)[0][r]

    for r in range(2):
        assert_allclose(slope[r], optimize.approx_fprime(theta[r], again, 1e-7, r), atol=1e-5)
    # By hand, from the ratio to the reference.
    log_pi = preferences.log_policy(theta, feature, REF) - np.log(REF)
    h = 0.5 * (log_pi[0, 1, 2] - log_pi[0, 1, 0])
    assert preferences.margin(theta, feature, [0.5, 2.0])[0, 1, 2, 0] == pytest.approx(h)
    one = np.zeros((2, 2, 3, 3))
    one[0, 1, 2, 0] = 3.0
    got = preferences.pair_gradient(theta, feature, one, label, beta=[0.5, 2.0], kind=kind)[0][0]
    y = label[0, 1, 2, 0]
    by_hand = {
        "dpo": -y * np.log(special.expit(h)) - (1 - y) * np.log(special.expit(-h)),
        "ipo": (h / 0.5 - (2 * y - 1) / (2 * 0.5)) ** 2,
    }
    assert got == pytest.approx(by_hand[kind])


def test_pairs_are_drawn_in_proportion_to_their_law():
    law = preferences.pair_dist(CONTEXT, REF[None], np.array([[[1.0, 0, 0], [0, 0, 1.0]]]))
    assert law.sum() == pytest.approx(1)
    assert law[0, 1, 0].tolist() == pytest.approx([0, 0, 0.3])
    drawn = preferences.draw_pairs(law, 50_000, np.random.default_rng(0))
    assert drawn.sum() == 50_000
    assert np.abs(drawn / 50_000 - law).max() < 0.01


def test_a_selection_by_margin_keeps_the_largest_and_splits_the_last():
    weight = np.zeros((1, 1, 2, 2))
    weight[0, 0] = [[1, 2], [3, 4]]
    margin = np.array([[[[0.0, 3.0], [2.0, 1.0]]]])
    assert preferences.select_by_margin(weight, margin, 0.3)[0, 0].tolist() == [[0, 2], [1, 0]]
    assert (preferences.select_by_margin(weight, margin, 1.0) == weight).all()


def test_a_learner_sees_the_policies_it_has_been_and_can_refresh_its_pairs():
    asked = []

    def draw(step, history):
        asked.append((step, len(history)))
        return (EVEN, CHANCE[None]) if step % 3 == 0 else None

    _, history = preferences.train_on_pairs(TABLE, REF, draw, cells=1, steps=7, rate=1.0, beta=1.0)
    assert asked == [(s, s + 1) for s in range(7)]
    assert len(history) == 8
    lost = [preferences.regret(CONTEXT, REWARD, np.exp(h))[0] for h in history]
    assert (np.diff(lost) < 0).all()
    _, fixed = preferences.train_on_pairs(TABLE, REF, (EVEN, CHANCE[None]), steps=7, rate=1.0, beta=1.0)
    np.testing.assert_array_equal(fixed[-1], history[-1])
    with pytest.raises(UserError, match="first set"):
        preferences.train_on_pairs(TABLE, REF, lambda *_: None, cells=1, steps=1, rate=1.0, beta=1.0)


def test_tables_of_preferences_are_what_their_formulas_say():
    assert_allclose(CHANCE[0, 1], [special.expit(1.0), 0.5, special.expit(1.5)])
    mass = np.array([0.6 * np.e**0.6, 0.3, 0.1 * np.e**4])
    assert_allclose(preferences.tilt(REF, REWARD, 0.5)[1], mass / mass.sum())
    assert_allclose(preferences.tilt(REF[None], REWARD[None], 0.5)[0, 1], mass / mass.sum())
    assert preferences.tilt(np.array([[1.0, 0.0]]), np.array([[0.0, 9.0]]), 1.0).tolist() == [[1, 0]]
    pi = np.array([[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    lost = preferences.regret(np.array([0.25, 0.75]), REWARD, pi)
    assert_allclose(lost, [0.25 * 0.5 + 0.75, 0.0], atol=1e-12)
    rng = np.random.default_rng(0)
    feature, theta = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4))
    found = preferences.log_policy(theta, feature, np.array([[0.2, 0.8, 0.0], [0.6, 0.3, 0.1]]))
    mass = np.array([0.6, 0.3, 0.1]) * np.exp(feature[1] @ theta[0])
    assert_allclose(found[0, 1], np.log(mass / mass.sum()))
    assert found[1, 0, 2] == -np.inf
    drawn = preferences.draw_pairs(EVEN * 7, 5, np.random.default_rng(3))
    law = (EVEN * 7).reshape(1, -1)
    again = np.random.default_rng(3).multinomial(5, law / law.sum()).reshape(EVEN.shape)
    assert (drawn == again).all()


def test_steps_on_pairs_are_gradient_steps_with_a_rate_per_cell():
    feature, rate, beta = np.random.default_rng(0).normal(size=(2, 3, 4)), [0.5, 2.0], [0.3, 1.0]
    pairs = np.repeat(EVEN, 2, 0), np.random.default_rng(1).random((2, 2, 3, 3))
    theta, history = preferences.train_on_pairs(
        feature, REF, pairs, cells=2, steps=2, rate=rate, beta=beta, kind="ipo"
    )
    at, wanted = np.zeros((2, 4)), []
    for _ in range(2):
        wanted.append(at)
        slope = preferences.pair_gradient(at, feature, *pairs, beta=beta, kind="ipo")[1]
        at = at - np.array(rate)[:, None] * slope
    assert_allclose(theta, at)
    for found, each in zip(history, [*wanted, at], strict=True):
        assert_allclose(found, preferences.log_policy(each, feature, REF))


@pytest.mark.parametrize(
    ("votes", "rule", "labels"),
    [(1, "hard", [0, 1]), (2, "hard", [0, 0.5, 1]), (3, "hard", [0, 0, 1, 1]), (2, "share", [0, 0.5, 1]),
     (2, "mmse", [0.5 / 3, 0.5, 2.5 / 3])],
)  # fmt: skip
def test_labels_of_votes_are_the_mean_over_pairs_of_their_rule(votes, rule, labels):
    weight = np.arange(18.0).reshape(1, 2, 3, 3)
    found = preferences.vote_labels(weight, CHANCE, votes, rule, np.random.default_rng(7), prior=0.5)
    law = stats.binom.pmf(np.arange(votes + 1), votes, CHANCE[..., None])
    drawn = np.random.default_rng(7).multinomial(weight.astype(int), law[None] / law.sum(-1, keepdims=True))
    for place, n in np.ndenumerate(weight):
        assert found[place] == pytest.approx(drawn[place] @ labels / n if n else 0.5)
    even = preferences.vote_labels(np.ones_like(weight), CHANCE, 2, "mmse", np.random.default_rng(7))
    assert set(even.ravel()) == {0.25, 0.5, 0.75}  # prior 1: (v + 1) / 4


def test_newton_finds_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(0)
    phi, y, w = rng.normal(size=(2, 30, 3)), rng.random((2, 30)), rng.random((2, 30))
    got = preferences.logistic(phi, y, w, 0.3)
    for r in range(2):

        def loss(t, r=r):
            return (w[r] * (np.logaddexp(0, phi[r] @ t) - y[r] * (phi[r] @ t))).sum() + 0.15 * t @ t

        assert_allclose(got[r], optimize.minimize(loss, np.zeros(3), tol=1e-12).x, atol=1e-5)
    big = preferences.logistic(100 * phi, (y > 0.5) * 1.0, w * 100, 1e-3)
    assert np.isfinite(big).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: logged_policies.score_table(LOG, 2, 3, alpha=1.5), "alpha"),
     (lambda: preferences.vote_labels(EVEN, CHANCE, 3, "soft", np.random.default_rng(0)),
      "rule 'soft', votes 3"),
     (lambda: preferences.vote_labels(EVEN, CHANCE, 0, "hard", np.random.default_rng(0)), "votes 0"),
     (lambda: preferences.vote_labels(EVEN, CHANCE, 1, "mmse", np.random.default_rng(0), 0.0), "prior 0"),
     (lambda: preferences.vote_labels(EVEN, CHANCE, 1, "hard", np.random.default_rng(0)), "take counts"),
     (lambda: preferences.select_by_margin(EVEN, EVEN, 1.1), "share is 1.1, expected 0 < share <= 1"),
     (lambda: preferences.pair_gradient(np.zeros((1, 6)), TABLE, EVEN, EVEN, beta=1.0, kind="kto"),
      "Unknown kind"),
     (lambda: preferences.select_by_margin(EVEN, EVEN, 0.0), "share"),
     (lambda: preferences.logistic(np.zeros((1, 1, 1)), np.zeros((1, 1)), np.ones((1, 1)), 0.0), "ridge")],
)  # fmt: skip
def test_impossible_settings_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
