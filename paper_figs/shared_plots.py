"""Draw the figures of experiments that declare a shared kind of plot; they need no file here.

What a kind draws is in `analysis.declared_plot.KINDS`; every experiment with a `Plot` has a figure of its
name.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.declared_plot import CENTERS, KINDS, Plot
from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging.comparison import Comparison
from analysis.tables.outcomes import need
from paper_figs.figure_registry import COLUMN, FIGURES, PAGE, figure
from paper_figs.plot_kinds import DRAW, arms, heat_map, keep_shares_within, word
from paper_figs.value_names import TITLES, natural, proper, title


def draw(table: pd.DataFrame, *, plot: Plot) -> Figure:
    """Return the figure of a shared plot: column-wide with one panel, else as wide as the page."""
    panels = list(_panels(table, plot))
    across = len(panels) // (len(plot.plots) if plot.panel else 1)
    if not (plot.panel and plot.also):  # else a row for each of `also`
        across = -(-across // -(-across // ACROSS))  # five panels stand as 3 + 2, not 4 + 1
    down = -(-len(panels) // across)
    rows = max(each[each_plot.y].nunique() if plot.kind == "strips" else 0 for each_plot, each, _ in panels)
    high = 0.7 + 0.24 * rows if rows else 2.7
    fig = Figure(figsize=(COLUMN, high) if across == 1 else (PAGE, high if down == 1 else 0.5 + 1.8 * down))
    # Panels of a column of the table mean one thing; those of `also`, or of a column made by `of`, others.
    # Of a scatter the order within a panel counts.
    alike = plot.panel in table and (plot.kind != "scatter" or not plot.of)
    share: dict[str, Any] = {"sharex": True, "sharey": "row" if plot.also else True} if alike else {}
    share |= {"sharey": False} if plot.kind == "strips" else {}
    axes = fig.subplots(down, across, squeeze=False, **share)
    for ax, (each, shown, text) in zip(axes.flat, panels, strict=False):
        if each.value and plot.also:  # the numbers are in the fields
            heat_map(ax, shown, each, bar=False)
        else:
            DRAW[each.kind](ax, shown, each)
        keep_shares_within(ax, shown, each)
        x_label, y_label = axis_labels(each)
        spec = ax.get_subplotspec()
        ax.set_title(text, fontsize=8)
        lowest = not share or spec.is_last_row() or spec.num1 + across >= len(panels)
        ax.set_xlabel(x_label if lowest else "")
        ax.tick_params(labelbottom=lowest)
        ax.set_ylabel(y_label if not plot.panel or spec.is_first_col() else "")
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    known = {
        text: mark for ax in fig.axes for mark, text in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    known.pop("", None)
    if known:
        columns = 4 if across > 1 or max(map(len, known)) < 4 else 2  # a number needs little room
        above: dict[str, Any] = {"loc": "outside upper center", "ncols": columns, "columnspacing": 1.2}
        fig.legend(known.values(), known.keys(), title=title(plot) or None, **above)
    return fig


ACROSS = 4
"""Most panels side by side."""


def _panels(table: pd.DataFrame, plot: Plot) -> Iterator[tuple[Plot, pd.DataFrame, str]]:
    """Yield every panel's plot, with all arms in the order of their looks, its rows and its title."""
    for each in plot.plots:
        made = table if each.of is None else each.of(table)
        need(made, sorted(replace(each, also=()).columns))
        shown = _shown(made, each)
        each = replace(each, also=(), names={**proper(shown, each), **each.names})
        if not each.panel:
            yield each, shown, each.value_label if plot.also else ""
            continue
        each = replace(each, order=each.order or tuple(arms(shown, each)) if each.arm else ())
        for value in sorted(shown[each.panel].unique(), key=natural):
            text = word(value)
            words = each.panel_label and f"{each.panel_label} {text}"
            text = each.names.get(text, words or text).replace("_", " ")
            yield each, shown[shown[each.panel] == value], textwrap.fill(text, 24)


def axis_labels(plot: Plot) -> tuple[str, str]:
    """Return both axes' labels: the plot's, else the column's title; recipes have names that say it."""
    usual = ("share of false alarms", "share of events caught") if plot.kind == "ROC" else (plot.x, plot.y)
    x, y = ("" if name == "recipe" else TITLES.get(name, name.replace("_", " ")) for name in usual)
    return plot.x_label or x, plot.y_label or y


def caption(experiment: Experiment, plot: Plot) -> str:
    """Return the caption of a shared plot: the question, what is drawn with which marks, in which world."""
    by = f", by {title(plot)}" if title(plot) else ""
    by += f", a panel for each {plot.panel_label or plot.panel}" if plot.panel else ""
    only = "".join(f"; {column} {', '.join(map(str, _each(x)))}" for column, x in plot.where.items())
    keys = [key for key in experiment.keys if key not in plot.columns and key != "run"]
    if plot.of is not None:  # what it makes of the table has other columns
        keys = [key for key in keys if key == "seed"]
    words = [
        f"{(TITLES.get(key) or key.rpartition('.')[2].replace('_', ' ')).removesuffix('s')}s" for key in keys
    ]
    over = " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]])) or "rows"
    marks = KINDS[plot.kind].format(over=over, center=CENTERS[plot.center])
    drawn = f"Drawn: {'; '.join(map(_what, plot.plots))}{by}{only}; {marks}."
    said = f"{plot.says} {marks[0].upper()}{marks[1:]}." if plot.says else drawn
    here = f" Here: {experiment.differs}." if experiment.differs and not plot.says else ""
    return f"{experiment.question} {said}{here}"


def _what(plot: Plot) -> str:
    x, y = axis_labels(plot)
    if plot.kind == "strips":
        return f"{x} by {y or plot.y}"
    return (
        f"{plot.value_label or plot.value} over {x} and {y}"
        if plot.value
        else f"{y or plot.y} against {x or plot.x}"
    )


def _each(wanted: object) -> list[object]:
    return list(wanted) if isinstance(wanted, tuple) else [wanted]


def _shown(table: pd.DataFrame, plot: Plot) -> pd.DataFrame:
    """Return the rows that match the plot's `where`."""
    for column, wanted in plot.where.items():
        table = table[table[column].isin(_each(wanted))]
    return table


def counted(table: pd.DataFrame, *, plot: Plot) -> str:
    """Return a sentence with the number of rows and seeds per mark."""
    table = _shown(table if plot.of is None else plot.of(table), plot)
    places = {
        "strips": (plot.y,),
        "heat map": (plot.x, plot.y),
        "ROC": (),
        "frontier": (),
        "scatter": (plot.x, plot.y),
    }
    by = [*([plot.panel] if plot.panel else []), *plot.arm, *places.get(plot.kind, (plot.x,))]
    marks = [rows for _, rows in table.groupby(by, dropna=False)] if by else [table]
    if max(map(len, marks)) == 1:
        return "A mark is one row, without interval."
    seed = [name for name in ("run", "seed") if name in table and name not in by]
    sizes = [len(rows) for rows in marks]
    seeds = [len(rows[seed].drop_duplicates()) for rows in marks] if "seed" in seed else sizes
    if "seed" in seed and seeds == sizes:
        return f"Seeds of a mark: {_range(seeds)}."
    return f"Rows of a mark: {_range(sizes)}" + (f", of {_range(seeds)} seeds." if "seed" in seed else ".")


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def register(experiment: Experiment) -> None:
    """Make an experiment's shared plot a figure of its name."""
    if isinstance(experiment.figure, Plot):
        plot = replace(experiment.figure, center=compared(experiment, experiment.figure))
        made = figure(
            experiment.name,
            data=experiment.name,
            caption=caption(experiment, plot),
            supports=tuple(name for name, e in experiment.claims.items() if e.promises["table"]),
            counted=partial(counted, plot=plot),
        )
        made(partial(draw, plot=plot))


def compared(experiment: Experiment, plot: Plot) -> str:
    """Return what the experiment's claims compare of what the plot shows, "median" if they differ."""
    checks = [entry.function for entry in experiment.claims.values()]
    shown = {each.x for each in plot.plots}
    asked = [check for check in checks if isinstance(check, Comparison) and check.outcome in shown]
    # The median is that of the logarithm, too.
    used = {"geometric mean" if check.log and check.typical == "mean" else check.typical for check in asked}
    return used.pop() if len(used) == 1 else "median"


for _experiment in EXPERIMENTS.values():
    register(_experiment)

__all__ = ["DRAW", "FIGURES", "draw", "register"]
