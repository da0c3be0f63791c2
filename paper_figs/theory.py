"""Compute the exact tables behind the figures of theory: python -m paper_figs.theory [NAME …].

Names: gradients, limits, estimators, tails, pipelines (which takes minutes); all of them by default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from analysis import estimator_tables, gradient_tables, limit_tables, pipeline_table, tail_tables
from analysis.load import COMMITTED, Table
from paper_figs.export import add_tables
from testbed.errors import UserError, unknown

TABLES: Mapping[str, Callable[[], Mapping[str, Table]]] = MappingProxyType(
    {
        "gradients": gradient_tables.tables,
        "limits": limit_tables.tables,
        "estimators": estimator_tables.tables,
        "tails": lambda: {tail_tables.NAME: tail_tables.tail_stability()},
        "pipelines": lambda: {pipeline_table.NAME: pipeline_table.table()},
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
