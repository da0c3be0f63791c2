"""Seconds until `testbed --help` answers, beside an idle interpreter and the imports it must not pay for.

    python tests/benchmarks/bench_command_line.py [--rounds 7] [--json]

Interleaved: every round times each of the three once. The target is 0.4 s for the help.
"""

import argparse
import json
import subprocess
import sys
import time

COMMANDS = {
    "idle interpreter (limit)": "pass",
    "testbed --help (ours)": "from testbed.cli import main; main(['--help'])",
    "import torch (what eager imports would cost)": "import torch",
}


def seconds(code: str) -> float:
    """Return the wall time of one fresh interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> int:
    """Print the median of each command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(given.rounds):
        for name, code in COMMANDS.items():
            times[name].append(seconds(code))
    medians = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    if given.json:
        print(json.dumps(medians, indent=2))
    else:
        for name, value in medians.items():
            print(f"{value:6.2f} s  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
