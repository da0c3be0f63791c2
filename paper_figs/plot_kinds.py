"""Draw each shared kind of plot; `analysis.declared_plot.KINDS` lists the kinds."""

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatterMathtext, SymmetricalLogLocator

from analysis.declared_plot import Plot
from analysis.judging.seed_intervals import Interval, median_interval, student_interval
from analysis.palette import BLUE, INK, LOOKS, RULE, SHORT, Look
from paper_figs.value_names import natural

Draw: TypeAlias = Callable[[Axes, pd.DataFrame, Plot], None]


def arms(table: pd.DataFrame, plot: Plot) -> dict[str, pd.DataFrame]:
    """Return the rows of every arm by label; without arms, all rows under ""."""
    if not plot.arm:
        return {"": table}
    groups = sorted(table.groupby(list(plot.arm), dropna=False), key=lambda each: [*map(natural, each[0])])
    found = {", ".join(plot.names.get(w := word(part), w) for part in keys): rows for keys, rows in groups}
    return {label: found.get(label, table.iloc[:0]) for label in plot.order or found}


def word(value: object) -> str:
    if isinstance(value, float):
        return "none" if np.isnan(value) else f"{value:g}"
    return {True: "yes", False: "no"}[bool(value)] if isinstance(value, bool | np.bool_) else str(value)


def _places(plot: Plot, values: list[object]) -> list[str]:
    """Return the tick labels of an axis, wrapped at 12 letters."""
    words = [f"{v:.3g}" if isinstance(v, float) and v % 1 else word(v) for v in values]
    return [textwrap.fill(plot.names.get(word(v), w), 12) for v, w in zip(values, words, strict=True)]


def _look(index: int) -> tuple[Look, float]:
    return LOOKS[index % len(LOOKS)], 1.2 if index < len(LOOKS) else 0.7


def curves_by_arm(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw the median of y at every x with its order-statistic interval, a line and a band per arm."""
    for index, (label, rows) in enumerate(arms(table, plot).items()):
        found = [(x, median_interval(part[plot.y].to_numpy())) for x, part in rows.groupby(plot.x)]
        style, width = _look(index)
        x_N = np.array([x for x, _ in found], dtype=np.float64)
        ax.fill_between(
            x_N, [i.low for _, i in found], [i.high for _, i in found], color=style.color, alpha=0.16, lw=0
        )
        centers = [i.center for _, i in found]
        ax.plot(x_N, centers, color=style.color, marker=style.marker, ls=style.dash, lw=width, label=label)
    lines = ax.get_lines()
    for index, line in enumerate(lines):  # about six marks each, at places of their own
        every = max(len(np.asarray(line.get_xdata())) // 6, 1)
        line.set_markevery((index * every // len(lines), every))
    _log(ax, plot.log)


def final_by_setting(
    ax: Axes, table: pd.DataFrame, plot: Plot, interval: Callable[[np.ndarray], Interval] = student_interval
) -> None:
    """Draw the mean of y at every x with its t interval, or another; arms stand beside each other."""
    settings = sorted(table[plot.x].unique(), key=natural)
    joined = not any(isinstance(x, str) for x in settings)
    groups = arms(table, plot)
    # Of the axis, not of the step between settings: beside each other, and still clearly at their setting,
    # nearer where the settings are numbers and lines join them.
    room = min(0.5, 0.1 * len(settings)) * (0.5 if joined else 1.0)
    for index, (label, rows) in enumerate(groups.items()):
        style, width = _look(index)
        found = {x: interval(part[plot.y].to_numpy()) for x, part in rows.groupby(plot.x)}
        if _is_share(plot.y, table[plot.y].to_numpy()):
            found = {x: replace(i, low=max(i.low, 0.0), high=min(i.high, 1.0)) for x, i in found.items()}
        shift = room * ((index + 0.5) / len(groups) - 0.5)
        center_N = np.array([i.center for i in found.values()])
        reach_2N = np.array(
            [
                [i.center - i.low if i.n > 1 else 0.0 for i in found.values()],
                [i.high - i.center if i.n > 1 else 0.0 for i in found.values()],
            ]
        )
        ax.errorbar(
            [settings.index(x) + shift for x in found],
            center_N,
            reach_2N,
            color=style.color,
            marker=style.marker,
            ls=style.dash if joined else "",
            lw=width,
            elinewidth=0.8,
            label=label,
        )
    ax.set_xticks(range(len(settings)), _places(plot, settings))
    _log(ax, plot.log.replace("x", ""))


def _is_share(column: str, value_N: np.ndarray) -> bool:
    """Return whether a column holds shares: its mean lies in [0, 1] even if a t interval does not."""
    named = re.search(r"accuracy|share|success|collapsed|coverage|pass@|frequency", column)
    return bool(
        named and not re.search(r"lost|gain|less", column) and ((value_N >= 0) & (value_N <= 1)).all()
    )


def keep_shares_within(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """End an axis of shares at 0 and 1, a dot's width beyond."""
    axis = {"strips": "x", "distribution": "y", "final by setting": "y", "curves by arm": "y"}.get(plot.kind)
    if (
        axis is None
        or axis in plot.log
        or not _is_share(getattr(plot, axis), table[getattr(plot, axis)].to_numpy())
    ):
        return
    low, high = getattr(ax, f"get_{axis}lim")()
    getattr(ax, f"set_{axis}lim")(max(low, -0.03), min(high, 1.03))


def heat_map(
    ax: Axes, table: pd.DataFrame, plot: Plot, span: tuple[float, float] | None = None, bar: bool = True
) -> None:
    """Draw the mean of a value over x and y as colors, with its number in every field.

    span: values of the lowest and highest color, by default those of the map. bar: draw the color bar.
    """
    mean = table.pivot_table(index=plot.y, columns=plot.x, values=plot.value, aggfunc="mean")
    low, high = span or (np.nanmin(mean.to_numpy()), np.nanmax(mean.to_numpy()))
    places = (np.arange(size + 1) for size in mean.shape[::-1])
    image = ax.pcolormesh(*places, mean, cmap="viridis", vmin=low, vmax=high)
    middle = (low + high) / 2
    for (row, column), value in np.ndenumerate(mean.to_numpy()):
        color = INK if value > middle else "white"
        ax.text(column + 0.5, row + 0.5, f"{value:.2g}", ha="center", va="center", color=color, fontsize=7)
    ax.set_xticks(np.arange(mean.shape[1]) + 0.5, [word(x) for x in mean.columns])
    ax.set_yticks(np.arange(mean.shape[0]) + 0.5, [word(y) for y in mean.index])
    ax.grid(visible=False)
    if bar:
        ax.figure.colorbar(image, ax=ax, label=plot.value_label or plot.value)


def distribution(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw a dot per row, and median and quartiles, of y; places are x, arms stand beside each other."""
    place_N = table[plot.x].astype(object)
    table = table.assign(**{plot.x: place_N.where(place_N.notna(), "none")})
    places = sorted(table[plot.x].unique(), key=natural)
    groups = {
        label: dict(list(rows.groupby(plot.x, dropna=False))) for label, rows in arms(table, plot).items()
    }
    for place, x in enumerate(places):
        here = {label: parts[x] for label, parts in groups.items() if x in parts}
        for lane, (label, rows) in enumerate(here.items()):
            style, _ = _look(list(groups).index(label))
            at = place + 0.8 * ((lane + 0.5) / len(here) - 0.5)
            reach = min(0.15, 0.3 / len(here))
            y_N = rows[plot.y].to_numpy(float)
            low, middle, high = np.quantile(y_N, (0.25, 0.5, 0.75))
            spread_N = np.linspace(-reach, reach, y_N.size) if y_N.size > 1 else np.zeros(1)
            ax.plot(at + spread_N, y_N, ".", color=style.color, alpha=0.4, ms=3, mew=0)
            ax.plot([at, at], [low, high], color=INK, lw=1, solid_capstyle="butt")
            ax.plot([at], [middle], marker=style.marker, color=style.color, mec=INK, mew=0.6, ms=5)
    for index, label in enumerate(groups):
        style, _ = _look(index)
        ax.plot([], [], color=style.color, marker=style.marker, ls="", label=label)
    ax.set_xticks(range(len(places)), _places(plot, places))
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.grid(visible=False, axis="x")
    _log(ax, plot.log.replace("x", ""))


def _geometric(x_N: np.ndarray) -> Interval:
    found = student_interval(np.log(x_N))
    return replace(found, center=math.exp(found.center), low=math.exp(found.low), high=math.exp(found.high))


INTERVALS: Mapping[str, Callable[[np.ndarray], Interval]] = MappingProxyType(
    {"mean": student_interval, "geometric mean": _geometric, "median": median_interval}
)
"""Marks of strips by name, the names of analysis.declared_plot.CENTERS."""


def strips(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw a row of dots of x, with their mean or median, for every value of y.

    For more arms than there are colors.
    """
    interval = INTERVALS[plot.center]
    groups = arms(table, replace(plot, arm=(plot.y,), order=()))
    for place, rows in enumerate(groups.values()):
        x_N = rows[plot.x].to_numpy(dtype=float)
        x_N = x_N[np.isfinite(x_N)]
        spread_N = np.linspace(-0.22, 0.22, x_N.size) if x_N.size > 1 else np.zeros(x_N.size)
        ax.plot(x_N, place + spread_N, ".", color=BLUE, alpha=0.35, markersize=4, markeredgewidth=0)
        found = interval(x_N)
        reach = [[found.center - found.low], [found.high - found.center]] if found.n > 1 else 0
        ax.errorbar([found.center], [place], xerr=reach, color=INK, marker="|", markersize=9, elinewidth=1.2)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)


def roc(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw the share of events caught against that of false alarms, over thresholds of the score x."""
    for index, (label, rows) in enumerate(arms(table, plot).items()):
        false_N, true_N = roc_points(rows[plot.x].to_numpy(float), rows[plot.y].to_numpy(float) > 0.5)
        area = float(np.trapezoid(true_N, false_N))
        style, width = _look(index)
        name = f"{label} (area {area:.2f})".lstrip()
        ax.plot(false_N, true_N, color=style.color, ls=style.dash, lw=width, label=name)
    ax.plot([0, 1], [0, 1], color=RULE, lw=0.8, ls=SHORT)
    ax.set_aspect("equal")


def roc_points(score_N: np.ndarray, event_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return false and true alarm rates from (0, 0) to (1, 1) by distinct score, or NaN without both."""
    level_K = np.unique(score_N)[::-1]
    alarm_KN = score_N >= level_K[:, None]
    with np.errstate(invalid="ignore"):
        true_K = (alarm_KN & event_N).sum(-1) / np.float64(event_N.sum())
        false_K = (alarm_KN & ~event_N).sum(-1) / np.float64((~event_N).sum())
    return np.concatenate([[0.0], false_K]), np.concatenate([[0.0], true_K])


def frontier(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw a point per arm at its mean cost x and gain y, and a line through those that none beats."""
    mean = pd.DataFrame({name: rows[[plot.x, plot.y]].mean() for name, rows in arms(table, plot).items()}).T
    for index, (label, row) in enumerate(mean.iterrows()):
        style, _ = _look(index)
        ax.plot(row[plot.x], row[plot.y], color=style.color, marker=style.marker, ls="", ms=5, label=label)
    best = unbeaten(mean[plot.x].to_numpy(), mean[plot.y].to_numpy())
    ax.plot(mean[plot.x].to_numpy()[best], mean[plot.y].to_numpy()[best], color=INK, lw=0.8, zorder=1)
    ax.locator_params(nbins=6)
    _log(ax, plot.log)


def unbeaten(cost_N: np.ndarray, gain_N: np.ndarray) -> list[int]:
    """Return the Pareto frontier by cost: no other point has more gain at the same cost or less."""
    order = sorted(range(len(cost_N)), key=lambda n: (cost_N[n], -gain_N[n]))
    kept: list[int] = []
    for n in order:
        if not kept or gain_N[n] > gain_N[kept[-1]]:
            kept.append(n)
    return kept


def scatter(ax: Axes, table: pd.DataFrame, plot: Plot) -> None:
    """Draw a mark per row at x and y, and what they are read against: y = x and the floor of y."""
    for index, (label, rows) in enumerate(arms(table, plot).items()):
        style, _ = _look(index)
        looks: dict[str, Any] = {"color": style.color, "marker": style.marker, "alpha": 0.6, "mew": 0}
        ax.plot(rows[plot.x], rows[plot.y], ls="", ms=3.5, label=label, **looks)
    _log(ax, plot.log)
    if plot.equal:
        ax.axline((0.5, 0.5), (1, 1), color=INK, lw=0.8, zorder=1.5)
    if plot.floor:
        least = float(table[plot.floor].min())
        ax.axhline(least, color=RULE, ls=SHORT, lw=0.8, zorder=1.5)
        place = ax.get_yaxis_transform()
        ax.text(0.98, least, "floor", transform=place, ha="right", va="bottom", color=RULE, fontsize=7)


DRAW: Mapping[str, Draw] = MappingProxyType(
    {
    "curves by arm": curves_by_arm, "final by setting": final_by_setting, "heat map": heat_map,
    "distribution": distribution, "strips": strips, "ROC": roc, "frontier": frontier, "scatter": scatter,
})  # fmt: skip


def _log(ax: Axes, axes: str) -> None:
    """Make axes logarithmic; an axis with values of 0 or less becomes linear near 0."""
    for name in axes:
        axis = ax.xaxis if name == "x" else ax.yaxis
        alike = getattr(ax, f"get_shared_{name}_axes")().get_siblings(ax)
        lines = [line for each in alike for line in each.get_lines()]
        given = [np.asarray(getattr(line, f"get_{name}data")(), dtype=float) for line in lines]
        value_N = np.concatenate([x_N[np.isfinite(x_N)] for x_N in given]) if given else np.ones(1)
        if value_N.size and value_N.min() <= 0 < np.abs(value_N).max():
            # A whole decade is linear, so that the labels of 0 and of its end stand apart.
            least = 10.0 ** np.ceil(np.log10(np.abs(value_N[value_N != 0]).min()))
            getattr(ax, f"set_{name}scale")("symlog", linthresh=least)
            few = SymmetricalLogLocator(axis.get_transform())
            few.set_params(numticks=6)
            axis.set_major_locator(few)
            continue
        ax.set(**{f"{name}scale": "log"})
        axis.set_major_formatter(_Plain())
        axis.set_minor_formatter(_Plain())


class _Plain(LogFormatterMathtext):
    """Labels of a logarithmic axis as plain numbers from 0.0001 to 100000; beyond, powers of ten."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        text = super().__call__(x, pos)
        return f"{x:g}" if text and 1e-5 < x < 1e6 else text
