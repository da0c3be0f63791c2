"""Tails of the sequence ratios by lag: complementary distribution on log axes."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from analysis.palette import DASH_DOT, DOT, LONG, RULE, SHORT, SOLID, in_order, lag_colors, spread
from analysis.tables.outcomes import need
from analysis.tables.tails import HISTOGRAM, tails
from paper_figs.figure_registry import PAGE, figure
from paper_figs.panels import few, legend, say_dropped

PANELS = 6
"""Most recipes shown side by side; further ones are named under the figure."""
LAGS = 5
"""Most lags drawn; of more, both ends and evenly spaced ones between them."""
DASHES = (SOLID, LONG, SHORT, DASH_DOT, DOT)
"""Line styles from the largest lag to the smallest."""

CAPTION = (
    "Share of sampled sequences whose importance ratio is at least x, by lag, from all steps at which the "
    "lag was in full effect. Lines: all seeds pooled; bands: range of the seeds. What a curve lacks to 1 at "
    "the left edge are sequences that the current policy would hardly write any more. Dashed gray: 1/x, "
    "which no distribution of ratios can exceed (Markov's inequality, as the mean ratio is 1); the closer a "
    "tail runs along it, the fewer sequences carry a weighted mean."
)


@figure("ratio-tails", data="ratio-tails", caption=CAPTION, supports=())
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns recipe, lag, seed and the histogram of log sequence ratios."""
    need(table, ["recipe", "lag", "seed", HISTOGRAM])
    recipes, dropped = few(in_order(set(table["recipe"])), PANELS)
    lags = spread(sorted(set(table["lag"])), LAGS)
    found = tails(table[table["recipe"].isin(recipes) & table["lag"].isin(lags)])
    positive = found[found["share"] > 0]
    limits = (0.1, max(float(np.exp(positive["log_rho"].max())) * 3, 100.0))
    lowest = float(positive["share"].min()) / 2
    fig = Figure(figsize=(PAGE, 2.3))
    axes = fig.subplots(1, len(recipes), sharex=True, sharey=True, squeeze=False)[0]
    for ax, recipe in zip(axes, recipes, strict=True):
        _panel(ax, found[found["recipe"] == recipe], lags, lowest)
        ax.plot([1.0, limits[1]], [1.0, 1 / limits[1]], color=RULE, linestyle=(0, (4, 2)), linewidth=0.8)
        ax.set_title(recipe)
        ax.set_xlabel("ratio x")
    axes[0].set_ylabel("share of sequences\nwith ratio ≥ x")
    axes[0].set(xscale="log", yscale="log", xlim=limits, ylim=(lowest, 1.6))
    axes[0].xaxis.set_major_locator(LogLocator(numticks=4))
    axes[0].annotate("1/x", (30.0, 1 / 30.0), (5, 3), textcoords="offset points", fontsize=7, color=RULE)
    legend(fig, _handles(lags), ncols=len(lags), columnspacing=1.4)
    say_dropped(fig, dropped)
    return fig


def _panel(ax: Axes, found: pd.DataFrame, lags: list[int], lowest: float) -> None:
    colors = lag_colors(lags)
    for lag, dash in zip(reversed(lags), DASHES, strict=False):
        rows = found[found["lag"] == lag]
        x = np.exp(rows["log_rho"].to_numpy())
        # Zeros are drawn below the axis, so a curve that ends falls out of the panel instead of stopping in
        # it.
        share, low, high = (
            np.maximum(rows[name].to_numpy(), lowest / 100) for name in ("share", "low", "high")
        )
        ax.fill_between(x, low, high, color=colors[lag], alpha=0.2, linewidth=0)
        ax.plot(x, share, color=colors[lag], linestyle=dash)


def _handles(lags: list[int]) -> list[Line2D]:
    colors = lag_colors(lags)
    styles = dict(zip(reversed(lags), DASHES, strict=False))
    return [Line2D([], [], color=colors[lag], linestyle=styles[lag], label=f"lag {lag}") for lag in lags]
