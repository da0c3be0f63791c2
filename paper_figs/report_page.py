"""Write a results folder as one self-contained HTML page; every string is escaped."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.palette import GRAY, VERMILION
from analysis.sweeps.sweep_comparison import compare, in_words
from analysis.sweeps.sweep_table import (
    about,
    as_word,
    labeled,
    load,
    per_cell,
    settings,
    telling,
    usual_axis,
    usual_metric,
    value_words,
)
from analysis.sweeps.sweep_warnings import sweep_warnings
from analysis.tables.outcomes import ACCURACY
from paper_figs import plot
from paper_figs.figure_registry import PAGE
from paper_figs.save_figures import render, style
from paper_figs.toml_text import as_toml, groups
from paper_figs.value_names import natural
from testbed.errors import UserError, counted, printable
from testbed.results import atomic_files, manifest, store
from testbed.user_files import in_a_file, source_of

CSS = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The page may load nothing and run nothing, whatever a name in it says."""

DRAWN = {
    "curves": "Learning curves", "final": "Outcome", "heat": "Outcome over two settings",
    "collapse": "Collapse", "ess": "Effective sample size", "tails": "Tails of the ratios",
    "seeds": "Every seed",
}  # fmt: skip


def page(folder: Path, metric: str = "") -> str:
    """Return the page of a results folder; raise UserError if no cell is finished."""
    rows = load(folder)
    metric = metric or usual_metric(rows)
    parts, missing = [], []
    for kind, title in DRAWN.items():
        options = {"metric": metric} if kind in ("final", "heat") else {}
        try:
            with style():
                axes = plot.KINDS[kind](rows, **options)
                svg = _svg(axes[0].figure, kind, title)
        except UserError as error:
            missing.append(f"{title}: {error}")
            continue
        parts.append(_figure(svg, f"{title}. {plot.caption(kind, axes, value_words(rows, metric))}"))
    left = f"<details><summary>Not drawn</summary>{_list(missing)}</details>" if missing else ""
    sections = {
        "What was run": _manifest(folder, rows),
        **_own_code(folder),
        "Warnings": _list([*_unfinished(folder), *sweep_warnings(rows)] or ["None."]),
        "Comparison": _comparison(rows, metric),
        "Figures": ("".join(parts) + left),
        "Collapse timeline": _timeline(rows),
        "Reproduce": _commands(folder),
    }
    return document(f"Report of {folder.resolve().name}", sections)


def document(title: str, sections: Mapping[str, str]) -> str:
    """Return a page from HTML sections by heading; only the title is escaped."""
    body = "".join(
        f'<section id="{_slug(name)}"><h2>{name}</h2>{text}</section>' for name, text in sections.items()
    )
    links = " ".join(f'<a href="#{_slug(name)}">{name}</a>' for name in sections)
    title = escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title><style>{CSS}</style></head>'
        f"<body><h1>{title}</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _manifest(folder: Path, rows: pd.DataFrame) -> str:
    found = store.status(folder)
    done = f"{found.done} of {counted(found.planned, 'cell')} done"
    counts = f"{done}, {found.failed} failed, {found.pending} pending."
    varied = [
        {
            "setting": name,
            "values": ", ".join(
                as_word(value) for value in sorted(rows[name].dropna().unique(), key=natural)
            ),
        }
        for name in (*settings(rows), "seed")
    ]
    held = [{"held": name, "value": word} for name, word in about(rows).items()]
    made = [{"made by": name, "version": str(value)} for name, value in manifest.load(folder).made_by.items()]
    made += [{"made by": name, "version": value} for name, value in _machines(folder).items()]
    return f'<p>{counts}</p>{_table(varied)}<div class="pair">{_table(held)}{_table(made)}</div>'


def _own_code(folder: Path) -> dict[str, str]:
    """Return a section with the source code of the user's files, if any was used."""
    cells = [cell for pack in manifest.planned(folder) for cell in pack.cells]
    given = dict.fromkeys(name for cell in cells for name in (cell.recipe, cell.task, cell.staleness))
    parts = []
    for name in filter(in_a_file, given):
        try:
            text = source_of(name)
        except (UserError, SyntaxError, UnicodeDecodeError) as error:
            text = f"Its source cannot be shown: {error}"
        parts.append(f"<p>{escape(name)}</p><pre>{escape(text)}</pre>")
    return {"Own code": "".join(parts)} if parts else {}


def _machines(folder: Path) -> dict[str, str]:
    """Return the processors, operating systems and total seconds of all packs."""
    records = [atomic_files.record(path) for path in sorted((folder / "provenance").glob("*.json"))]
    named = {
        name: sorted({printable(one[name], store.WORD) for one in records if one.get(name)})
        for name in ("cpu", "system")
    }
    took = [one.get("seconds") for one in records]
    seconds = sum(each for each in took if isinstance(each, int | float) and 0 <= each < 1e9)
    return {**{name: ", ".join(found) for name, found in named.items() if found}, "seconds": f"{seconds:.0f}"}


def _unfinished(folder: Path) -> list[str]:
    found = store.status(folder)
    lost = found.planned - found.done
    missing = f"{counted(lost, 'planned cell')} without a result: the comparison may flatter their arms."
    lines = [missing] if lost else []
    return lines + [f"{counted(len(one.cells), 'cell')} {one.kind}: {one.message}" for one in found.failures]


def _comparison(rows: pd.DataFrame, metric: str) -> str:
    try:
        axis = usual_axis(rows)
        table = compare(rows, axis, metric=metric)
    except UserError as error:
        return f"<p>{escape(str(error))}</p>"
    shown = [in_words(row, axis, metric) for row in table.to_dict("records")]
    first = escape(str(table["baseline"].iloc[0]))
    note = (
        f"Arm less {first}, paired by seed; 95% intervals (Student; Wilson for collapse); p by Holm over "
        f"{counted(len(table), 'row')}; P(higher): chance that a run of the arm ends above one of {first}."
    )
    return f"{_table(shown)}<p>{note}</p>"


def _figure(svg: str, caption: str) -> str:
    return f'<figure><div class="wide">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _svg(fig: Any, name: str, title: str) -> str:
    """Return a figure as inline SVG with unique ids and a description for screen readers."""
    text = render(fig, "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    wide = fig.get_figwidth() >= PAGE
    size = "min-width:34rem;max-width:47rem" if wide else "max-width:26rem"
    start = f'<svg role="img" aria-label="{escape(title)}" style="{size}"'
    return text.replace("<svg", start, 1).replace("<defs", f"<title>{escape(title)}</title><defs", 1)


def _timeline(rows: pd.DataFrame) -> str:
    """Return, for each collapsed cell, the step of its best value and the step where half of it was lost."""
    if ACCURACY not in rows:
        return "<p>No accuracy was logged, so collapse is not defined.</p>"
    names = telling(rows, settings(rows))
    found = per_cell(rows, "collapse_step", names)
    found["peak"] = per_cell(rows, "peak_step", names)["peak_step"]
    found["label"], order = labeled(found, names)
    lost = found.dropna(subset=["collapse_step"])
    if lost.empty:
        return "<p>No cell collapsed.</p>"
    with style():
        svg = _svg(
            _timeline_figure(lost, [name for name in order if name in set(lost["label"])]),
            "timeline",
            "Collapse",
        )
    shown = [
        {
            "setting": row["label"],
            "seed": row["seed"],
            "best at step": f"{row['peak']:.0f}",
            "collapsed from step": f"{row['collapse_step']:.0f}",
        }
        for row in lost.to_dict("records")
    ]
    note = (
        "Gray: the step with the best accuracy; red: the first step after which less than half of it remains."
    )
    return _figure(svg, note) + _table(shown)


def _timeline_figure(lost: pd.DataFrame, order: Sequence[str]) -> Figure:
    fig = Figure(figsize=(PAGE, 0.7 + 0.28 * len(order)))
    ax: Axes = fig.subplots()
    for _, row in lost.iterrows():
        place = order.index(row["label"])
        same = lost[lost["label"] == row["label"]]["seed"].tolist()
        y = place + 0.5 * ((same.index(row["seed"]) + 0.5) / len(same) - 0.5)
        ax.plot([row["peak"], row["collapse_step"]], [y, y], color=GRAY, lw=0.8, zorder=1)
        ax.plot(row["peak"], y, ".", color=GRAY)
        ax.plot(row["collapse_step"], y, "|", color=VERMILION, ms=6, mew=1.5)
    ax.set_yticks(range(len(order)), order)
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlabel("optimizer step")
    return fig


def _commands(folder: Path) -> str:
    """Return sweep files and commands that reproduce exactly these cells."""
    cells = [cell for pack in manifest.planned(folder) for cell in pack.cells]
    name = shlex.quote(str(folder))
    parts = []
    for index, some in enumerate(groups(cells)):
        text = as_toml(some)
        if text is None:
            return "<p>These cells do not form a grid; sweep.json in the folder lists them one by one.</p>"
        file = f"sweep{index or ''}.toml"
        command = f"testbed run {file} --out {name}{' --extend' if index else ''}"
        parts.append(f"<p>{file}</p><pre>{escape(text)}</pre><pre>{escape(command)}</pre>")
    drawn = "\n".join(f"testbed {what} {name}" for what in ("plot", "compare", "report"))
    return "".join(parts) + f"<pre>{escape(drawn)}</pre>"
