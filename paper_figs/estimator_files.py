"""Write the table behind estimator-map to the committed ones: python -m paper_figs.estimator_files."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.estimator_tables import tables
from analysis.load import COMMITTED, MANIFEST, is_committed, load_committed
from paper_figs.export import write_tables


def write(data: Path = COMMITTED) -> list[Path]:
    """Compute the table, write it with the manifest and return its path; equal bytes every time.

    Raises UserError when the folder cannot be written.
    """
    made = tables()
    others = json.loads((data / MANIFEST).read_text())["tables"] if is_committed(data) else {}
    kept = load_committed([name for name in others if name not in made], data) if others else {}
    write_tables({**kept, **made}, data)
    return [data / f"{name}.csv" for name in made]


if __name__ == "__main__":
    for path in write():
        print(path)
