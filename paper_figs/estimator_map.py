"""Exact error of bandit estimators over their parameter: the best one moves with the sample size."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.experiments.estimators.estimator_map import COLUMNS, MAP, NAME
from analysis.palette import INK, RULE, lag_colors
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure

ACROSS = 5
SYMBOLS = {"lambda_": "λ", "tau": "τ", "gamma": "γ", "alpha": "α"}
FLAT = ("alpha",)
"""Parameters on a linear axis; all others are on a log axis."""

CAPTION = (
    "Exact root mean squared error, a share of the value, of bandit estimators over their parameter, for "
    "30, 300, 3000 and 30000 logged rounds (light to dark), in a contextual bandit of 96 atoms with a heavy "
    "largest weight; one round's moments are enumerated, so there is no sampling error. Dot: the best "
    "parameter. Dashed: IPS, or DR for switch_dr, dr_ps and dr_os, whose model of the mean rewards is off by "
    "a standard deviation of 0.15. Where all curves meet, bias rules and more data do not help."
)


@figure(NAME, data=NAME, caption=CAPTION, supports=("bandit-linear-family-moments",))
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure, one panel per estimator; columns as in the table."""
    need(table, list(COLUMNS))
    sizes = sorted(set(table["n"]))
    colors = lag_colors(sizes)
    names = [name for name in MAP if (table["estimator"] == name).any()]
    fig = Figure(figsize=(PAGE, 1.62 * -(-len(names) // ACROSS) + 0.35))
    axes = fig.subplots(-(-len(names) // ACROSS), ACROSS, sharey=True, squeeze=False).ravel()
    for ax, name in zip(axes, names, strict=False):
        _panel(ax, table[table["estimator"] == name], colors)
        ax.set_title(name.replace("_ips", "\nips").replace("_smoothing", "\nsmoothing"), fontsize=7, pad=2)
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    fig.supylabel("RMSE / V", fontsize=8)
    handles = [Line2D([], [], color=colors[n], label=f"n = {n}") for n in sizes]
    handles.append(Line2D([], [], color=INK, marker="o", linestyle="none", label="best"))
    handles.append(Line2D([], [], color=RULE, linestyle="--", linewidth=0.8, label="IPS or DR"))
    fig.legend(handles=handles, loc="outside upper center", ncols=len(handles), columnspacing=1.2)
    return fig


def _panel(ax: Axes, rows: pd.DataFrame, colors: dict[int, str]) -> None:
    for n, color in colors.items():
        here = rows[rows["n"] == n]
        curve, plain = here[here["plain"] == 0], here[here["plain"] == 1]
        ax.axhline(float(plain["rmse"].iloc[0]), color=color, linestyle="--", linewidth=0.7)
        ax.plot(curve["value"], curve["rmse"], color=color, linewidth=1.2)
        best = curve.iloc[[int(curve["rmse"].to_numpy().argmin())]]
        ax.plot(best["value"], best["rmse"], "o", color=color, markersize=3.6, markeredgecolor=INK, zorder=4)
    parameter = str(rows["parameter"].iloc[0])
    linear = parameter in FLAT
    ax.set_xscale("linear" if linear else "log")
    ax.set_yscale("log")
    ax.set_xlabel(SYMBOLS.get(parameter, parameter), labelpad=1)
    if linear:
        ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
