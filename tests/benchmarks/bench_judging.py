"""CPU seconds to judge one experiment and to judge the whole page, each in a fresh interpreter.

    python tests/benchmarks/bench_judging.py [--json]

Aims: 3 s for one experiment with its start-up, 60 s for every claim. CPU time, so that a busy machine counts
alike. Nothing is written.
"""

import argparse
import json
import resource
import subprocess
import sys

ASKED = {
    "one experiment": ("from testbed.cli import main; main(['evidence', 'judge', 'actor-learner'])", 3.0),
    "the whole page": ("from analysis.judging import verdicts; verdicts.decide(verdicts.judge())", 60.0),
}


def seconds(code: str) -> float:
    """Return the user and system time of one fresh interpreter on one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the time of each beside its aim; return 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {name: seconds(code) for name, (code, _) in ASKED.items()}
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{value:6.1f} s  {name}, aim {ASKED[name][1]:g} s")
    return int(any(value > ASKED[name][1] for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())
