"""Accuracy lost to data 64 steps old: losses on pairs against PPO's clip, and by width."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, ORANGE, RULE
from analysis.tables.outcomes import ACCURACY, need
from paper_figs.base import COLUMN, figure
from paper_figs.strips import Row, strips

NAMES = {
    ("online_dpo", "width=16"): "online DPO, width 16",
    ("online_dpo", "width=32"): "online DPO, width 32",
    ("rloo", "width=16"): "RLOO, width 16",
    ("grpo", "width=16"): "GRPO, width 16",
}
CAPTION = (
    "Final accuracy of the toy LLM on fresh data less that on data 64 optimizer steps old, paired by seed, "
    "each loss at its own learning rate on either. Dots: seeds; mark and bar: median and its order-statistic "
    "95% interval. Zero: nothing lost."
)


@figure(
    "preference-lag",
    data="preference-lag",
    caption=CAPTION,
    supports=("online-dpo-loses-less-to-lag-than-rloo", "wider-networks-lose-less-to-lag"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the column-wide figure; columns recipe, policy_args, lag, seed, accuracy."""
    need(table, ["recipe", "policy_args", "lag", "seed", ACCURACY])
    wide = table.pivot_table(index=["recipe", "policy_args", "seed"], columns="lag", values=ACCURACY)
    lost = wide[wide.columns.min()] - wide[wide.columns.max()]
    rows = {
        name: Row(lost.loc[key], BLUE if key[0] == "online_dpo" else ORANGE)
        for key, name in NAMES.items()
        if key in lost.groupby(level=[0, 1]).groups
    }
    fig = Figure(figsize=(COLUMN, 0.6 + 0.28 * len(rows)))
    ax = fig.subplots()
    strips(ax, rows, "final accuracy lost at lag 64")
    ax.axvline(0, color=RULE, linewidth=0.6)
    return fig
