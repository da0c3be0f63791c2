"""Mean accuracy along the run against batch size, with Adam: fresh data, and data of a fixed age."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.experiments.lag.batch_size_with_adam import ARMS, CURVE, SAME, rows_of
from analysis.palette import (
    BLUE,
    DASH_DOT,
    DOT,
    GREEN,
    LONG,
    ORANGE,
    PINK,
    RULE,
    SHORT,
    SOLID,
    VERMILION,
    Look,
)
from paper_figs.base import PAGE, figure
from paper_figs.batch_invariance import curves
from paper_figs.panels import legend

LOOKS = {
    "EWMA": Look(BLUE, "o", SOLID),
    "PPO": Look(VERMILION, "s", LONG),
    "EWMA, same decay": Look(ORANGE, "^", SHORT),
    "EWMA, same rate": Look(GREEN, "D", DOT),
    "EWMA, rate / c": Look(PINK, "P", DASH_DOT),
}
PANELS = {"(a) fresh data": "", "(b) data 1,024 responses old": ", old"}

CAPTION = (
    "Toy LLM, the same 4,096 responses in batches of 16, 4 and 1 prompts, four passes each; Adam's rate "
    "is divided by sqrt(c) where a batch is divided by c, and decay of the average and lag are rescaled. "
    "Same decay, same rate: not rescaled; rate / c: divided by more. PPO is clipped around the start of "
    "the step in (a), around the sampler in (b); shaded gray: the margin of 0.01 around the whole batch "
    "of PPO-EWMA. Lines: median over seeds; bands: 95% order-statistic interval."
)


@figure(
    "batch-size-with-adam",
    data="batch-size-with-adam",
    caption=CAPTION,
    supports=(
        "ppo-ewma-with-adam-is-batch-size-invariant",
        "ppo-ewma-with-adam-is-batch-size-invariant-on-old-data",
        "ppo-ewma-is-above-ppo-on-old-data-at-any-batch-size",
    ),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the page-wide figure, a panel for fresh and one for old data."""
    fig = Figure(figsize=(PAGE, 2.7))
    for ax, (title, end) in zip(fig.subplots(1, 2, sharey=True), PANELS.items(), strict=True):
        names = [name for name, _ in ARMS if name.endswith(", old") == bool(end)]
        parts = [(name.removesuffix(", old"), rows_of(table, name, n)) for name, n in ARMS if name in names]
        whole = rows_of(table, f"EWMA{end}", 1)
        copies = [(name, whole) for name in LOOKS if name.startswith("EWMA,") and not end]
        rows = pd.concat([part.assign(arm=name) for name, part in (*parts, *copies)], ignore_index=True)
        middle = float(whole[CURVE].median())
        ax.axhspan(middle - SAME, middle + SAME, color=RULE, alpha=0.14, linewidth=0)
        curves(ax, rows, CURVE, {name: look for name, look in LOOKS.items() if name in set(rows["arm"])})
        ax.set_title(title, loc="left")
        if not end:
            ax.set_ylabel("mean accuracy along the run")
    handles = [
        Line2D(
            [],
            [],
            color=look.color,
            linestyle=look.dash,
            marker=look.marker,
            label=name.replace("EWMA", "PPO-EWMA"),
        )
        for name, look in LOOKS.items()
    ]
    legend(fig, handles, ncols=3, columnspacing=1.4)
    return fig
