"""Run every benchmark, one process each: python tests/benchmarks [PATTERN] (`make bench`)."""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
MISSED = 1
"""Exit status of a benchmark that ran and is slower than it should be."""
OF_AIMS = re.compile(r"\b(target|limit|ABOVE)\b")


def main(pattern: str = "*", folder: Path = FOLDER) -> int:
    """Run the matching benchmarks one after the other, never side by side; return how many failed.

    The last lines name those that missed their aim, with what they printed about it, and those that broke.
    """
    ends: dict[str, tuple[int, list[str]]] = {}
    for path in sorted(folder.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if fnmatch.fnmatch(name, pattern):
            print(f"== {name}", flush=True)
            ends[name] = run(path)
    for name, (status, lines) in ends.items():
        if status:
            print(f"{name} {'missed its aim' if status == MISSED else f'broke with exit status {status}'}:")
            print("\n".join(f"    {line}" for line in lines) or "    see above")
    failed = sum(status != 0 for status, _ in ends.values())
    print(f"{len(ends) - failed} of {len(ends)} benchmarks are as fast as they should be.")
    return failed


def run(path: Path) -> tuple[int, list[str]]:
    """Run a benchmark, pass its lines on, and return its exit status and the lines about aims."""
    lines = []
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines += [line.strip()] if OF_AIMS.search(line) else []
    return process.returncode, lines


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
