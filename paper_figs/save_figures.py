"""Draw figures from tables and save them as PDF and PNG, byte for byte the same every time."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from analysis.tables.committed import Table
from analysis.tables.condensed import load_tables
from paper_figs.figure_registry import FIGURES, draw, no_mathtext
from testbed.errors import UserError, unknown

OUT = Path(__file__).resolve().parent / "out"
STYLE = Path(__file__).resolve().parent / "style.mplstyle"
MANIFEST = "manifest.json"

# Without these entries matplotlib writes the time and its own version into the files.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
}


@dataclass(frozen=True)
class Saved:
    """A saved figure. table: name and sha256 of its data. files: sha256 by file name."""

    name: str
    pdf: Path
    png: Path
    caption: str
    table: Mapping[str, str]
    files: Mapping[str, str]


@contextmanager
def style() -> Iterator[None]:
    """Use matplotlib's defaults and style.mplstyle instead of the user's settings; restore them at exit."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc_file(STYLE, use_default_template=False)
        yield


def figures(
    names: Sequence[str] = (),
    data: Path | None = None,
    out: Path = OUT,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Saved]:
    """Draw the named figures (all that the tables allow, if none is named), save them, return what was saved.

    Args:
        names: names of figures; `testbed list figures` lists them.
        data: folder of condensed CSV tables, or a results folder; None takes the committed tables.
        out: folder for NAME.pdf, NAME.png and manifest.json (inputs and files with their sha256).
        progress: called with one line per step of work.

    Raises:
        UserError: unknown figure, missing table, a folder that cannot be read or written.
    """
    for name in names:
        if name not in FIGURES:
            raise unknown("figure", name, FIGURES)
    progress("reading tables" + (f" from {data}" if data else ""))
    tables = load_tables(data)
    chosen = list(dict.fromkeys(names)) or [n for n in FIGURES if FIGURES[n].promises["data"] in tables]
    for name in chosen:
        if FIGURES[name].promises["data"] not in tables:
            raise UserError(
                f"Figure '{name}' is drawn from table '{FIGURES[name].promises['data']}', but "
                f"{data or 'the data'} only gives {', '.join(sorted(tables)) or 'none'}. Run the sweep that "
                "fills it, or name other figures."
            )
    saved = []
    for index, name in enumerate(chosen, start=1):
        progress(f"figure {index}/{len(chosen)}: {name}")
        saved.append(_save(name, tables[FIGURES[name].promises["data"]], out))
    try:
        entries = dict(json.loads((out / MANIFEST).read_text())["figures"])
    except (OSError, ValueError, KeyError, TypeError):
        entries = {}
    for each in saved:
        entries[each.name] = {
            "caption": each.caption,
            "supports": list(FIGURES[each.name].promises["supports"]),
            "table": dict(each.table),
            "files": dict(each.files),
        }
    content = {"matplotlib": matplotlib.__version__, "figures": dict(sorted(entries.items()))}
    write_file(out / MANIFEST, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    return saved


def _save(name: str, table: Table, out: Path) -> Saved:
    promises = FIGURES[name].promises
    with style():
        drawn = draw(name, table.frame)
        no_mathtext(drawn)
        # Laid out once, so that both files have the very same layout, and in half the time.
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")
        content = {f"{name}.{kind}": render(drawn, kind) for kind in ("pdf", "png")}
    for file, body in content.items():
        write_file(out / file, body)
    return Saved(
        name=name,
        pdf=out / f"{name}.pdf",
        png=out / f"{name}.png",
        caption=f"{promises['caption']} {promises['counted'](table.frame)}".rstrip(),
        table={"name": table.name, "sha256": table.sha256},
        files={file: hashlib.sha256(body).hexdigest() for file, body in content.items()},
    )


def render(drawn: Figure, kind: str, *, dpi: float | None = None, description: str = "") -> bytes:
    """Return the figure as bytes of a pdf, png or svg file, without time stamp or versions.

    No label is read as mathtext. dpi: by default the style's. description: kept in a png file.
    """
    no_mathtext(drawn)
    buffer = io.BytesIO()
    metadata = _METADATA[kind] | ({"Description": description} if description else {})
    drawn.savefig(buffer, format=kind, metadata=metadata, dpi=dpi or matplotlib.rcParams["savefig.dpi"])
    return buffer.getvalue()


def write_file(path: Path, body: bytes) -> None:
    """Write a file atomically: a reader never sees half a figure."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(body)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Give another folder, or free some space."
        ) from error
