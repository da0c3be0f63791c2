"""Seconds and memory of the exact oracle on the largest tree: 8 tokens, 6 of them, 262,144 leaves.

J, grad J and the reports of 20 objectives must take at most 20 seconds and 2 GiB; a transformer of some
25,000 weights, evaluated on all of them, at most 10 seconds. Prints seconds, leaves per second, peak memory.

    python tests/benchmarks/bench_exact.py [--json]
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from testbed.exact.gradient_report import Bench, gradient_report
from testbed.exact.response_tree import random_policies, random_tree
from testbed.exact.transformer_table import transformer_distribution
from testbed.policies.toy.toy_transformer import ToyTransformer

VOCABULARY, LENGTH, DRIFT = 8, 6, 0.3
OBJECTIVES = (  # noqa: SIM905
    "reinforce ppo_clip dual_clip gspo gmpo cispo ctpo minpro topr m2po tis mis icepop decoupled_ppo "
    "importance_reinforce sapo vespo rec_twoside ratio:prefix ratio:suffix"
).split()
MOST_SECONDS = {"reports": 20.0, "transformer": 10.0}
MOST_GIB = 2.0


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def reports() -> int:
    """Everything from the rewards on: tree, policies, J, grad J, 20 reports; the number of leaves."""
    tree = random_tree(VOCABULARY, LENGTH)
    mu_SA, pi_SA = random_policies(tree, DRIFT)
    tree.value(pi_SA)
    bench = Bench(tree, mu_SA, pi_SA)
    for name in OBJECTIVES:
        gradient_report(name, bench)
    return len(bench.law_L)


def measure() -> dict[str, float]:
    gradient_report("ratio:token", random_tree(2, 2), *random_policies(random_tree(2, 2), DRIFT))  # compile
    seconds, leaves = timed(reports)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tree = random_tree(VOCABULARY, LENGTH)
    policy = ToyTransformer(tree.task, width=32, layers=2, heads=4)
    theta_P = policy.initial([0])[0]
    transformer_distribution(policy, theta_P, random_tree(VOCABULARY, 2))  # compile
    law_seconds, _ = timed(lambda: transformer_distribution(policy, theta_P, tree))
    return {
        "leaves": leaves,
        "prefixes": tree.states,
        "objectives": len(OBJECTIVES),
        "reports": seconds,
        "reports_peak_gib": gib,
        "weights": policy.parameters,
        "transformer": law_seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(2)
    found = measure()
    if given.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['leaves']:,} leaves, {found['objectives']} objectives: {found['reports']:.1f} s "
            f"({found['leaves'] * found['objectives'] / found['reports']:,.0f} leaves a second), peak "
            f"{found['reports_peak_gib']:.2f} GiB\n"
            f"transformer of {found['weights']:,} weights, {found['prefixes']:,} prefixes: "
            f"{found['transformer']:.2f} s"
        )
    slow = [name for name, most in MOST_SECONDS.items() if found[name] > most]
    return 1 if slow or found["reports_peak_gib"] > MOST_GIB else 0


if __name__ == "__main__":
    sys.exit(main())
