"""Claims about the assertions of testbed.testing.assertions: they keep the error rates that they declare."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.lab import Evidence, Experiment, exact
from testbed.errors import UserError
from testbed.testing.assertions import assert_equivalent, assert_unbiased, min_num_samples
from testbed.testing.e_process import EProcess

EXPERIMENT = Experiment(
    "declared-rates",
    question="Do the project's own tests reject as rarely, and detect as surely, as they declare?",
    source="Ville (1939); Hoeffding (1963); sources with each claim",
)


@EXPERIMENT.claim(
    source="Hoeffding (1963); Bernstein's inequality; this project's testbed.testing.sample_size"
)
def declared_rates_hold_on_coins() -> Evidence:
    """With the number of coins that is planned from bounds, or from bounds and the true deviation,
    assert_unbiased fails on an unbiased mean with at most the declared chance; from bounds, a bias of the
    declared size passes with at most the declared chance, down to rates of 1e-9.
    """
    gaps, closest = [], 0.0
    for rates, apart in (((0.02, 0.05), 0.15), ((1e-9, 1e-9), 0.3)):
        alarm, missed = rates
        for p in (0.5, 0.3, 0.1, 0.02):
            for std in (None, math.sqrt(p * (1 - p))):
                known: dict[str, Any] = {
                    "std": std,
                    "bounds": (0.0, 1.0),
                    "false_alarm": alarm,
                    "missed": missed,
                }
                n = min_num_samples(apart, **known)
                fails_K = _failing(assert_unbiased, n, p, discrepancy=apart, **known)
                ones_K = np.arange(n + 1)
                alarmed = float(stats.binom.pmf(ones_K, n, p) @ fails_K)
                gaps.append(alarmed / alarm - 1)
                if std is None:
                    passed = float(stats.binom.pmf(ones_K, n, p + apart) @ ~fails_K)
                    gaps.append(passed / missed - 1)
                closest = max(closest, alarmed / alarm)
    return exact(
        gaps, 0.0, f"largest excess over a declared rate, relatively; false alarms use {closest:.2g} of it"
    )


def _failing(assertion: Callable[..., None], n: int, expected: float, **declared: Any) -> NDArray[np.bool_]:
    """Whether an assertion fails on n coins with k ones, for k = 0 .. n; draws that it refuses count too."""
    failed_K = np.zeros(n + 1, dtype=bool)
    for ones in range(n + 1):
        try:
            assertion((np.arange(n) < ones).astype(np.float64), expected, **declared)
        except (AssertionError, UserError):
            failed_K[ones] = True
    return failed_K


@EXPERIMENT.claim(
    source="Ville (1939); Waudby-Smith & Ramdas (2024), Estimating means of bounded random variables by "
    "betting"
)
def bets_reach_a_level_no_more_often_than_its_inverse() -> Evidence:
    """At the true mean the wealth of the bets is 1 on average after every draw, and its chance to have ever
    reached a level c is at most 1/c.
    """
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


@EXPERIMENT.claim(source="this project")
def draws_come_from_the_seed_alone() -> Evidence:
    """What an assertion draws depends on its seed and on nothing else: the global generator's state is
    neither used nor moved.
    """
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
    source='statements "clip, not importance sampling, does the work" need a test of equivalence; '
    "Schuirmann (1987)"
)
def no_rejection_is_no_equivalence() -> Evidence:
    """With 40 coins of probability 0.6 assert_unbiased at 5%, which is a z-test against 0.5, passes with
    chance above 1/2; assert_equivalent with margin 0.1 passes with chance 5% at most, for every number of
    coins that is enough for it, and with chance above 90% where the probability is 0.5.
    """
    rates = {"false_alarm": 0.05, "missed": 0.05}
    passes_K = ~_failing(assert_unbiased, 40, 0.5, std=0.5, discrepancy=0.4, **rates)
    undetected = float(stats.binom.pmf(np.arange(41), 40, 0.6) @ passes_K)
    gaps = [0.5 - undetected]
    for n in (700, 1000):
        # Bounds, so that 5% is a guarantee and not the normal law's.
        passes_K = ~_failing(assert_equivalent, n, 0.5, margin=0.1, bounds=(0.0, 1.0), **rates)
        gaps.append(float(stats.binom.pmf(np.arange(n + 1), n, 0.6) @ passes_K) - 0.05)
        gaps.append(0.9 - float(stats.binom.pmf(np.arange(n + 1), n, 0.5) @ passes_K))
    return exact(gaps, 0.0, f"largest excess; the bias of 0.1 goes undetected with chance {undetected:.3f}")
