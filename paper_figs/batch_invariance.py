"""Mean value over training and clipped tokens against batch size: what stays the same, and what does not."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.judging.intervals import bands
from analysis.palette import BLUE, LONG, ORANGE, RULE, SHORT, SOLID, VERMILION, Look
from analysis.tables.outcomes import need
from paper_figs.base import PAGE, figure
from paper_figs.panels import legend, mark_cut

VALUE, CLIPPED, DECAY = "mean exact/value", "mean actor/clip_share_last_pass", "anchor_args.decay"
SAME = 0.01
"""The claims' margin around the whole batch's value."""
LOOKS = {
    "PPO-EWMA, decay rescaled": Look(BLUE, "o", SOLID),
    "PPO-EWMA, decay as it was": Look(ORANGE, "^", SHORT),
    "PPO (anchor: start of the step)": Look(VERMILION, "s", LONG),
}

CAPTION = (
    "The same samples in 1, 4 or 16 times as many batches, with SGD's learning rate divided alike; eight "
    "noisy bandits of ten arms, four passes per batch, on-policy. (a) Exact value, mean over training; "
    "shaded gray: the margin of 0.01 around the whole batch's mean in which PPO-EWMA counts as invariant. "
    "(b) Share of clipped tokens at the last pass, mean over training; rescaling keeps the average's age "
    "in samples, as 1 / (1 - decay) - 1 grows when the batch shrinks. Lines: median over 32 seeds; bands: "
    "95% order-statistic interval."
)


@figure(
    "batch-invariance",
    data="batch-invariance",
    caption=CAPTION,
    supports=(
        "ppo-ewma-is-batch-size-invariant",
        "ppo-is-not-batch-size-invariant",
        "ppo-ewma-needs-its-decay-rescaled",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure; columns anchor, decay, prompts, seed, mean value and mean clip share."""
    need(table, ["anchor", DECAY, "prompts", "seed", VALUE, CLIPPED])
    rows = arms(table)
    fig = Figure(figsize=(PAGE, 2.7))
    left, right = fig.subplots(1, 2)
    whole = rows[rows["prompts"] == rows["prompts"].max()]
    rescaled, _, coupled = LOOKS
    for name in (rescaled, coupled):
        mean = float(whole.loc[whole["arm"] == name, VALUE].mean())
        left.axhspan(mean - SAME, mean + SAME, color=RULE, alpha=0.14, linewidth=0)
    curves(left, rows, VALUE, LOOKS)
    curves(right, rows, CLIPPED, LOOKS)
    left.set_ylabel("mean value over training")
    right.set_ylabel("clipped tokens")
    right.set_ylim(bottom=0)
    left.set_title("(a) learning", loc="left")
    right.set_title("(b) clipping", loc="left")
    handles = [
        Line2D([], [], color=look.color, linestyle=look.dash, marker=look.marker, label=name)
        for name, look in LOOKS.items()
    ]
    margin = Patch(color=RULE, alpha=0.14, label=f"within {SAME:g} of the whole batch")
    legend(fig, [*handles, margin], ncols=2, columnspacing=1.4)
    mark_cut(left)
    return fig


def arms(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of every arm by name; the whole batch of PPO-EWMA belongs to both of its arms."""
    averaged, whole = table["anchor"] == "ewma", table["prompts"] == table["prompts"].max()
    decay = table.loc[averaged & whole, DECAY].iloc[0]
    rescaled, fixed, coupled = LOOKS
    return pd.concat(
        [
            table[averaged & (whole | (table[DECAY] != decay))].assign(arm=rescaled),
            table[averaged & (table[DECAY] == decay)].assign(arm=fixed),
            table[table["anchor"] == "recompute"].assign(arm=coupled),
        ],
        ignore_index=True,
    )


def curves(ax: Axes, rows: pd.DataFrame, metric: str, looks: Mapping[str, Look]) -> None:
    """Draw the median of every arm and its interval against the batch size; columns arm, prompts, metric."""
    summary = bands(rows, ["arm", "prompts"], metric)
    sizes = sorted(set(summary["prompts"]), reverse=True)
    place = {size: index for index, size in enumerate(sizes)}
    for name, look in looks.items():
        curve = summary[summary["arm"] == name]
        x = curve["prompts"].map(place)
        order = x.argsort()
        x, curve = x.iloc[order], curve.iloc[order]
        ax.fill_between(x, curve["low"], curve["high"], color=look.color, alpha=0.2, linewidth=0)
        ax.plot(x, curve["center"], color=look.color, linestyle=look.dash, marker=look.marker, markersize=5)
    ax.set_xticks(list(place.values()), [f"{size}" for size in sizes])
    ax.set_xlabel("prompts per batch, 8 responses each")
