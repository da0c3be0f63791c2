"""AsymRE on a fixed mu: value and support of the limit against delta_v, with the exact transition."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import BLUE, LONG, RULE, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend, mark_cut

LOOKS: tuple[tuple[str, Dash], ...] = ((VERMILION, SOLID), (BLUE, LONG))
LINEAR = 1e-3
"""Half width of the linear part of the delta_v axis; outside it is logarithmic."""

CAPTION = (
    "The limit of AsymRE on a fixed mu: a tabular softmax over five actions with rewards 0, 0.2, 0.5, "
    "0.8, 1, in exact expectation. (a) Value of the limit (dotted: value of mu); (b) number of actions "
    "with probability above 0, both against delta_v; from delta_v = 0 (gray) on, the limit depends on the "
    "start, and the flow from mu is shown. Vertical lines: the exact transition to a single action, at "
    "V^mu - V = c(1) - c(2) with c = mu (R - V), which lies below delta_v = 0. Whether the value peaks "
    "before it depends on the bandit: with a rare best action (mu = .3, .25, .2, .15, .1) the "
    "survivor is not the best action."
)


@figure(
    "asymre-phase",
    data="asymre-phase",
    caption=CAPTION,
    supports=(
        "asymre-limit-is-a-filtered-policy",
        "asymre-collapses-before-zero",
        "unclipped-reinforce-can-end-at-a-worse-action",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns instance, delta_v, value, support, value_mu, transition."""
    need(table, ["instance", "delta_v", "value", "support", "value_mu", "transition"])
    fig = Figure(figsize=(PAGE, 2.5))
    left, right = fig.subplots(1, 2)
    for (name, rows), (color, dash) in zip(table.groupby("instance", sort=False), LOOKS, strict=False):
        rows = rows.sort_values("delta_v")
        left.plot(rows["delta_v"], rows["value"], color=color, linestyle=dash, label=str(name))
        of_mu = float(rows["value_mu"].iloc[0])
        left.axhline(of_mu, color=color, linestyle=":", linewidth=0.8)
        left.annotate(
            "J(μ)", (0.985, of_mu), (0, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="bottom", fontsize=7, color=color,
        )  # fmt: skip
        right.step(
            rows["delta_v"], rows["support"], where="post", color=color, linestyle=dash, label=str(name)
        )
        for ax in (left, right):
            edge = float(rows["transition"].iloc[0])
            ax.axvline(edge, color=color, linewidth=0.8, linestyle=dash, alpha=0.6)
            if ax is right:
                ax.annotate(
                    f"{edge:.4f}".replace("-", "−"),
                    (edge, 5.35),
                    (-3, 0),
                    textcoords="offset points",
                    ha="right",
                    va="top",
                    fontsize=7,
                    color=color,
                )
    _axis(left)
    _axis(right)
    left.set_ylabel("J of the limit")
    right.set_ylabel("actions left")
    right.set_ylim(0.7, 5.5)
    right.set_yticks([1, 2, 3, 4, 5])
    left.set_title("(a) value", loc="left")
    right.set_title("(b) support", loc="left")
    handles, _ = left.get_legend_handles_labels()
    handles.append(Line2D([], [], color=RULE, linewidth=0.8, label="transition; gray: δV = 0"))
    legend(fig, handles, ncols=3)
    mark_cut(left)
    return fig


def _axis(ax: Axes) -> None:
    ax.set_xscale("symlog", linthresh=LINEAR, linscale=0.6)
    ax.set_xticks([-1, -0.1, -0.01, -0.001, 0.001, 0.1], ["−1", "−.1", "−.01", "−.001", ".001", ".1"])
    ax.minorticks_off()
    ax.axvline(0, color=RULE, linewidth=0.8, zorder=1)
    ax.set_xlabel("δV")
