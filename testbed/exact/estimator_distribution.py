"""Exact distribution of any registered estimator over n independent logged units, by enumeration of samples.

A `UnitDistribution` lists the possible values of one unit (a round, an episode, a response) and their
probabilities. A sample of n units is then a vector of counts with its multinomial probability, or a tuple if
the estimator depends on the order of its units. Estimators that are means of terms need one unit only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats, Ints
from envs.finite_mdp import FiniteMDP
from envs.tokens.token_tree import TokenTree
from testbed.errors import UserError
from testbed.estimators import estimator
from testbed.estimators.logged_rounds import Logged, logged
from testbed.estimators.trajectory_weights import LoggedEpisodes
from testbed.exact.bandit_moments import MOST_COUNTS, LoggedDistribution, count_dist
from testbed.exact.mdp import enumerate_episodes
from testbed.exact.ratios_dice import state_marginal_ratios
from testbed.exact.response_tree import check_policies, enumerate_leaves

CHUNK = 2**20
"""Largest number of values per field in one call of an estimator."""


@dataclass(frozen=True)
class UnitDistribution:
    """K values of one logged unit: probabilities mass_K, data of shape [K] or [K, T], target's value."""

    mass_K: Floats
    data: Logged | LoggedEpisodes
    value: float

    def __post_init__(self) -> None:
        units = self.data.reward_N if isinstance(self.data, Logged) else self.data.reward_NT[..., 0]
        if units.shape != np.shape(self.mass_K):
            raise UserError(
                f"mass_K has shape {np.shape(self.mass_K)}, the data hold {units.shape} units; "
                "expected one probability for each unit and no leading axes."
            )

    def take(self, index_Rn: Ints) -> Logged | LoggedEpisodes:
        """Return samples of units, given by number, as data sets along leading axes."""
        if isinstance(self.data, Logged):
            return self.data.take(index_Rn)
        given = {f.name: getattr(self.data, f.name) for f in fields(self.data)}
        long = {name for name, value in given.items() if name.endswith("_NT") and value is not None}
        return LoggedEpisodes(**{name: v[index_Rn] if name in long else v for name, v in given.items()})


def bandit_units(
    distribution: LoggedDistribution,
    *,
    reward_SAK: ArrayLike | None = None,
    chance_SAK: ArrayLike | None = None,
    model_SA: ArrayLike | None = None,
    feature_SAD: ArrayLike | None = None,
) -> UnitDistribution:
    """List the rounds of a logged distribution: all contexts, actions and rewards of positive probability.

    Args:
        distribution: contexts, mu, pi, means and variances.
        reward_SAK: values of the reward, with the distribution's mean and variance. Default: the mean itself
            where the variance is 0, and 0 or 1 where it is that of a coin, q (1 - q).
        chance_SAK: their probabilities.
        model_SA: a reward model q(x, a), fixed in advance, for the estimators that need one.
        feature_SAD: features, for `mrdr`.

    Raises UserError if mean and variance do not determine the reward's distribution, or differ from those of
    the given distribution.
    """
    reward_SAK, chance_SAK = _rewards(distribution, reward_SAK, chance_SAK)
    mass_SAK = distribution.context_S[:, None, None] * distribution.mu_SA[..., None] * chance_SAK
    x_K, a_K, r_K = np.nonzero(mass_SAK)
    given: dict[str, ArrayLike] = {}
    if model_SA is not None:
        given["estimated_rewards_by_reg_model"] = np.asarray(model_SA, dtype=np.float64)[x_K]
    if feature_SAD is not None:
        feature_SAD = np.asarray(feature_SAD, dtype=np.float64)
        given["feature"] = feature_SAD[x_K, a_K]
        given["feature_pi"] = np.einsum("xa,xad->xd", distribution.pi_SA, feature_SAD)[x_K]
    data = logged(
        reward=reward_SAK[x_K, a_K, r_K],
        action=a_K,
        action_dist=distribution.pi_SA[x_K],
        behavior_dist=distribution.mu_SA[x_K],
        context=x_K,
        **given,
    )
    return UnitDistribution(mass_SAK[x_K, a_K, r_K], data, distribution.value)


def episode_units(
    world: FiniteMDP, pi_SA: Floats, mu_SA: Floats, q_hat_TSA: Floats | None = None, *, marginal: bool = False
) -> UnitDistribution:
    """The episodes of mu in a small finite MDP, as `enumerate_episodes` lists them.

    q_hat_TSA is a model fixed in advance; marginal adds the exact state marginal ratios.

    Raises UserError for normal noise, and for too many episodes to enumerate.
    """
    table = enumerate_episodes(world, mu_SA)
    data = LoggedEpisodes.tabular(
        state_NT=table.state_NT,
        action_NT=table.action_NT,
        pi_SA=pi_SA,
        mu_SA=mu_SA,
        reward_NT=table.reward_NT,
        mask_NT=table.mask_NT,
        gamma=world.discount,
    )
    if q_hat_TSA is not None:
        data = data.with_model(np.broadcast_to(q_hat_TSA, (world.horizon, *np.shape(pi_SA))))
    if marginal:
        ratio_TS = state_marginal_ratios(world, pi_SA, mu_SA)
        ratio_NT = ratio_TS[np.arange(world.horizon), table.state_NT]
        data = replace(data, state_marginal_importance_weight_NT=np.where(table.mask_NT, ratio_NT, 1.0))
    return UnitDistribution(table.probability_N, data, float(world.value(pi_SA)))


def response_units(tree: TokenTree, mu_SA: Floats, pi_SA: Floats) -> UnitDistribution:
    """List a token tree's responses as episodes rewarded at the last token. UserError if too many."""
    mu, pi = check_policies(tree, mu=mu_SA, pi=pi_SA)
    leaves = enumerate_leaves(tree)
    reward_LT = np.zeros(leaves.mask_LT.shape)
    reward_LT[np.arange(len(reward_LT)), leaves.mask_LT.sum(-1) - 1] = leaves.reward_L
    data = LoggedEpisodes.tabular(
        state_NT=leaves.state_LT,
        action_NT=leaves.action_LT,
        pi_SA=pi,
        mu_SA=mu,
        reward_NT=reward_LT,
        mask_NT=leaves.mask_LT,
    )
    return UnitDistribution(leaves.probability(mu), data, float(tree.value(pi)))


@dataclass(frozen=True)
class EstimatorMoments:
    """Mean and variance of an estimate from n units; value: the target's; samples: the number summed.

    undefined: the probability of samples for which the estimator is undefined.
    """

    mean: float
    variance: float
    value: float
    n: int
    samples: int
    undefined: float = 0.0

    @property
    def bias(self) -> float:
        return self.mean - self.value

    @property
    def mse(self) -> float:
        return self.bias**2 + self.variance


@dataclass(frozen=True)
class EstimatorDistribution:
    """All values of an estimate from n units, ascending, [R], with their probabilities.

    value: the target's; undefined as in EstimatorMoments.
    """

    estimate_R: Floats
    chance_R: Floats
    value: float
    n: int
    undefined: float

    def moments(self) -> EstimatorMoments:
        """Mean and variance."""
        mean = float(self.chance_R @ self.estimate_R)
        variance = float(self.chance_R @ (self.estimate_R - mean) ** 2)
        return EstimatorMoments(mean, variance, self.value, self.n, len(self.chance_R), self.undefined)

    def cdf(self, x: float) -> float:
        """P(estimate <= x)."""
        return float(self.chance_R[: np.searchsorted(self.estimate_R, x, side="right")].sum())

    def quantile(self, level: float) -> float:
        """Smallest value with a cdf of at least `level`, up to rounding. UserError outside [0, 1]."""
        if not 0.0 <= level <= 1.0:
            raise UserError(f"level is {level:g}, expected a probability from 0 to 1.")
        sums_R = np.cumsum(self.chance_R)
        # Sums of chances round: without the slack a level that a value just reaches would pass over it.
        index = int(np.searchsorted(sums_R, level * sums_R[-1] - 1e-12))
        return float(self.estimate_R[min(index, len(sums_R) - 1)])


def exact_moments(
    name: str,
    distribution: UnitDistribution | LoggedDistribution,
    n: int,
    *,
    undefined: float | None = None,
    most: int = MOST_COUNTS,
    **hyper: Any,
) -> EstimatorMoments:
    """Return the exact mean and variance of a registered estimator over n units.

    A linear estimator needs no enumeration: one unit gives the answer for any n, and `undefined` and `most`
    are ignored. Arguments and errors as in `exact_distribution`.
    """
    entry = estimator[name]
    units = distribution if isinstance(distribution, UnitDistribution) else bandit_units(distribution)
    if not entry.promises["linear"]:
        return exact_distribution(name, units, n, undefined=undefined, most=most, **hyper).moments()
    _check(name, units, n)
    one = exact_distribution(name, units, 1, most=len(units.mass_K), **hyper).moments()
    return EstimatorMoments(one.mean, one.variance / n, units.value, n, one.samples)


def exact_distribution(
    name: str,
    distribution: UnitDistribution | LoggedDistribution,
    n: int,
    *,
    undefined: float | None = None,
    most: int = MOST_COUNTS,
    **hyper: Any,
) -> EstimatorDistribution:
    """Return the exact distribution of a registered estimator over n independent units.

    Enumerates all C(n + K - 1, K - 1) counts of K units with their multinomial probability, or all K^n tuples
    for an estimator that is not symmetric in its units (cross-fitting, resampling).

    Args:
        name: a registered estimator.
        distribution: the units, or a LoggedDistribution with rewards determined by means and variances
            (`bandit_units`).
        n: units in a sample.
        undefined: the value for samples that the estimator refuses, such as all weights 0; None raises its
            UserError. Samples are never left out.
        most: largest number of samples to enumerate.
        hyper: hyperparameters of the estimator.

    Raises UserError for too many samples, naming their number, for a distribution of the wrong family, and
    for input that the estimator refuses.
    """
    entry = estimator[name]
    units = distribution if isinstance(distribution, UnitDistribution) else bandit_units(distribution)
    _check(name, units, n)
    function = entry.bind(**hyper)
    estimates, chances, refused = [], [], 0.0
    for index_Rn, chance_R in _samples(units, n, most, entry.promises["symmetric"]):
        value_R = _values(function, units, index_Rn, undefined)
        refused += float(chance_R[np.isnan(value_R)].sum())
        estimates.append(value_R)
        chances.append(chance_R)
    if refused >= 1.0 - 1e-12:
        function(units.take(np.zeros((1, n), dtype=np.int64)))  # raises for missing fields
    estimate_R, chance_R = np.concatenate(estimates), np.concatenate(chances)
    estimate_R = np.where(np.isnan(estimate_R), undefined or 0.0, estimate_R)
    order_R = np.argsort(estimate_R, kind="stable")
    return EstimatorDistribution(estimate_R[order_R], chance_R[order_R], units.value, n, refused)


def _check(name: str, units: UnitDistribution, n: int) -> None:
    family = "bandit" if isinstance(units.data, Logged) else "trajectory"
    wanted = estimator[name].promises["family"]
    if family != wanted:
        maker = "bandit_units" if wanted == "bandit" else "episode_units or response_units"
        raise UserError(
            f"'{name}' is a {wanted} estimator, but the units of the distribution are of a {family}; "
            f"use {maker}."
        )
    if n < 1 or n != int(n):
        raise UserError(f"n is {n}, expected the number of units in a sample, 1 or more.")


def _samples(units: UnitDistribution, n: int, most: int, symmetric: bool) -> Iterator[tuple[Ints, Floats]]:
    """Yield samples as numbers of units [R, n] with their probabilities [R], in chunks."""
    atoms = len(units.mass_K)
    steps = 1 if isinstance(units.data, Logged) else units.data.steps
    size = max(1, CHUNK // (n * steps))
    if symmetric:
        count_RK, chance_R = count_dist(n, units.mass_K, most)
        for start in range(0, len(chance_R), size):
            some_RK = count_RK[start : start + size]
            flat = np.repeat(np.tile(np.arange(atoms), len(some_RK)), some_RK.ravel())
            yield flat.reshape(len(some_RK), n), chance_R[start : start + size]
        return
    if atoms**n > most:
        raise UserError(
            f"{n} draws from {atoms} units make {atoms**n:,} ordered samples, and the estimator depends on "
            f"their order; at most {most:,} are enumerated. Take fewer draws or units."
        )
    for start in range(0, atoms**n, size):
        number_R = np.arange(start, min(start + size, atoms**n))
        index_Rn = number_R[:, None] // atoms ** np.arange(n) % atoms
        yield index_Rn, units.mass_K[index_Rn].prod(-1)


def _values(
    function: Callable[..., Any], units: UnitDistribution, index_Rn: Ints, undefined: float | None
) -> Floats:
    """Return the estimate of every sample, [R]; NaN if the estimator refuses it and `undefined` is given."""
    try:
        value_R = np.asarray(function(units.take(index_Rn)).value, dtype=np.float64)
        if undefined is None and np.isnan(value_R).any():
            raise UserError("The estimate of a sample is NaN; say with `undefined` what it is worth.")
        return value_R
    except UserError:
        if undefined is None:
            raise
        if len(index_Rn) == 1:
            return np.array([np.nan])
    # One refused sample makes its whole chunk fail: halve the chunk to find it.
    half = len(index_Rn) // 2
    halves = (index_Rn[:half], index_Rn[half:])
    return np.concatenate([_values(function, units, each, undefined) for each in halves])


def _rewards(
    distribution: LoggedDistribution, reward_SAK: ArrayLike | None, chance_SAK: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Values and probabilities of the reward, [S, A, K]."""
    mean_SA, variance_SA = distribution.mean_SA, distribution.variance_SA
    if (reward_SAK is None) != (chance_SAK is None):
        raise UserError("reward_SAK and chance_SAK belong together; one of them is missing.")
    if reward_SAK is None or chance_SAK is None:
        sure_SA = variance_SA == 0
        coin_SA = (np.abs(variance_SA - mean_SA * (1 - mean_SA)) < 1e-12) & (mean_SA >= 0) & (mean_SA <= 1)
        if not (sure_SA | coin_SA).all():
            context, action = (int(i) for i in np.argwhere(~(sure_SA | coin_SA))[0])
            raise UserError(
                f"Mean {mean_SA[context, action]:g} and variance {variance_SA[context, action]:g} of "
                f"action {action} in context {context} do not determine the distribution of the reward; "
                "give reward_SAK and chance_SAK to bandit_units."
            )
        reward = np.stack([np.where(sure_SA, mean_SA, 1.0), np.zeros_like(mean_SA)], axis=-1)
        chance = np.stack([np.where(sure_SA, 1.0, mean_SA), np.where(sure_SA, 0.0, 1 - mean_SA)], axis=-1)
        return reward, chance
    reward, chance = (np.asarray(each, dtype=np.float64) for each in (reward_SAK, chance_SAK))
    if reward.shape != chance.shape or reward.shape[:-1] != mean_SA.shape:
        raise UserError(
            f"reward_SAK has shape {reward.shape}, chance_SAK {chance.shape}; expected {mean_SA.shape}, K."
        )
    found_SA = (chance * reward).sum(-1)
    spread_SA = (chance * reward**2).sum(-1) - found_SA**2
    fits = np.allclose(found_SA, mean_SA, atol=1e-9) and np.allclose(spread_SA, variance_SA, atol=1e-9)
    if (chance < 0).any() or not np.allclose(chance.sum(-1), 1.0, atol=1e-9) or not fits:
        raise UserError("reward_SAK and chance_SAK do not have the LoggedDistribution's means and variances.")
    return reward, chance
