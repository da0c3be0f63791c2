"""Write the table of tail indices beside the other committed tables: python -m paper_figs.tail_files."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.load import COMMITTED, MANIFEST, is_committed, load_committed
from analysis.tail_tables import NAME, tail_stability
from paper_figs.export import write_tables


def write(data: Path = COMMITTED) -> Path:
    """Compute the table, write it with the manifest and return its path; equal bytes every time.

    Raises UserError when the folder cannot be written.
    """
    made = tail_stability()
    others = json.loads((data / MANIFEST).read_text())["tables"] if is_committed(data) else {}
    kept = load_committed([name for name in others if name != NAME], data) if others else {}
    write_tables({**kept, NAME: made}, data)
    return data / f"{NAME}.csv"


if __name__ == "__main__":
    print(write())
