"""Processor time of judging every claim again, and of the experiment that takes longest.

python tests/benchmarks/bench_judging.py
"""

import sys
import time

from analysis.experiment import EXPERIMENTS
from analysis.judging.verdicts import judge

PAGE, ONE = 60.0, 3.0
"""Seconds for all claims, and for those of one experiment."""


def seconds(name: str) -> float:
    """Return the processor time of judging an experiment."""
    start = time.process_time()
    judge([name])
    return time.process_time() - start


def main() -> int:
    """Print both times; return 1 if one is above its limit."""
    spent = {name: seconds(name) for name in EXPERIMENTS}
    # What is above its limit may have compiled a kernel, as a fresh checkout does once.
    spent |= {name: seconds(name) for name, took in spent.items() if took > ONE}
    last = max(spent, key=lambda name: spent[name])
    print(f"{sum(spent.values()):.1f} s for {len(spent)} experiments (limit {PAGE:g} s)")
    print(f"{spent[last]:.1f} s for {last} (limit {ONE:g} s)")
    return int(sum(spent.values()) > PAGE or spent[last] > ONE)


if __name__ == "__main__":
    sys.exit(main())
