"""Time of every bandit estimator on a million logged rounds, and against obp where it has the same one.

Both sides start from the same arrays: reward, action, pscore, the target's [N, 10] probabilities and a
reward model; both end at values. obp checks its input and takes the weights in every call; here they are
checked and taken once, which is part of the measured time. The table of single estimators includes standard
error and ESS. Rounds are interleaved, so that a busy machine slows both; the first call of each, which
for us loads Numba, is not timed. obp 0.4.1 is what installs on Python
3.11; scope-rl is met in bench_trajectory_estimators.py. Without obp the textbook formulas in
plain numpy stand in for it.

    python tests/benchmarks/bench_estimators.py [--rounds 5] [--peer FOLDER]

FOLDER holds obp and what it imports: pip install --target FOLDER --no-deps obp==0.4.1 scikit-learn joblib
tqdm threadpoolctl narwhals.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.estimators import estimator
from testbed.estimators.embedding import embedding_log_weight
from testbed.estimators.logged_rounds import Logged, logged

N, ACTIONS, EMBEDDINGS, STRATA, FEATURES = 1_000_000, 10, 4, 5, 8
LIMIT, TARGET = 2.0, 20.0
"""Seconds for all estimators, checks of the data included; times faster than the peer."""
BITING: dict[str, dict[str, float]] = {
    "clipped_ips": {"lambda_": 2.0}, "propensity_clipped_ips": {"tau": 0.1},
    "exponential_smoothing": {"alpha": 0.7}, "power_of_ratio": {"alpha": 0.7}, "ix": {"gamma": 0.05},
    "subgaussian_ips": {"lambda_": 0.3}, "log_smoothing": {"lambda_": 0.3}, "lse": {"lambda_": -0.3},
    "switch_dr": {"lambda_": 1.0}, "dr_ps": {"lambda_": 2.0}, "dr_os": {"lambda_": 2.0},
    "sg_dr": {"lambda_": 0.3},
}  # fmt: skip
SHARED = ("ips", "snips", "dm", "dr", "sn_dr", "switch_dr", "dr_os")
Arrays = dict[str, Any]


def arrays() -> Arrays:
    """Return one million rounds as a production system would have stored them."""
    rng = np.random.default_rng(0)
    pi, mu = rng.dirichlet(np.ones(ACTIONS), (2, N))
    mu = 0.9 * mu + 0.1 / ACTIONS
    action = (mu.cumsum(1) < rng.random((N, 1))).sum(1).clip(0, ACTIONS - 1)
    return {
        "reward": rng.random(N), "action": action, "pscore": mu[np.arange(N), action], "action_dist": pi,
        "estimated_rewards_by_reg_model": rng.random((N, ACTIONS)),
    }  # fmt: skip


def more_arrays(given: Arrays) -> Arrays:
    """Return what MRDR, MIPS and the instrumental variable need besides."""
    rng = np.random.default_rng(1)
    context = rng.integers(0, STRATA, N)
    return {
        "feature": rng.normal(size=(N, FEATURES)), "feature_pi": rng.normal(size=(N, FEATURES)),
        "instrument": (given["action"] + rng.integers(0, 3, N)) % 2, "context": context,
        "log_embedding_weight": embedding_log_weight(embedding=rng.integers(0, EMBEDDINGS, N),
                                                     action_dist=given["action_dist"],
                                                     behavior_dist=np.full((N, ACTIONS), 1 / ACTIONS),
                                                     p_e_a=rng.dirichlet(np.ones(EMBEDDINGS), ACTIONS)),
    }  # fmt: skip


def ours(given: Arrays) -> dict[str, float]:
    """Return the values of the shared estimators, from arrays to numbers."""
    data = logged(**given)
    return {name: float(run(name, data).value) for name in SHARED}


def run(name: str, data: Logged) -> Any:
    """Return the Estimate with a hyperparameter that bites."""
    return estimator[name].bind(**BITING.get(name, {}))(data)


def run_in_full(name: str, data: Logged) -> tuple[Any, Any, Any]:
    """Return value, standard error and ESS."""
    found = run(name, data)
    return found.value, found.stderr, found.ess


def peer(folder: str | None) -> tuple[str, Callable[[Arrays], dict[str, float]]]:
    """Return the peer's name and its values of the shared estimators."""
    sys.path += [folder] if folder else []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from obp.ope import estimators as obp
    except ImportError:
        return "plain numpy (obp cannot be imported)", textbook
    made = {
        "ips": obp.InverseProbabilityWeighting(), "snips": obp.SelfNormalizedInverseProbabilityWeighting(),
        "dm": obp.DirectMethod(), "dr": obp.DoublyRobust(), "sn_dr": obp.SelfNormalizedDoublyRobust(),
        "switch_dr": obp.SwitchDoublyRobust(tau=BITING["switch_dr"]["lambda_"]),
        "dr_os": obp.DoublyRobustWithShrinkage(lambda_=BITING["dr_os"]["lambda_"]),
    }  # fmt: skip

    def play(given: Arrays) -> dict[str, float]:
        theirs = {**given, "position": np.zeros(N, dtype=int)}
        for key in ("action_dist", "estimated_rewards_by_reg_model"):
            theirs[key] = given[key][:, :, None]
        return {name: float(each.estimate_policy_value(**theirs)) for name, each in made.items()}

    return "obp 0.4.1", play


def textbook(given: Arrays) -> dict[str, float]:
    """The formulas as in a textbook, each from the arrays alone."""
    reward, pi, q = (given[key] for key in ("reward", "action_dist", "estimated_rewards_by_reg_model"))
    every = np.arange(N)
    weight = lambda: pi[every, given["action"]] / given["pscore"]  # noqa: E731
    direct = lambda: (pi * q).sum(1)  # noqa: E731
    rest = lambda: reward - q[every, given["action"]]  # noqa: E731
    kept = lambda w: w * (w <= BITING["switch_dr"]["lambda_"])  # noqa: E731
    shrunk = lambda w: w * BITING["dr_os"]["lambda_"] / (w**2 + BITING["dr_os"]["lambda_"])  # noqa: E731
    return {
        "ips": float((weight() * reward).mean()),
        "snips": float((weight() * reward).mean() / weight().mean()),
        "dm": float(direct().mean()),
        "dr": float((direct() + weight() * rest()).mean()),
        "sn_dr": float(direct().mean() + (weight() * rest()).mean() / weight().mean()),
        "switch_dr": float((direct() + kept(weight()) * rest()).mean()),
        "dr_os": float((direct() + shrunk(weight()) * rest()).mean()),
    }


def clock(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(rounds: int, folder: str | None) -> dict[str, Any]:
    """Medians over interleaved rounds."""
    given = arrays()
    both = {**given, **more_arrays(given)}
    per_stratum = np.random.default_rng(2).dirichlet(np.ones(ACTIONS), STRATA)[both["context"]]
    peer_name, theirs = peer(folder)
    a, b = ours(given), theirs(given)
    gap = max(abs(a[name] - b[name]) for name in SHARED)
    times: dict[str, list[float]] = {"checks": [], "ours": [], "peer": []}
    for _ in range(rounds):
        made: list[Logged] = []
        times["checks"].append(clock(lambda kept=made: kept.append(logged(**both))))
        for name in (n for n in estimator if estimator[n].promises["family"] == "bandit"):
            data = made[0]
            if name == "instrumental_variable":  # its target is one policy per stratum
                data = replace(data, action_dist_NA=per_stratum)
            times.setdefault(name, []).append(clock(lambda n=name, d=data: run_in_full(n, d)))
        times["peer"].append(clock(lambda: theirs(given)))
        times["ours"].append(clock(lambda: ours(given)))
    ratios = [p / o for p, o in zip(times["peer"], times["ours"], strict=True)]
    median = {name: statistics.median(values) for name, values in times.items()}
    alone = {name: s for name, s in median.items() if name not in ("ours", "peer")}
    return {
        "seconds": alone, "total_s": sum(alone.values()), "peer": peer_name, "largest_gap_to_peer": gap,
        "peer_s": median["peer"], "ours_s": median["ours"], "ratio": statistics.median(ratios),
        "ratio_smallest": min(ratios),
    }  # fmt: skip


def main() -> int:
    """Print the times; exit status 1 when the limit or, against obp, the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="folder that obp is installed in")
    given = parser.parse_args()
    found = measure(given.rounds, given.peer)
    for name, seconds in sorted(found["seconds"].items(), key=lambda row: -row[1]):
        print(f"{name:24} {1e3 * seconds:8.1f} ms")
    print(f"{'all of them':24} {1e3 * found['total_s']:8.1f} ms   limit {1e3 * LIMIT:.0f}")
    print(f"{len(SHARED)} shared: {found['peer_s']:.2f} s {found['peer']}, {found['ours_s']:.3f} s ours")
    print(f"ratio {found['ratio']:.1f} x (smallest {found['ratio_smallest']:.1f}), target {TARGET:.0f}")
    print(f"largest gap between values {found['largest_gap_to_peer']:.1e}")
    late = found["peer"].startswith("obp") and found["ratio"] < TARGET
    return int(found["total_s"] > LIMIT or late)


if __name__ == "__main__":
    sys.exit(main())
