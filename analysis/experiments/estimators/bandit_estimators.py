"""Claims about bandit estimators, decided by running them on every possible data set of a few rounds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from analysis.lab import Evidence, Experiment, Part, exact
from envs.arrays import Floats
from testbed.estimators import Estimate, estimator
from testbed.estimators.bandit import Logged, logged
from testbed.estimators.embedding import embedding_log_weight
from testbed.exact.bandit import (
    EmbeddedDistribution,
    LoggedDistribution,
    exact_moments,
    linear_weight,
    self_normalized,
)

EXPERIMENT = Experiment(
    "bandit-estimators",
    question="What are bias and variance of every bandit estimator, over all data sets of a few rounds?",
    source="papers of the estimators, with each claim",
    systems={
        "IV-OPE": Part(
            "that the instrument identifies one confounded step on its exact law; no samples, no MDP",
            claims=("instrument-identifies-under-confounding",),
        ),
    },
)

TOLERANCE = 1e-11
WORLDS = range(5)
SNIPS = "Swaminathan & Joachims (2015), The self-normalized estimator for counterfactual learning"


@dataclass(frozen=True)
class World:
    """A contextual bandit of finitely many atoms (x, a, r), logging and target policy, a reward model."""

    law: LoggedDistribution
    context_K: NDArray[np.int64]
    action_K: NDArray[np.int64]
    reward_K: Floats
    mass_K: Floats
    model_SA: Floats

    def data(self, n: int, shift: float = 0.0) -> tuple[Logged, Floats]:
        """Return every data set of n rounds [C, n], K^n of them, and their probabilities [C]."""
        index_RN = np.indices((len(self.mass_K),) * n).reshape(n, -1).T
        context_RN, action_RN = self.context_K[index_RN], self.action_K[index_RN]
        found = logged(
            reward=self.reward_K[index_RN] + shift,
            action=action_RN,
            behavior_dist=self.law.mu_SA[context_RN],
            action_dist=self.law.pi_SA[context_RN],
            estimated_rewards_by_reg_model=self.model_SA[context_RN],
        )
        return found, self.mass_K[index_RN].prod(-1)

    def atom_weight_K(self) -> Floats:
        """pi/mu of each atom."""
        return self.law.weight_SA[self.context_K, self.action_K]


def two_arms() -> World:
    """mu = (3/4, 1/4), pi = (1/4, 3/4), reward = arm; V = 3/4."""
    row = np.array([[0.0, 1.0]])
    law = LoggedDistribution(np.ones(1), np.array([[0.75, 0.25]]), np.array([[0.25, 0.75]]), row, 0 * row)
    arm_K = np.array([0, 1])
    return World(law, 0 * arm_K, arm_K, arm_K.astype(float), law.mu_SA[0], 0.5 + 0 * row)


def random_world(seed: int, *, sign: float = 1.0, on_policy: bool = False) -> World:
    """3 contexts, 4 actions, two-point rewards in [0, 1] times `sign`: 24 atoms; a model unlike the truth."""
    rng = np.random.default_rng([seed, 6])
    context_S = rng.dirichlet(np.full(3, 3.0))
    mu_SA, pi_SA = rng.dirichlet(np.ones(4), size=(2, 3))
    mu_SA = 0.9 * mu_SA + 0.1 / 4
    reward_SAK, chance_SA = sign * rng.random((3, 4, 2)), rng.random((3, 4))
    mass_SAK = np.stack([1 - chance_SA, chance_SA], axis=-1)
    mean_SA = (mass_SAK * reward_SAK).sum(-1)
    variance_SA = (mass_SAK * reward_SAK**2).sum(-1) - mean_SA**2
    law = LoggedDistribution(context_S, mu_SA, mu_SA if on_policy else pi_SA, mean_SA, variance_SA)
    context_K, action_K, _ = np.indices((3, 4, 2)).reshape(3, -1)
    joint_SAK = context_S[:, None, None] * mu_SA[..., None] * mass_SAK
    return World(law, context_K, action_K, reward_SAK.ravel(), joint_SAK.ravel(), rng.random((3, 4)))


def moments(world: World, n: int, name: str, **hyper: float) -> tuple[float, float]:
    """Return mean and variance of an estimator over all data sets of n rounds."""
    data, mass_R = world.data(n)
    return _moments(estimator[name].bind(**hyper)(data), mass_R)


def _moments(found: Estimate, mass_R: Floats) -> tuple[float, float]:
    mean = float(mass_R @ found.value)
    return mean, float(mass_R @ (found.value - mean) ** 2)


WeightMap = Callable[[Floats, Floats], Floats]
FAMILY: tuple[tuple[str, dict[str, float], WeightMap], ...] = (
    ("ips", {}, lambda w, _: w),
    ("clipped_ips", {"lambda_": 1.5}, lambda w, _: np.where(w > 1.5, 1.5, w)),
    ("propensity_clipped_ips", {"tau": 0.3}, lambda w, mu: np.where(mu > 0.3, w, w * mu / 0.3)),
    ("exponential_smoothing", {"alpha": 0.7}, lambda w, mu: w * mu**0.3),
    ("power_of_ratio", {"alpha": 0.6}, lambda w, _: w**0.6),
    ("ix", {"gamma": 0.1}, lambda w, mu: w / (1 + 0.1 / mu)),
    ("subgaussian_ips", {"lambda_": 0.3}, lambda w, _: w / (0.7 + 0.3 * w)),
    ("dm", {}, lambda w, _: 0 * w),
    ("dr", {}, lambda w, _: w),
    ("switch_dr", {"lambda_": 1.2}, lambda w, _: w * (w <= 1.2)),
    ("dr_ps", {"lambda_": 1.2}, lambda w, _: np.where(w > 1.2, 1.2, w)),
    ("dr_os", {"lambda_": 2.0}, lambda w, _: 2 * w / (w**2 + 2)),
    ("sg_dr", {"lambda_": 0.4}, lambda w, _: w / (0.6 + 0.4 * w)),
)
"""Linear estimators with a hyperparameter that bites, and their weight as the papers write it."""


@EXPERIMENT.claim(
    source="evaluation of V = E[q(x, pi) + what (r - q)] term by term; each estimator's own paper for what"
)
def bandit_linear_family_moments() -> Evidence:
    """IPS, its clipped and smoothed forms, DM, DR, SWITCH and shrunken DR have bias E_mu[(what - w)(q -
    qhat)] and the linear family's variance, at every sample size.
    """
    gaps = []
    for world in map(random_world, WORLDS):
        for name, hyper, weight in FAMILY:
            reads = "q_N" in estimator[name].promises["needs"]
            model_SA = world.model_SA if reads else None
            wanted = linear_weight(world.law, weight(world.law.weight_SA, world.law.mu_SA), model_SA)
            for n in (1, 2):
                mean, variance = moments(world, n, name, **hyper)
                gaps += [mean - world.law.value - wanted.bias, variance - wanted.n_variance / n]
    return exact(np.abs(gaps), TOLERANCE, "largest gap of a mean or variance, 13 estimators in 5 worlds")


@EXPERIMENT.claim(source="w = 1 where pi = mu")
def bandit_on_policy_reduction() -> Evidence:
    """With pi = mu, IPS, SNIPS, clipped, power, subgaussian and LSE at 0 are the mean reward on every data
    set; propensity clipping, exponential smoothing and IX are not.
    """
    gaps = []
    same = [("ips", {}), ("snips", {}), ("clipped_ips", {"lambda_": 1.0}), ("power_of_ratio", {"alpha": 0.5})]
    same += [("subgaussian_ips", {"lambda_": 0.5}), ("lse", {"lambda_": 0.0})]
    other = [("propensity_clipped_ips", {"tau": 0.5}), ("exponential_smoothing", {"alpha": 0.5})]
    other += [("ix", {"gamma": 0.1})]
    for seed in WORLDS:
        data, _ = random_world(seed, on_policy=True).data(2)
        mean_R = data.reward_N.mean(-1)
        gaps += [float(np.abs(estimator[name].bind(**h)(data).value - mean_R).max()) for name, h in same]
        gaps += [
            float(np.abs(estimator[name].bind(**h)(data).value - mean_R).max() < 1e-3) for name, h in other
        ]
    return exact(gaps, TOLERANCE, "largest distance to the mean reward over all data sets of 2 rounds")


@EXPERIMENT.claim(source=SNIPS)
def snips_one_round_is_behavior_value() -> Evidence:
    """With one round E[SNIPS] is the logging policy's value; with mu = (3/4, 1/4), pi = (1/4, 3/4), r = arm
    it is 1/4, 2/5, 413/836, 311/560, 233123/390572 for n = 1 to 5, on its way to 3/4.
    """
    means = ("1/4", "2/5", "413/836", "311/560", "233123/390572")
    gaps = [
        moments(two_arms(), n, "snips")[0] - float(Fraction(mean)) for n, mean in enumerate(means, start=1)
    ]
    gaps += [moments(two_arms(), n, "snips")[1] - v for n, v in ((1, 3 / 16), (2, 0.20625))]
    for world in map(random_world, WORLDS):
        gaps.append(moments(world, 1, "snips")[0] - float(world.mass_K @ world.reward_K))
    return exact(np.abs(gaps), TOLERANCE, "largest gap of a mean or variance over all data sets")


@EXPERIMENT.claim(source=SNIPS)
def self_normalized_shift_equivariance() -> Evidence:
    """Rewards raised by c raise SNIPS and SN-DR by c, on every data set, and IPS by c mean(w); equal rewards
    are the SNIPS estimate.

    Return the gaps over all data sets of two rounds in five worlds; c = 10.
    """
    gaps: list[float] = []
    for world in map(random_world, WORLDS):
        (plain, _), (raised, _) = world.data(2), world.data(2, shift=10.0)
        for name, by in (("snips", 10.0), ("sn_dr", 10.0), ("ips", 10.0 * plain.weight_N.mean(-1))):
            rise_R = estimator[name].function(raised).value - estimator[name].function(plain).value
            gaps.append(float(np.abs(rise_R - by).max()))
        level = replace(plain, reward_N=np.full_like(plain.reward_N, 0.3))
        gaps.append(float(np.abs(estimator["snips"].function(level).value - 0.3).max()))
    return exact(gaps, 1e-9, "largest gap over all data sets")


DELTA_SEED = 18
"""A random world in which the delta method errs in sign; the claim is about existence."""


@EXPERIMENT.claim(source="delta method for ratios, against enumeration", kind="enumerated")
def snips_delta_bias_wrong_sign() -> Evidence:
    """The delta method's bias of SNIPS, -(1/n) E_mu[w^2 (r - V)], can have the wrong sign, at n = 1, 2, 3 and
    still at n = 4, where the bias is above 0.005.
    """
    world = random_world(DELTA_SEED)
    w_K, r_K = world.atom_weight_K(), world.reward_K
    delta = -float(world.mass_K @ (w_K**2 * (r_K - world.law.value)))
    biases = [moments(world, n, "snips")[0] - world.law.value for n in (1, 2, 3)]
    biases.append(exact_moments(4, world.mass_K, self_normalized(w_K, r_K)).mean - world.law.value)
    listed = ", ".join(f"{bias:+.4f} against {delta / n:+.4f}" for n, bias in enumerate(biases, start=1))
    return exact([0.005 + b * np.sign(delta) for b in biases], 0.0, f"exact against delta: {listed}")


@EXPERIMENT.claim(
    source="Sakhi et al. (2024), Logarithmic smoothing; E[1 + lambda w r] = 1 + lambda V, round by round"
)
def log_smoothing_is_an_e_value() -> Evidence:
    """For rewards >= 0, E exp(lambda n LS) = (1 + lambda V)^n: 121/64 for two arms, lambda = 1/2, n = 2."""
    gaps = []
    for world, sizes in ((two_arms(), (1, 2, 3, 8)), *((random_world(seed), (1, 2, 3)) for seed in WORLDS)):
        for n in sizes:
            data, mass_R = world.data(n)
            found = estimator["log_smoothing"].bind(lambda_=0.5)(data)
            mean = float(mass_R @ np.exp(0.5 * n * found.value))
            gaps.append(mean / (1 + 0.5 * world.law.value) ** n - 1)
            if world.law.mu_SA.size == 2 and n == 2:
                gaps.append(mean - 121 / 64)
    return exact(np.abs(gaps), TOLERANCE, "largest relative gap")


@EXPERIMENT.claim(source="Sakhi et al. (2024); the sign for costs from the same inequality with -r")
def log_smoothing_pulls_towards_zero() -> Evidence:
    """With S = E[(w r)^2 / (1 + lambda |w r|)] log smoothing's bias is in [-lambda S, 0] for rewards, in [0,
    lambda S] for costs, and n Var <= S for both; at lambda = 500 the bias has nine tenths of its bound or
    more.
    """
    excess = []
    for sign in (1.0, -1.0):
        for lam in (0.05, 0.5, 5.0, 500.0):
            for world in (random_world(seed, sign=sign) for seed in WORLDS):
                product_K = world.atom_weight_K() * world.reward_K
                bound = float(world.mass_K @ (product_K**2 / (1 + lam * np.abs(product_K))))
                mean, variance = moments(world, 2, "log_smoothing", lambda_=lam)
                pull = sign * (mean - world.law.value)
                excess += [pull, -lam * bound - pull, 2 * variance - bound]
                if lam == 500:
                    excess.append(0.9 * lam * bound + pull)
    return exact(excess, TOLERANCE, "largest excess; below 0 where every bound is strict")


def embedded(seed: int, direct: bool) -> EmbeddedDistribution:
    """2 contexts, 3 actions, 2 embeddings, random rewards; with or without effect of the action beside e."""
    rng = np.random.default_rng([seed, 7])
    mu_SA, pi_SA = rng.dirichlet(np.ones(3), size=(2, 2))
    embedding_AE = rng.dirichlet(np.ones(2), size=3)
    mean_SAE = rng.random((2, 3, 2)) if direct else np.repeat(rng.random((2, 1, 2)), 3, axis=1)
    embedding_SAE = np.repeat(embedding_AE[None], 2, axis=0)
    # The reward is its mean plus or minus 1/5, as likely.
    return EmbeddedDistribution(
        rng.dirichlet(np.ones(2)), 0.9 * mu_SA + 0.1 / 3, pi_SA, embedding_SAE, mean_SAE, mean_SAE**2 + 0.04
    )


def _embedded_data(law: EmbeddedDistribution, n: int) -> tuple[Logged, Floats]:
    x_K, a_K, e_K, coin_K = np.indices((*law.mean_SAE.shape, 2)).reshape(4, -1)
    reward_K = law.mean_SAE[x_K, a_K, e_K] + 0.2 * (2 * coin_K - 1)
    mass_K = law.joint_SAE[x_K, a_K, e_K] / 2
    index_RN = np.indices((len(mass_K),) * n).reshape(n, -1).T
    x_RN = x_K[index_RN]
    policies = {"action_dist": law.pi_SA[x_RN], "behavior_dist": law.mu_SA[x_RN]}
    log_RN = embedding_log_weight(embedding=e_K[index_RN], p_e_a=law.embedding_SAE[0], **policies)
    found = logged(reward=reward_K[index_RN], action=a_K[index_RN], log_embedding_weight=log_RN, **policies)
    return found, mass_K[index_RN].prod(-1)


@EXPERIMENT.claim(
    source="Saito & Joachims (2022), Off-policy evaluation for large action spaces via embeddings"
)
def mips_bias_and_variance_gain() -> Evidence:
    """MIPS has no bias when the action acts through the embedding alone, and then n (Var IPS - Var MIPS) =
    E[E[r^2|x,e] Var(w|x,e)]; with a direct effect its bias is a sum over pairs of actions.
    """
    gaps = []
    for seed in WORLDS:
        for direct in (False, True):
            law = embedded(seed, direct)
            for n in (1, 2):
                data, mass_R = _embedded_data(law, n)
                mean, variance = _moments(estimator["mips"].function(data), mass_R)
                gaps.append(mean - law.value - law.mips_bias_formula())
                if not direct:
                    ips_variance = _moments(estimator["ips"].function(data), mass_R)[1]
                    gaps += [mean - law.value, n * (ips_variance - variance) - law.mips_gain_formula()]
    return exact(np.abs(gaps), TOLERANCE, "largest gap of a bias or variance gain")


@EXPERIMENT.claim(
    source="Farajtabar, Chow & Ghavamzadeh (2018), More robust doubly robust off-policy evaluation"
)
def cross_fitted_mrdr_is_unbiased() -> Evidence:
    """MRDR with its model fitted on the other fold is unbiased at n = 2 and 3; fitted on the rounds that it
    corrects it is not.
    """
    gaps = []
    for world in map(random_world, WORLDS):
        biases = {}
        for n, folds in ((2, 2), (3, 2), (3, 3), (2, 1)):
            data, mass_R = world.data(n)
            context_RN = world.context_K[np.indices((24,) * n).reshape(n, -1).T]
            one_hot_RND = np.eye(4)[data.action_N] if data.action_N is not None else None
            data = replace(data, feature_ND=one_hot_RND, feature_pi_ND=world.law.pi_SA[context_RN])
            found = estimator["mrdr"].bind(folds=folds)(data)
            biases[n, folds] = abs(float(mass_R @ found.value) - world.law.value)
        gaps.append(float(biases.pop((2, 1)) < 1e-3))
        gaps += biases.values()
    return exact(gaps, 1e-9, "largest bias with cross-fitting; 1 if in-sample fitting had none")


@EXPERIMENT.claim(source="Wald (1940); Xu et al. (2023), Instrumental variables in off-policy evaluation")
def instrument_identifies_under_confounding() -> Evidence:
    """On rounds in proportion to a confounded law the instrumental-variable estimate is E[r | do(a)] for each
    action, when the instrument's effect on the action does not depend on the confounder.
    """
    take_2K = np.array([[0.2, 0.5], [0.5, 0.8]])
    rounds = list(_proportional(take_2K, np.array([[0.1, 0.5], [0.3, 0.9]])))
    u_N, z_N, a_N, r_N = (np.array(column) for column in zip(*rounds, strict=True))
    gaps = []
    for action, truth in ((0, 0.3), (1, 0.6)):
        pi_NA = np.tile(np.eye(2)[action], (len(r_N), 1))
        data = logged(
            reward=r_N, action=a_N, pscore=np.full(len(r_N), 0.5), action_dist=pi_NA, instrument=z_N
        )
        gaps.append(abs(float(estimator["instrumental_variable"].function(data).value) - truth))
        gaps.append(float(abs(r_N[a_N == action].mean() - truth) < 0.05))
    return exact(gaps, TOLERANCE, f"largest gap to the effect of an action, {len(u_N)} rounds")


def _proportional(take_2K: Floats, reward_AK: Floats) -> Iterable[tuple[int, int, int, float]]:
    """Yield 10 rounds (u, z, a, r) for each u and z, as many with a = 1 as the law says."""
    for u in (0, 1):
        for z in (0, 1):
            taken = round(10 * take_2K[z, u])
            for index in range(10):
                action = int(index < taken)
                yield u, z, action, float(reward_AK[action, u])
