"""Run the campaign: python tests/campaign [P1 P6 Scale …] [--trials 0.1] [--page FILE]."""

import argparse
import os
import sys
from pathlib import Path

import pytest
from reliability_page import PROMISES, promise_of

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"


def main() -> int:
    """Return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python tests/campaign", description=__doc__)
    parser.add_argument("promises", nargs="*", metavar="PROMISE", help=f"of {', '.join(PROMISES)}; all")
    parser.add_argument("--trials", type=float, default=1.0, help="factor on the number of trials")
    parser.add_argument("--workers", type=int, default=4, help="tests that run at the same time")
    parser.add_argument("--page", type=Path, help="file to write; docs/reliability.md when all are tried")
    given = parser.parse_args()
    if unknown := set(given.promises) - set(PROMISES):
        parser.error(f"there is no promise {', '.join(sorted(unknown))}; there are {', '.join(PROMISES)}")
    whole = not given.promises and given.trials == 1
    files = [str(path) for path in sorted(HERE.glob("test_*.py"))]
    chosen = [name for name in files if not given.promises or promise_of(name) in given.promises]
    os.environ["CAMPAIGN"] = str(given.trials)
    if page := given.page or (PAGE if whole else None):
        os.environ["CAMPAIGN_PAGE"] = str(page)
    spread = ["-n", str(given.workers), "--maxschedchunk", "1"] if given.workers > 1 else []
    options = ["-v", "-o", "timeout=5000", "--durations", "10", *spread]
    return int(pytest.main([*options, *chosen]))


if __name__ == "__main__":
    sys.exit(main())
