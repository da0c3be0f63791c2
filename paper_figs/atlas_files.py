"""What `testbed objectives atlas` writes: the table, the page and one picture per family."""

from __future__ import annotations

import io
import json
from pathlib import Path

from analysis.load import COMMITTED, MANIFEST, Table, is_committed, load_committed
from analysis.objective_table import NAME, table_of
from paper_figs.export import write_tables
from paper_figs.objective_weights import draw_family
from paper_figs.run import style
from testbed.errors import UserError

DATA = COMMITTED
DOCS = Path(__file__).resolve().parents[1] / "docs"
DPI = 140
"""Resolution of the pictures: sharp on a screen, some 50 KiB each."""


def write(data: Path = DATA, docs: Path = DOCS) -> list[Path]:
    """Write table, manifest, page and pictures from the registry; return their paths.

    Raises UserError when a folder cannot be written.
    """
    from testbed import atlas, atlas_page  # torch is loaded here, and nowhere else in this package

    table = table_of(atlas.atlas())
    write_tables({**_others(data), NAME: table}, data)
    files = {"objectives.md": atlas_page.page().encode()}
    files |= {atlas_page.picture(family): png(table, family) for family in sorted(set(table.frame["family"]))}
    try:
        docs.mkdir(parents=True, exist_ok=True)
        for name, body in files.items():
            (docs / name).write_bytes(body)
    except OSError as error:
        raise UserError(f"{docs} cannot be written: {error.strerror}. Give another folder.") from error
    return [data / f"{NAME}.csv", *(docs / name for name in files)]


def _others(data: Path) -> dict[str, Table]:
    """Return the other tables of the folder: this one may be missing or broken, it is made again."""
    if not is_committed(data):
        return {}
    names = json.loads((data / MANIFEST).read_text())["tables"]
    return load_committed([name for name in names if name != NAME], data)


def png(table: Table, family: str) -> bytes:
    """Return a family's picture; its Description names the table that it was drawn from."""
    buffer = io.BytesIO()
    metadata = {"Software": None, "Description": f"{NAME} {table.sha256}"}
    with style():
        draw_family(table.frame, family).savefig(buffer, format="png", dpi=DPI, metadata=metadata)
    return buffer.getvalue()
