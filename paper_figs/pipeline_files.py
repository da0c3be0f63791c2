"""Write the table behind `pipeline-frontier`, and its manifest entry: python -m paper_figs.pipeline_files."""

from __future__ import annotations

import sys
from pathlib import Path

from analysis import pipeline_table
from analysis.load import COMMITTED, is_committed, load_committed
from paper_figs.export import write_tables


def write(data: Path = COMMITTED) -> Path:
    """Simulate the pipelines again, write table and manifest, and return the table's path.

    The other tables of the folder stay as they are. Raises UserError when the folder cannot be written.
    """
    others = load_committed(folder=data) if is_committed(data) else {}
    write_tables({**others, pipeline_table.NAME: pipeline_table.table()}, data)
    return data / f"{pipeline_table.NAME}.csv"


if __name__ == "__main__":
    print(write(*map(Path, sys.argv[1:])))
