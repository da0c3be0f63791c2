"""Claims about what a sample of weights proves of the limit of its ESS: an upper bound, never a lower one."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.lab import Evidence, Experiment, exact
from envs.finite_mdp import FiniteMDP
from testbed.diagnostics.weight_sums import WeightSums

EXPERIMENT = Experiment(
    "ess-certificates",
    question="What does a sample of weights prove of the limit of its ESS?",
    source="own derivation; compare Chatterjee & Diaconis (2018), The sample size required in "
    "importance sampling",
)


@EXPERIMENT.claim(
    source="own derivation; compare Chatterjee & Diaconis (2018), The sample size required in importance "
    "sampling"
)
def no_sample_certifies_an_ess() -> Evidence:
    """No positive lower bound of the Kish limit follows from N weights, however large N: for every c there
    are policies with a limit below c under which all N weights are equal and within 1e-6 of 1 with chance
    above 1 - 1e-6.

    Return limit / c - 1, misses of the chance and of the share read, and the distance of weights from 1. mu =
    (1 - p, p), pi = (1 - q, q) with q^2 = 2 p / c: the rare action has E_mu w^2 > 2 / c, and p is as small as
    both bounds ask.
    """
    gaps, note = [], ""
    for n, c in itertools.product((10, 1000, 10**6), (0.5, 1e-3, 1e-6)):
        p = min(0.5e-6 / n, 1e-13 * c)
        q = math.sqrt(2 * p / c)
        mu_SA, pi_SA = np.array([[1 - p, p]]), np.array([[1 - q, q]])
        world = FiniteMDP(
            transition_SAS=np.ones((1, 2, 1)), reward_SA=np.zeros((1, 2)), start_S=np.ones(1), horizon=1
        )
        limit = float(world.divergence(pi_SA, mu_SA).ess_kish)
        log_w = math.log1p(-q) - math.log1p(-p)
        read = float(WeightSums.of(np.full(min(n, 1000), log_w)).ess("kish"))
        unseen = n * math.log1p(-p)  # log of the chance
        gaps += [limit / c - 1, math.log1p(-1e-6) - unseen, 1 - 1e-12 - read, abs(math.expm1(log_w)) - 1e-6]
        note = f"N = {n}: limit {limit:.2g} reads {read:.6g} with chance {math.exp(unseen):.7f}"
    return exact(gaps, 0.0, f"largest excess of limit/c over 1 or miss of a bound; {note}")


@EXPERIMENT.claim(source="own derivation: Markov's inequality for w^2")
def a_sample_refutes_an_ess() -> Evidence:
    """From N independent weights of mean 1 the Kish limit is at most 1 / (f mean w^2), wrong with chance at
    most f for every law, and wrong with chance 1 - (1 - f/N)^N for some: 95 % of f and more at f = 0.1.
    """
    gaps, worst = [], 0.0
    error = 0.1
    for n in (1, 2, 4, 8):
        for seed in range(6):
            rng = np.random.default_rng([seed, n])
            mu_A = rng.dirichlet(np.full(4, 0.4)).clip(1e-12)
            gaps.append(
                _wrong_upper_limits(rng.dirichlet(np.full(4, 0.5)), mu_A / mu_A.sum(), n, error) - error
            )
        p = error / n * (1 - 1e-9)
        tight = _wrong_upper_limits(np.array([0.0, 1.0]), np.array([1 - p, p]), n, error)
        gaps += [tight - error, 1 - (1 - p) ** n - tight]
        p *= 1.01  # one rare weight must no longer be enough to be wrong
        gaps.append(_wrong_upper_limits(np.array([0.0, 1.0]), np.array([1 - p, p]), n, error) - error)
        worst = max(worst, tight)
    return exact(gaps, 1e-9, f"largest excess over f, or shortfall; wrong with chance {worst:.6f} at most")


def _wrong_upper_limits(pi_A: NDArray[np.float64], mu_A: NDArray[np.float64], n: int, error: float) -> float:
    """P(kish_upper_limit(error) of n weights < 1 / E_mu w^2), summed over every sample of actions."""
    sample_MN = np.array(list(itertools.product(range(mu_A.size), repeat=n)))
    if len(sample_MN) > 4**6:  # more samples than these: by counts of actions, which is all that matters
        sample_MN = np.array(list(itertools.combinations_with_replacement(range(mu_A.size), n)))
        count_MA = (sample_MN[..., None] == np.arange(mu_A.size)).sum(1)
        orders_M = special.gamma(n + 1) / special.gamma(count_MA + 1).prod(-1)
    else:
        orders_M = np.ones(len(sample_MN))
    with np.errstate(divide="ignore"):
        log_w_A = np.log(pi_A) - np.log(mu_A)
    some_M = np.isfinite(log_w_A[sample_MN]).any(-1)  # weights that all vanish bound nothing
    found_M = WeightSums.of(log_w_A[sample_MN[some_M]]).kish_upper_limit(error)
    limit = 1 / float(pi_A @ (pi_A / mu_A))
    chance_M = orders_M[some_M] * mu_A[sample_MN[some_M]].prod(-1)
    return float(chance_M @ (found_M < limit))
