"""Bandits: formulas for any number of samples agree with enumeration of all samples.

Expectiles of one distribution: ties and single values included, and equal to those of many at once.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from support.embedded_rounds import EmbeddedDistribution
from support.refusals import refuses

from testbed.errors import UserError
from testbed.exact import bandit_moments
from testbed.exact.value_learning import expectile
from testbed.offline.tabular_offline import expectiles

MASS, WEIGHT, REWARD = np.array([0.75, 0.25]), np.array([1 / 3, 3.0]), np.array([0.0, 1.0])


def random_law(seed=0):
    """Three contexts, four actions, rewards 0 and 1: "random bandit" of docs/theory/closed-form-worlds.md."""
    rng = np.random.default_rng(seed)
    mean = rng.random((3, 4))
    return bandit_moments.LoggedDistribution(
        rng.dirichlet(np.ones(3)), *rng.dirichlet(np.full(4, 2.0), size=(2, 3)), mean, mean * (1 - mean)
    )


def atoms(law):
    """Probability and (context, action, reward) of every logged round."""
    for x, a, r in product(range(3), range(4), (0.0, 1.0)):
        chance = law.mean_SA[x, a] if r else 1 - law.mean_SA[x, a]
        yield law.context_S[x] * law.mu_SA[x, a] * chance, x, a, r


def weight_maps(law):
    w = law.weight_SA
    return {
        "ips": w, "clipped": np.minimum(w, 1.5), "propensity-clipped": law.pi_SA / np.maximum(law.mu_SA, 0.2),
        "smoothed": law.pi_SA / law.mu_SA**0.6, "power": w**0.6, "ix": law.pi_SA / (law.mu_SA + 0.1),
        "subgaussian": w / (0.7 + 0.3 * w), "switch": w * (w <= 1.2), "shrunk": 2 * w / (w**2 + 2),
        "nothing": 0 * w,
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(weight_maps(random_law())))
@pytest.mark.parametrize("with_model", [False, True])
def test_bias_and_variance_of_a_linear_weight_are_those_over_all_rounds(name, with_model):
    law = random_law()
    weight = weight_maps(law)[name]
    model = np.random.default_rng(5).random((3, 4)) if with_model else None
    used = np.zeros((3, 4)) if model is None else model
    value = [(p, law.pi_SA[x] @ used[x] + weight[x, a] * (r - used[x, a])) for p, x, a, r in atoms(law)]
    mean = sum(p * v for p, v in value)
    found = bandit_moments.linear_weight(law, weight, model)
    assert found.bias == pytest.approx(mean - law.value, abs=1e-13)
    assert found.n_variance == pytest.approx(sum(p * v**2 for p, v in value) - mean**2)
    assert found.mse(7) == pytest.approx(found.bias**2 + found.n_variance / 7)


def test_count_vectors_are_all_of_them_once():
    counts = bandit_moments.count_vectors(5, 3)
    assert sorted(map(tuple, counts)) == sorted(c for c in product(range(6), repeat=3) if sum(c) == 5)
    assert len(bandit_moments.count_vectors(50, 4)) == bandit_moments.number_of_counts(50, 4) == 23_426
    _, chance = bandit_moments.count_dist(9, np.array([0.2, 0.0, 0.8]))
    assert chance.sum() == pytest.approx(1.0)


def test_counting_gives_what_summing_over_ordered_samples_gives():
    mass, weight, reward = np.array([0.5, 0.3, 0.2]), np.array([0.4, 1.0, 2.5]), np.array([1.0, -1.0, 2.0])
    values, chances = [], []
    for draws in product(range(3), repeat=4):
        drawn = list(draws)
        values.append(weight[drawn] @ reward[drawn] / weight[drawn].sum())
        chances.append(mass[drawn].prod())
    found = bandit_moments.exact_moments(4, mass, bandit_moments.self_normalized(weight, reward))
    assert found.mean == pytest.approx(np.dot(chances, values))
    assert found.variance == pytest.approx(np.dot(chances, np.square(values)) - found.mean**2)


def test_enumeration_refuses_what_is_too_large_undefined_or_no_law():
    refuses(r"count vectors \(.* MiB\); at most 1,000", bandit_moments.count_vectors, 50, 4, most=1000)
    with pytest.raises(UserError, match="not finite for counts"):
        bandit_moments.exact_moments(2, MASS, bandit_moments.self_normalized(np.array([0.0, 1.0]), REWARD))
    refuses("sum to 0.9", bandit_moments.count_dist, 2, np.array([0.5, 0.4]))
    refuses("must be at least 1", bandit_moments.count_vectors, 0, 2)
    with pytest.raises(UserError, match="never takes action 1 in context 0"):
        bandit_moments.LoggedDistribution(
            np.ones(1), np.array([[1.0, 0.0]]), MASS[None], REWARD[None], np.zeros((1, 2))
        )


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("context_S", lambda x: x * 2, "context_S holds no probabilities"),
        ("mu_SA", lambda x: x + 0.1, "mu_SA holds no probabilities"),
        ("pi_SA", lambda x: x - 0.5, "pi_SA holds no probabilities"),
        ("pi_SA", lambda x: x[:1], r"pi_SA has shape \(1, 4\), context_S \(3,\)"),
        ("context_S", lambda x: x[:1], r"mu_SA has shape \(3, 4\), context_S \(1,\)"),
        ("mean_SA", lambda x: x * np.nan, "expected finite means"),
        ("variance_SA", lambda x: -x, "variances >= 0"),
    ],
)
def test_a_logged_distribution_that_is_none_is_refused(name, change, told):
    law = random_law()
    refuses(told, replace, law, **{name: change(getattr(law, name))})
    listed = replace(law, **{name: getattr(law, name).tolist()})
    assert (getattr(listed, name) == getattr(law, name)).all()


def embedded(direct, seed=3):
    rng = np.random.default_rng(seed)
    mean = rng.random((3, 4, 2)) if direct else np.repeat(rng.random((3, 1, 2)), 4, axis=1)
    return EmbeddedDistribution(
        context_S=rng.dirichlet(np.ones(3)),
        mu_SA=rng.dirichlet(np.full(4, 2.0), size=3),
        pi_SA=rng.dirichlet(np.full(4, 2.0), size=3),
        embedding_SAE=rng.dirichlet(np.ones(2), size=(3, 4)),
        mean_SAE=mean,
        square_SAE=mean,  # rewards 0 and 1
    )


def test_marginalized_weights_have_the_pairwise_bias_and_none_without_direct_effect():
    law = embedded(direct=True)
    assert law.mips().bias == pytest.approx(law.mips_bias_formula())
    assert abs(law.mips().bias) > 1e-3
    assert law.ips().bias == pytest.approx(0.0, abs=1e-14)
    assert embedded(direct=False).mips().bias == pytest.approx(0.0, abs=1e-14)


def test_marginalized_weights_gain_the_spread_of_the_weight_within_an_embedding():
    law = embedded(direct=False)
    gain = law.ips().n_variance - law.mips().n_variance
    assert gain == pytest.approx(law.mips_gain_formula())
    assert gain > 0.01


def test_an_action_that_neither_policy_takes_changes_nothing():
    law = embedded(direct=True)
    padded = EmbeddedDistribution(
        law.context_S, *(np.pad(policy_SA, ((0, 0), (0, 1))) for policy_SA in (law.mu_SA, law.pi_SA)),
        *(np.pad(each_SAE, ((0, 0), (0, 1), (0, 0)), mode="edge")
          for each_SAE in (law.embedding_SAE, law.mean_SAE, law.square_SAE)),
    )  # fmt: skip
    assert padded.ips().n_variance == pytest.approx(law.ips().n_variance, rel=1e-12)
    assert padded.mips_bias_formula() == pytest.approx(law.mips_bias_formula(), rel=1e-12)
    assert padded.mips_gain_formula() == pytest.approx(law.mips_gain_formula(), rel=1e-12)


def test_an_action_of_pi_alone_has_an_embedding_but_no_weight():
    law = EmbeddedDistribution(
        np.ones(1), np.array([[0.5, 0.5, 0.0]]), np.array([[0.2, 0.3, 0.5]]), np.full((1, 3, 2), 0.5),
        np.ones((1, 3, 2)), np.ones((1, 3, 2)),
    )  # fmt: skip
    assert law.mips().bias == pytest.approx(0.0, abs=1e-15)
    for quantity in (law.ips, law.mips_bias_formula, law.mips_gain_formula):
        refuses("never takes action 2 in context 0", quantity)


@pytest.mark.parametrize("tau", [0.03, 0.5, 0.9])
@pytest.mark.parametrize(
    ("values", "masses"),
    [([2.0], [1.0]), ([1.0, 1.0], [0.5, 0.5]), ([0.3, 0.3, 0.7], [0.2, 0.3, 0.5]), ([0.1] * 7, [1 / 7] * 7)],
)
def test_one_value_and_ties_have_an_expectile(values, masses, tau):
    found = expectile(np.array(values), np.array(masses), tau)
    assert found == pytest.approx(float(expectiles(np.array(values), np.array(masses), tau)), rel=1e-12)
    if len(set(values)) == 1:
        assert found == pytest.approx(values[0])


def test_the_expectile_balances_what_lies_above_and_below():
    rng = np.random.default_rng(0)
    for _ in range(500):
        values = rng.choice([0.1, 0.2, 0.3, 0.7], size=rng.integers(1, 6))
        masses, tau = rng.dirichlet(np.ones(values.size)), rng.uniform(0.02, 0.98)
        m = expectile(values, masses, tau)
        above, below = masses @ np.clip(values - m, 0, None), masses @ np.clip(m - values, 0, None)
        assert tau * above == pytest.approx((1 - tau) * below, abs=1e-12)
