"""Run every benchmark, one process each: python tests/benchmarks [PATTERN] (`make bench`)."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(pattern: str = "*") -> int:
    """Run the matching benchmarks one after the other, never side by side; return how many failed."""
    failed = 0
    for path in sorted(FOLDER.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if fnmatch.fnmatch(name, pattern):
            print(f"== {name}", flush=True)
            failed += subprocess.run([sys.executable, str(path)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
