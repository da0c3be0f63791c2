"""Compute the exact tables behind the figures of theory: python -m paper_figs.theory [NAME …].

Names: gradients, limits, estimators, coverage, lags, tails, replications, and three that take minutes:
growth, pipelines and asynchrony; by default all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from analysis import (
    coverage_table,
    estimator_tables,
    gradient_tables,
    lag_tables,
    limit_tables,
    mismatch_growth,
    pipeline_learning,
    pipeline_replications,
    pipeline_table,
    tail_tables,
)
from analysis.load import COMMITTED, Table
from paper_figs.export import add_tables
from testbed.errors import UserError, unknown

TABLES: Mapping[str, Callable[[], Mapping[str, Table]]] = MappingProxyType(
    {
        "gradients": gradient_tables.tables,
        "limits": limit_tables.tables,
        "estimators": estimator_tables.tables,
        "coverage": lambda: {coverage_table.NAME: coverage_table.interval_coverage()},
        "lags": lambda: {lag_tables.NAME: lag_tables.lag_anatomy()},
        "growth": lambda: {mismatch_growth.NAME: mismatch_growth.mismatch_growth()},
        "tails": lambda: {tail_tables.NAME: tail_tables.tail_stability()},
        "replications": lambda: {pipeline_replications.NAME: pipeline_replications.table()},
        "pipelines": lambda: {pipeline_table.NAME: pipeline_table.table()},
        "asynchrony": lambda: {pipeline_learning.NAME: pipeline_learning.table()},
    }
)


def main(names: Sequence[str], data: Path = COMMITTED) -> int:
    """Write the named tables beside the others of the folder; exit code 0, or 2 with one line."""
    try:
        for name in names or TABLES:
            if name not in TABLES:
                raise unknown("group of tables", name, TABLES)
            print(*add_tables(TABLES[name](), data), sep="\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
