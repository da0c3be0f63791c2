"""Claims about the assertions of testbed.testing.assertions: they keep the error rates that they declare."""

from __future__ import annotations

import itertools
import math

import numpy as np

from analysis.claims import Evidence, exact
from analysis.experiment import Experiment

EXPERIMENT = Experiment(
    "declared-rates",
    question="Do the project's own tests reject as rarely, and detect as surely, as they declare?",
    source="Ville (1939); Hoeffding (1963); sources with each claim",
)


@EXPERIMENT.claim(
    "declared-rates-hold-on-coins",
    source="Hoeffding (1963); Bernstein's inequality; this project's testbed.testing.sample_size",
    kind="exact",
    statement=(
        "With the number of coins that is planned from bounds, or from bounds and the true deviation, an "
        "unbiased mean alarms with at most the declared chance; from bounds, a bias of the declared size "
        "passes with at most the declared chance."
    ),
)
def coins() -> Evidence:
    """Return by how much an exact binomial chance exceeds its declared rate, over four biases of the coin."""
    from scipy import stats

    from testbed.testing.sample_size import Spread, min_num_samples

    alarm, missed, apart = 0.02, 0.05, 0.15
    gaps, closest = [], 0.0
    for p in (0.5, 0.3, 0.1, 0.02):
        for std in (None, math.sqrt(p * (1 - p))):
            spread = Spread(std, (0.0, 1.0))
            n = min_num_samples(apart, std=std, bounds=(0.0, 1.0), false_alarm=alarm, missed=missed)
            fails_K = np.abs(np.arange(n + 1) / n - p) > spread.radius(n, alarm / 2)
            alarmed = float(stats.binom.pmf(np.arange(n + 1), n, p) @ fails_K)
            gaps.append(alarmed - alarm)
            if std is None:
                gaps.append(float(stats.binom.pmf(np.arange(n + 1), n, p + apart) @ ~fails_K) - missed)
            closest = max(closest, alarmed)
    return exact(gaps, 0.0, f"largest excess; the largest false alarm is {closest:.2g} of {alarm:g} declared")


@EXPERIMENT.claim(
    "bets-reach-a-level-no-more-often-than-its-inverse",
    source="Ville (1939); Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by "
    "betting",
    kind="exact",
    statement=(
        "At the true mean the wealth of the bets is 1 on average after every draw, and its chance to have "
        "ever reached a level c is at most 1/c."
    ),
)
def bets() -> Evidence:
    """Return |mean wealth - 1| and the excess of the chance over 1/c, on all paths of 11 coins."""
    from testbed.testing.e_process import EProcess

    path_MN = np.array(list(itertools.product([0.0, 1.0], repeat=11)))
    gaps: list[float] = []
    for p in (0.5, 0.2):
        chance_M = np.prod(np.where(path_MN == 1, p, 1 - p), axis=1)
        log_wealth_MN = np.array([EProcess(p, (0.0, 1.0)).add(path_N) for path_N in path_MN])
        gaps += list(np.abs(chance_M @ np.exp(log_wealth_MN) - 1))
        highest_M = log_wealth_MN.max(1)
        for log_level in np.unique(highest_M[highest_M > 0]):
            gaps.append(float(chance_M @ (highest_M >= log_level - 1e-12) - np.exp(-log_level)))
    return exact(gaps, 1e-12, "largest excess over 2 coins, 11 sample sizes and every level reached")


@EXPERIMENT.claim(
    "draws-come-from-the-seed-alone",
    source="this project",
    kind="exact",
    statement=(
        "What an assertion draws depends on its seed and on nothing else: the global generator's state is "
        "neither used nor moved."
    ),
)
def seeds() -> Evidence:
    """Return distances between draws under two states of the global generator, and 1 if one was moved."""
    from testbed.testing.assertions import assert_unbiased

    seen: list[np.ndarray] = []

    def sampler(rng: np.random.Generator, n: int) -> np.ndarray:
        seen.append(rng.uniform(size=n))
        return seen[-1]

    kept = np.random.get_state()  # noqa: NPY002
    gaps: list[float] = []
    try:
        for state in (1, 2):
            np.random.seed(state)  # noqa: NPY002
            before = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
            assert_unbiased(sampler, 0.5, bounds=(0.0, 1.0), discrepancy=0.2, seed=3)
            after = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
            gaps.append(float((before != after).any()))
    finally:
        np.random.set_state(kept)  # noqa: NPY002
    gaps.append(float(np.abs(seen[0] - seen[1]).max()))
    return exact(gaps, 0.0, "distance between draws, or 1 for a state that moved")


@EXPERIMENT.claim(
    "no-rejection-is-no-equivalence",
    source='statements "clip, not importance sampling, does the work" need a test of equivalence; '
    "Schuirmann (1987)",
    kind="exact",
    statement=(
        "With 40 coins of probability 0.6 a z-test at 5% against 0.5 passes with chance above 1/2; two "
        "one-sided tests with margin 0.1 pass with chance 5% at most, for any number of coins."
    ),
)
def no_rejection() -> Evidence:
    """Return 1/2 minus the first chance, and the second less 5%, by binomial sums."""
    from scipy import stats

    from testbed.testing.sample_size import Spread

    # Hoeffding's radius, so that 5% is a guarantee and not the normal law's.
    normal, bounded = Spread(std=0.5), Spread(bounds=(0.0, 1.0))
    gaps, undetected = [], 0.0
    for n in (40, 400, 1000):
        ones_K = np.arange(n + 1)
        chance_K = stats.binom.pmf(ones_K, n, 0.6)
        apart_K = np.abs(ones_K / n - 0.5)
        if n == 40:
            undetected = float(chance_K @ (apart_K <= normal.radius(n, 0.025)))
            gaps.append(0.5 - undetected)
        gaps.append(float(chance_K @ (apart_K + bounded.radius(n, 0.05) < 0.1)) - 0.05)
    return exact(gaps, 0.0, f"largest excess; the bias of 0.1 goes undetected with chance {undetected:.3f}")
