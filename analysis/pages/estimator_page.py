"""Write the tables of docs/estimators.md: python -m analysis.pages.estimator_page.

A table stands between <!-- table NAME --> and <!-- end -->; the rest of the page is hand-written and kept.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from analysis.experiments.estimators.interval_coverage import CHANCES, NAME, SIGMAS, SIZES
from analysis.tables.committed import load_committed
from testbed.errors import UserError, unknown
from testbed.estimators import estimator
from testbed.registry import Entry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "estimators.md"
BLOCK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.S)


CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "q_N": "model of other rounds",
        "q_NT": "model of other episodes",
        "state_marginal_importance_weight_NT": "exact state ratios",
    }
)
"""Condition, beside overlap, under which an estimator that needs such a field is unbiased."""


def estimators(family: str) -> str:
    """Return the estimators of a family as a table: parameters with defaults, promises, the formula."""
    rows = [_estimator(entry) for entry in estimator.values() if entry.promises["family"] == family]
    head = "| estimator | parameter | unbiased | linear | formula |\n|---|---|:-:|:-:|---|\n"
    return head + "".join(rows)


def _estimator(entry: Entry) -> str:
    parameters = ", ".join(f"`{name}={value}`" for name, value in entry.defaults.items()) or "–"
    given = ["overlap", *(CONDITIONS[field] for field in entry.promises["needs"] if field in CONDITIONS)]
    unbiased = f"given {', '.join(given)}" if entry.promises["unbiased"] else "no"
    promises = f"{unbiased} | {'yes' if entry.promises['linear'] else 'no'}"
    formula = entry.formula.removesuffix(".").replace("|", "\\|")
    return f"| `{entry.name}` | {parameters} | {promises} | {formula} |\n"


def coverage() -> str:
    """Return the committed coverage as a table: percent at each sample size, a column per law."""
    frame = load_committed([NAME])[NAME].frame
    laws = [("two-point", chance) for chance in CHANCES] + [("lognormal", sigma) for sigma in SIGMAS]
    head = "".join(f" {'p' if law == 'two-point' else 'σ'} = {value:g} |" for law, value in laws)
    lines = [f"| interval |{head}", "|---|" + ":-:|" * len(laws)]
    for name in frame["interval"].unique():
        rows = frame[frame["interval"] == name]
        lines.append(f"| `{name}` |" + "".join(f" {_percent(rows, *law)} |" for law in laws))
    return "\n".join(lines) + "\n"


def _percent(rows: pd.DataFrame, law: str, parameter: float) -> str:
    here = rows[(rows["law"] == law) & (rows["parameter"] == parameter)].set_index("n")["coverage"]
    return " → ".join(f"{100 * here[n]:.1f}" for n in SIZES) if len(here) else "–"


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "bandits": lambda: estimators("bandit"),
        "episodes": lambda: estimators("trajectory"),
        "coverage": coverage,
    }
)


def filled(text: str) -> str:
    """Return the page with every table written again; raise UserError for an unknown or missing table."""
    found = [match[2] for match in BLOCK.finditer(text)]
    for name in found:
        if name not in TABLES:
            raise unknown("table of the page", name, TABLES)
    if missing := sorted(set(TABLES) - set(found)):
        raise UserError(
            f"The page lacks <!-- table {missing[0]} --> and <!-- end -->; add them where the table belongs."
        )
    return BLOCK.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


def main(page: Path = PAGE) -> int:
    """Write the page; exit code 0, or 2 with one line about what is wrong."""
    try:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
