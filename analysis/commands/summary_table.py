"""The table that ends a sweep: a row per setting with outcome, interval and number of seeds."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from testbed.cli import show
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.user_files import short_names

Row = dict[str, Any]


def summarize(folder: Path) -> list[Row]:
    """Return the summary's rows, one per setting, aggregated over seeds; empty without results."""
    from analysis.tables.outcomes import summary_table
    from analysis.tables.value_table import VALUE, value_table
    from testbed.results.store import read

    try:
        frame = read(folder).to_pandas()
    except UserError:  # nothing finished yet: the counts say so
        return []
    frame["recipe"] = frame["recipe"].map(short_names(frame["recipe"].unique()))
    if "accuracy" in frame:
        found = summary_table(frame)
    elif VALUE in frame:
        found = value_table(frame)
    else:
        return []
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


def print_summary(summary: Sequence[Row]) -> None:
    """Print the rows of `summarize` as a table, with the shared settings above and notes below."""
    if not summary:
        return

    known = ["task", "recipe", "lag", *(item.name for item in fields(Run))]
    present = [name for name in dict.fromkeys(known) if any(name in row for row in summary)]
    values = {name: {str(row.get(name, "")) for row in summary} for name in present}
    columns = [name for name in present if name in ("recipe", "lag") or len(values[name]) > 1]
    shared = {name: summary[0][name] for name in present if name not in columns}
    for name in (each for each in columns if each.endswith("_args")):
        summary, common = _without_common(summary, name)
        shared |= {name: common} if common else {}
    exact = "ess_exact" in summary[0]
    lost = any(row.get("diverged", 0) > 0 for row in summary)
    if shared:
        show.say([", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shared.items())])
    told = _value if exact else _accuracy
    show.table([{**_named(row, columns), **told(row), **(_diverged(row) if lost else {})} for row in summary])
    show.say(_value_notes() if exact else _accuracy_notes(summary))


def _without_common(summary: Sequence[Row], name: str) -> tuple[list[Row], str]:
    """Return the rows without the arguments that all of them have in a column, and these arguments."""
    parts = [re.split(r",(?=\w+=)", str(row.get(name, ""))) for row in summary]
    common = [part for part in parts[0] if all(part in each for each in parts)]
    rest = [",".join(part for part in each if part not in common) for each in parts]
    return [{**row, name: left} for row, left in zip(summary, rest, strict=True)], ",".join(common)


def next_steps(folder: Path, several: bool = True) -> list[str]:
    """Return commands that plot a folder's results and, with several settings, compare them."""
    name = shlex.quote(str(folder))
    return [f"testbed {what} {name}" for what in ("plot", *["compare"] * several, "report")]


def _named(row: Row, settings: Sequence[str]) -> Row:
    found = {name: row.get(name, "") for name in settings}
    words = {
        name.replace("_", " "): f"{value:g}" if isinstance(value, float) else value
        for name, value in found.items()
    }
    return {**words, "seeds": int(row["seeds"] if "seeds" in row else row["n"])}


def _diverged(row: Row) -> Row:
    seeds = int(row["seeds"] if "seeds" in row else row["n"])
    return {"diverged": f"{row['diverged'] * seeds:.0f} of {seeds}"}


def _accuracy(row: Row) -> Row:
    seeds = int(row["seeds"])
    return {
        "final": _interval(row, seeds),
        "best": f"{row['best']:.2f}",
        "smallest ESS": f"{row['ess_min']:.3f}",
        "collapsed": f"{row['collapsed'] * seeds:.0f} of {seeds}",
    }


def _value(row: Row) -> Row:
    return {
        "final": _interval(row, int(row["n"]), ".3f"),
        "best": f"{row['best']:.3f}",
        "exact ESS": "unknown" if isnan(row["ess_exact"]) else f"{row['ess_exact']:.3g}",
        "sampled ESS": f"{row['ess_sampled']:.3g}",
    }


def _interval(row: Row, seeds: int, form: str = ".2f") -> str:
    low, high = row["final_low"], row["final_high"]
    bounds = f" [{low:{form}}, {high:{form}}]" if seeds > 1 and isfinite(low) and isfinite(high) else ""
    return f"{row['final']:{form}}{bounds}"


def _value_notes() -> list[str]:
    return [
        "final: exact value in the last logged row, best: in any; mean over seeds [95% Student interval].",
        "exact ESS, sampled ESS: share of sequences, the smallest of all logged steps.",
    ]


def _accuracy_notes(summary: Sequence[Row]) -> list[str]:
    from analysis.tables.outcomes import KEPT, RISE, WINDOW

    floors = sorted({f"{row['ess_floor']:.3f}" for row in summary})
    few = min(int(row["seeds"]) for row in summary) < 6
    what = "range of the seeds" if few else "95% interval of the median"
    return [
        f"final, best: accuracy, the mean of {WINDOW} evaluations, which lags behind a curve that rises; "
        f"median over seeds [{what}].",
        f"smallest ESS: share of sequences; it cannot read below its floor 1/N, here {' and '.join(floors)}.",
        f"collapsed: rose by {RISE:g} or more, and ended with less than {KEPT:.0%} of its best accuracy.",
    ]
