"""Any results folder drawn: `from paper_figs import plot; plot.curves(plot.load("results/mine"))`.

Every function takes rows of `load`, guesses from the settings that the sweep varies what it is not told, and
returns the matplotlib axes of its panels. Lines in one panel are arms; what else varies has panels of its
own, and no panel has more than FEW arms. `with plot.style():` draws as the project's own figures look.

arm: settings whose combinations are told apart by color. by: settings with a panel each. where: rows
to draw, as ("lag=0,16",). ax: axes to draw on, where one panel is enough. All of them raise UserError for
what the table has not, and for more than MOST panels.
"""

import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.declared_plot import Plot
from analysis.judging.seed_intervals import wilson_interval
from analysis.palette import BLUE, RULE, SHORT, SOLID, VERMILION
from analysis.sweeps.sweep_table import (
    as_word,
    labeled,
    load,
    logged_metric,
    numeric,
    only,
    per_cell,
    setting,
    settings,
    telling,
    usual_metric,
)
from analysis.tables.outcomes import ACCURACY, ESS, ESS_FLOOR, cells
from analysis.tables.tails import HISTOGRAM, exceedances, pool
from paper_figs.figure_registry import COLUMN, PAGE, no_mathtext
from paper_figs.plot_kinds import curves_by_arm, final_by_setting, heat_map
from paper_figs.save_figures import render, style, write_file
from paper_figs.value_names import named
from testbed.errors import UserError

FEW = 5
"""Most arms in one panel."""
MOST = 24
"""Most panels in one figure."""
LONGEST = 60
"""Most characters of an argument in a label."""

Names: TypeAlias = str | Sequence[str] | None
Paint: TypeAlias = Callable[[Axes, pd.DataFrame, Plot], None]
ARM, PANEL = "(arm)", "(panel)"


def curves(
    rows: pd.DataFrame, metric: str = "", *, arm: Names = None, by: Names = None,
    where: Sequence[str] = (), ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw a logged metric against the step: median over seeds, and its order-statistic interval."""
    rows = only(rows, where)
    column = logged_metric(rows, metric or usual_metric(rows))
    if column == ACCURACY:
        rows = rows.assign(**{ACCURACY: rows[ACCURACY].fillna(0.0)})  # a diverged run has lost everything
    plot = Plot("curves by arm", x="step", y=column, x_label="optimizer step")
    return _panels(rows, plot, curves_by_arm, arm, by, ax)


def final(
    rows: pd.DataFrame, metric: str = "", *, x: str = "", arm: Names = None, by: Names = None,
    where: Sequence[str] = (), ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw the final value of cells against a setting: mean over seeds and 95% interval (Student's t)."""
    rows = only(rows, where)
    metric = metric or usual_metric(rows)
    x = setting(rows, x) if x else _usual_x(rows)
    found = per_cell(rows, metric, list(dict.fromkeys([*settings(rows), x])))
    plot = Plot("final by setting", x=x, y=metric, y_label=_final_name(metric))
    return _panels(found, plot, final_by_setting, arm, by, ax)


def collapse(
    rows: pd.DataFrame, *, x: str = "", arm: Names = None, by: Names = None,
    where: Sequence[str] = (), ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw the share of seeds that collapsed against a setting, with Wilson's 95% interval."""
    rows = only(rows, where)
    if ACCURACY not in rows:
        raise UserError("Collapse is defined by accuracy, which these results lack. Draw another kind.")
    x = setting(rows, x) if x else _usual_x(rows)
    found = per_cell(rows, "collapsed", list(dict.fromkeys([*settings(rows), x])))
    plot = Plot("final by setting", x=x, y="collapsed", y_label="share of seeds that collapsed")
    axes = _panels(found, plot, partial(final_by_setting, interval=_share), arm, by, ax)
    for each in axes:
        each.set_ylim(-0.03, 1.03)
    return axes


def heat(
    rows: pd.DataFrame, metric: str = "", *, x: str = "", y: str = "", by: Names = None,
    where: Sequence[str] = (), ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw the final value of cells over two settings: mean over seeds, as a color and a number."""
    rows = only(rows, where)
    metric = metric or usual_metric(rows)
    names = telling(rows, settings(rows))
    known = [*numeric(rows, names), *(name for name in names if name not in numeric(rows, names))]
    x, y = (setting(rows, name) if name else "" for name in (x, y))
    x = x or next((name for name in known if name != y), "")
    y = y or next((name for name in known if name != x), "")
    if x and x == y:
        raise UserError(f"Both axes of the heat map are {x}; a cell needs two settings. Give another x or y.")
    if not x or not y:
        raise UserError(
            f"A heat map needs two settings, and these results vary {', '.join(names) or 'none'}."
        )
    found = per_cell(rows, metric, list(dict.fromkeys([*settings(rows), x, y])))
    others = _columns(rows, by) if by is not None else [name for name in names if name not in (x, y)]
    means = found.groupby([*others, x, y], dropna=False)[metric].mean()
    plot = Plot("heat map", x=x, y=y, value=metric)
    paint = partial(heat_map, span=(float(means.min()), float(means.max())), bar=False)
    axes = _panels(found, plot, paint, (), others, ax)
    label = _final_name(metric)
    axes[0].figure.colorbar(axes[0].collections[0], ax=axes, label=label)
    return axes


def ess(
    rows: pd.DataFrame, *, arm: Names = None, by: Names = None, where: Sequence[str] = (),
    ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw the sequence ESS (Kish, raw, a share of N) against the step, and its floor 1/N."""
    if ESS not in rows:
        raise UserError(f"These results have no {ESS}; draw another kind.")
    axes = curves(rows, ESS, arm=arm, by=by, where=where, ax=ax)
    for each in axes:
        each.set_yscale("log")
        each.set_ylabel("sequence ESS\n(share of N)" if each.get_ylabel() else "")
        if ESS_FLOOR in rows:
            floor = float(rows[ESS_FLOOR].min())
            each.axhline(floor, color=RULE, ls=SHORT, lw=0.8, zorder=1.5)
            each.set_ylim(floor / 1.9, 1.35)
    return axes


def tails(
    rows: pd.DataFrame, *, arm: Names = None, by: Names = None, where: Sequence[str] = (),
    ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw how much of the sequence ratios lies above x: median over seeds of P(log rho >= x), its interval.

    Steps up to the lag are left out: their data are less stale than the lag says.
    """
    rows = only(rows, where)
    if HISTOGRAM not in rows or rows[HISTOGRAM].isna().all():
        raise UserError(f"These results have no {HISTOGRAM}; draw another kind.")
    keys = list(dict.fromkeys([*settings(rows), "seed"]))
    pooled = pool(rows[rows[HISTOGRAM].notna()].fillna({key: as_word(None) for key in keys}), keys)
    plot = Plot(
        "curves by arm", x="log rho", y="share", x_label="log ρ of a sequence", y_label="P(log ρ ≥ x)"
    )
    axes = _panels(exceedances(pooled, keys), plot, curves_by_arm, arm, by, ax)
    for each in axes:
        each.set_yscale("log")
    return axes


def seeds(
    rows: pd.DataFrame, metric: str = "", *, by: Names = None, where: Sequence[str] = (),
    ax: Axes | None = None,
) -> list[Axes]:  # fmt: skip
    """Draw a logged metric against the step, a line per cell; those that collapsed or diverged stand out."""
    rows = only(rows, where)
    column = logged_metric(rows, metric or usual_metric(rows))
    found = per_cell(rows, "collapsed" if ACCURACY in rows else column).set_index("cell")
    fate = pd.Series("held", index=found.index)
    if ACCURACY in rows:
        fate[found["collapsed"] > 0] = "collapsed"
    fate[found["diverged"]] = "diverged"
    rows = rows.assign(**{FATE: rows["cell"].map(fate)})
    plot = Plot("curves by arm", x="step", y=column, x_label="optimizer step")
    return _panels(rows, plot, _traces, (), by, ax)


FATE = "(fate)"
FATES: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {"held": (BLUE, SOLID), "collapsed": (VERMILION, SOLID), "diverged": (VERMILION, SHORT)}
)
"""What became of a cell: the color and dash of its line."""


def _traces(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    told: set[str] = set()
    for _, part in table.groupby([FATE, "cell"]):
        fate = str(part[FATE].iloc[0])
        color, dash = FATES[fate]
        label = "" if fate in told else fate
        told.add(fate)
        ax.plot(part["step"], part[plot.y], color=color, ls=dash, lw=0.8, alpha=0.8, marker="", label=label)


def _share(x_N: np.ndarray) -> Any:
    return wilson_interval(int(x_N.sum()), len(x_N))


def _final_name(metric: str) -> str:
    return metric if " " in metric or "_" in metric or metric == "best" else f"final {metric}"


def _usual_x(rows: pd.DataFrame) -> str:
    names = telling(rows, settings(rows))
    if not names:
        raise UserError("Only the seed varies in these results, so there is no setting to draw against.")
    return (numeric(rows, names) or names)[0]


def _columns(rows: pd.DataFrame, names: Names) -> list[str]:
    given = [names] if isinstance(names, str) else list(names or ())
    return list(dict.fromkeys(setting(rows, name) for name in given))


def _roles(rows: pd.DataFrame, plot: Plot, arm: Names, by: Names) -> tuple[list[str], list[str]]:
    """Return the settings that are told apart by color, and those by panel: FEW colors at most."""
    taken = [name for name in (plot.x, plot.y if plot.value else "") if name in rows and name != "step"]
    open_ = [name for name in telling(rows, dict.fromkeys([*taken, *settings(rows)])) if name not in taken]
    by_given = _columns(rows, by)
    if both := [name for name in _columns(rows, arm) if name in by_given]:
        raise UserError(f"{both[0]} has a color and a panel per value; leave it out of arm or of by.")
    arms = [name for name in open_ if name not in by_given][:1] if arm is None else _columns(rows, arm)
    panels = by_given if by is not None else [name for name in open_ if name not in arms]
    if left := [name for name in open_ if name not in (*arms, *panels)]:
        arms = [*arms, *left]  # cells of different settings never pass for seeds of one
    if _size(rows, arms) > FEW and arm is None and by is None and panels and _size(rows, panels) <= FEW:
        return panels, arms
    return ([], [*panels, *arms]) if _size(rows, arms) > FEW else (arms, panels)


def _shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with recipes as their sources write them, and long texts, as system prompts, shortened."""
    rows = rows.copy(deep=False)
    words = {one: named(one) for one in rows.get("recipe", pd.Series(dtype=str)).unique()}
    if words and len(set(words.values())) == len(words):
        rows["recipe"] = rows["recipe"].map(words)
    for name in (name for name in rows if "_args." in str(name)):
        texts = sorted({one for one in rows[name].unique() if isinstance(one, str) and len(one) > LONGEST})
        cut = {one: f"{one[:25]} … {one[-12:]} ({n})" for n, one in enumerate(texts, start=1)}
        rows[name] = rows[name].map(lambda one, cut=cut: cut.get(one, one))
    return rows


def _written(rows: pd.DataFrame, names: list[str]) -> tuple[pd.Series, list[str]]:
    """Return a label per row as a figure shows it, and the labels in the order of the settings' values."""
    (given, order), (shown, _) = labeled(rows, names), labeled(_shown(rows), names)
    # matplotlib hides labels that start with "_" from legends
    text = {one: re.sub("^_", " _", each) for one, each in zip(given, shown, strict=True)}
    return given.map(text), [text[one] for one in order]


def _size(rows: pd.DataFrame, names: Sequence[str]) -> int:
    return len(rows[list(names)].drop_duplicates()) if names else 1


def _panels(
    rows: pd.DataFrame, plot: Plot, paint: Paint, arm: Names, by: Names, ax: Axes | None
) -> list[Axes]:
    """Paint every panel, all with the same arms in the same looks, and return their axes."""
    cells = rows["cell"].nunique() if "cell" in rows else 0
    rows = rows.dropna(subset=[plot.x, plot.y, *([plot.value] if plot.value else [])])
    if rows.empty:
        raise UserError(f"No cell has a number for {plot.value or plot.y}, so there is nothing to draw.")
    arms, panels = _roles(rows, plot, arm, by)
    arm_of, order = _written(rows, arms)
    panel_of, titles = _written(rows, panels)
    rows = _shown(rows)
    if len(titles) > (MOST if ax is None else 1):
        raise UserError(
            f"That is {len(titles)} panels, of {', '.join(panels)}; at most {MOST if ax is None else 1} are "
            "drawn. Choose cells, as --where lag=0,16, or fewer settings."
        )
    last = _size(rows, panels[-1:])
    even = math.ceil(len(titles) / math.ceil(len(titles) / 4))  # five panels stand as 3 + 2, not 4 + 1
    columns = last if len(titles) % last == 0 and 1 < last <= FEW else even
    axes = [ax] if ax is not None else _grid(len(titles), columns, shared=plot.x in ("step", "log rho"))
    many = replace(plot, arm=(ARM,) if arms else (), order=tuple(order) if arms else ())
    rows = rows.assign(**{ARM: arm_of, PANEL: panel_of})
    for each, title in zip(axes, titles, strict=False):
        paint(each, rows[rows[PANEL] == title], many)
        each.set_title(textwrap.fill(title, 78 // columns))
        if plot.x == "step":
            each.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    _label(axes[: len(titles)], plot)
    _legend(axes[: len(titles)], ax is None)
    if ax is None and cells and (lost := cells - rows["cell"].nunique()):
        text = f"{lost} of {cells} cells have no number here and are left out"
        axes[0].figure.supxlabel(text, fontsize=7, x=0.01, ha="left")
    no_mathtext(_figure(axes[0]))
    return axes[: len(titles)]


def _grid(count: int, columns: int, shared: bool) -> list[Axes]:
    lines = math.ceil(count / columns)
    fig = Figure(figsize=(COLUMN * 1.25 if count == 1 else PAGE, 2.7 if count == 1 else 0.4 + 1.7 * lines))
    axes = list(fig.subplots(lines, columns, sharex=shared, sharey=True, squeeze=False).flat)
    for each in axes[count:]:
        each.remove()
        above = axes[axes.index(each) - columns]
        above.tick_params(labelbottom=True)
    return axes


def _label(axes: Sequence[Axes], plot: Plot) -> None:
    """Name the outer axes only: the lowest of every column, the first of every row."""
    for each in axes:
        spec = each.get_subplotspec()
        lowest = spec is None or axes.index(each) + spec.get_gridspec().ncols >= len(axes)
        each.set_xlabel((plot.x_label or plot.x) if lowest else "")
        each.set_ylabel((plot.y_label or plot.y) if spec is None or spec.is_first_col() else "")


def _legend(axes: Sequence[Axes], outside: bool) -> None:
    found: dict[str, Any] = {}
    for each in axes:
        found |= {text: mark for mark, text in zip(*each.get_legend_handles_labels(), strict=True)}
    found.pop("", None)
    if not found:
        return
    if outside:
        texts = [textwrap.fill(text, 50) for text in found]
        entry = 39 + 4.6 * max(len(line) for text in texts for line in text.split("\n"))  # points, at 7.5 pt
        ncols = max(1, min(len(found), 5, int(_figure(axes[0]).get_figwidth() * 72 / entry)))
        axes[0].figure.legend(found.values(), texts, loc="outside upper center", ncols=ncols)
    else:
        axes[0].legend(found.values(), found)


def caption(kind: str, axes: Sequence[Axes], value: str = "") -> str:
    """Return the description of a plot: the docstring of its kind without the verb, with its metric.

    value: what a cell's number is, as `sweep_table.value_words` says it, for kinds that draw one per cell.
    """
    text = (inspect.getdoc(KINDS[kind]) or "").partition("\n\n")[0].replace("\n", " ").removeprefix("Draw ")
    text = text.replace("a logged metric", f"the metric {axes[0].get_ylabel()}")
    if value:
        text = text.replace("the final value of cells", value)
    return text[:1].upper() + text[1:]


KINDS: Mapping[str, Callable[..., list[Axes]]] = MappingProxyType(
    {
    "curves": curves, "final": final, "heat": heat, "collapse": collapse, "ess": ess, "tails": tails,
    "seeds": seeds,
})  # fmt: skip


def usual_kind(rows: pd.DataFrame) -> str:
    """Return heat for two settings with three numbers or more each, final for one, else curves."""
    long = [name for name in numeric(rows, telling(rows, settings(rows))) if rows[name].nunique() > 2]
    return "heat" if len(long) > 1 else "final" if long else "curves"


def save(axes: Sequence[Axes], path: str | Path) -> Path:
    """Write the figure of these axes as .png, .pdf or .svg, byte for byte the same every time."""
    path = Path(path)
    write_file(path, render(_figure(axes[0]), file_kind(path)))
    return path


def _figure(ax: Axes) -> Figure:
    found = ax.get_figure(root=True)
    if found is None:
        raise UserError("These axes no longer belong to a figure. Draw them again before saving.")
    return found


def file_kind(path: Path) -> str:
    """Return png, pdf or svg; raise UserError for another suffix."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"{path}: expected a name that ends in .png, .pdf or .svg.")
    return path.suffix[1:]


__all__ = ["KINDS", "cells", "load", "save", "style", "usual_kind", *KINDS]
