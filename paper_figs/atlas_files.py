"""Files of `testbed evidence pages atlas`: the table, the page and one picture per family."""

from pathlib import Path

from analysis.experiments.cards.objective_weights import NAME, table_of
from analysis.pages import atlas_page
from analysis.pages.stack_pages import pages
from analysis.tables.committed import COMMITTED, Table
from analysis.tables.making import add_tables
from paper_figs.save_figures import render, style
from paper_figs.weight_figures import draw_family
from testbed.errors import UserError

DATA = COMMITTED
DOCS = Path(__file__).resolve().parents[1] / "docs"
DPI = 140
"""Resolution of the pictures: sharp on a screen, some 50 KiB each."""


def write(data: Path = DATA, docs: Path = DOCS) -> list[Path]:
    """Write table, manifest, pages and pictures, and return their paths; UserError if a folder refuses."""
    from testbed.inspection import atlas  # loads torch, as nothing else in this package

    table = table_of(atlas.atlas())
    written = add_tables({NAME: table}, data)
    files = {"objectives.md": atlas_page.page().encode()}
    files |= {atlas_page.picture(family): png(table, family) for family in sorted(set(table.frame["family"]))}
    files |= {f"stacks/{name}": text.encode() for name, text in pages().items()}
    try:
        (docs / "stacks").mkdir(parents=True, exist_ok=True)
        for name, body in files.items():
            (docs / name).write_bytes(body)
    except OSError as error:
        raise UserError(f"{docs} cannot be written: {error.strerror}. Give another folder.") from error
    return [*written, *(docs / name for name in files)]


def png(table: Table, family: str) -> bytes:
    """Return a family's picture; its Description names the table that it was drawn from."""
    with style():
        description = f"{NAME} {table.sha256}"
        return render(draw_family(table.frame, family), "png", dpi=DPI, description=description)
