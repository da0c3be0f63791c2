"""python -m analysis.claims [PATTERN] [--data FOLDER] [--json]: print every claim with its verdict."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.claims.base import run_claims
from testbed.errors import UserError


def line(row: Mapping[str, Any]) -> str:
    """Return a claim and its evidence as text."""
    numbers = [
        f"{name} {row[name]:.3g}" for name in ("effect", "low", "high", "p_holm") if row[name] is not None
    ]
    counts = ("tolerance", "n") if row["kind"] == "exact" else ("n", "arms", "cells")
    evidence = ", ".join([*numbers, *(f"{name} {row[name]:g}" for name in counts)])
    return f"{row['verdict']:<12}  {row['claim']}\n    {row['statement']}\n    {evidence}: {row['note']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdicts; exit code 0, or 2 with one line of error. A refuted claim is no error."""
    parser = argparse.ArgumentParser(prog="python -m analysis.claims", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*", help="shell pattern of claim names")
    parser.add_argument(
        "--data", type=Path, help="results folder or folder of CSV tables (default: committed)"
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = parser.parse_args(arguments)
    try:
        rows = run_claims(given.pattern, given.data)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(rows, indent=1) if given.json else "\n".join(map(line, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
