"""Ratios of tokens and of turns where a tool answers in between: what they cut, and how far they are off."""

import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import BLUE, DASH_DOT, GRAY, GREEN, LONG, ORANGE, SHORT, SOLID, Look
from analysis.tables.outcomes import need
from paper_figs.base import COLUMN, figure

LOOKS = {
    "PPO": Look(BLUE, "o", SOLID),
    "Turn-PPO": Look(ORANGE, "^", LONG),
    "token": Look(GREEN, "s", SHORT),
    "sequence": Look(GRAY, "d", DASH_DOT),
}
NAMES = {"token": "token ratio, uncut", "sequence": "sequence ratio, uncut"}

CAPTION = (
    "All 158 responses of a game of three guesses with a tool between them, 6 random pairs of policies "
    "per drift, exact advantages; lines: means over pairs. (a) Share of tokens with an advantage whose "
    "weight the clip sets to 0, under mu. (b) Distance of the expected gradient from the true one, as a "
    "share of its length; S-PPO and ST-PPO are left out, as they lie within 0.2 % of PPO and Turn-PPO. "
    "(c) Standard deviation of one response's gradient, in the same unit."
)


@figure(
    "turns",
    data="turn-ratios",
    caption=CAPTION,
    supports=("turn-ratios-are-clipped-less", "turn-ratios-vary-less", "no-turn-ratio-is-unbiased"),
)
def draw(table: pd.DataFrame) -> Figure:
    """Return the figure, one column wide; columns as in the table turn-ratios."""
    need(table, ["drift", "seed", "arm", "bias", "deviation", "cut_share"])
    fig = Figure(figsize=(COLUMN, 4.6))
    panels = fig.subplots(3, 1, sharex=True)
    drifts = sorted(table["drift"].unique())
    titles = (
        ("cut_share", "(a) cut tokens (share)"),
        ("bias", "(b) bias (share of the gradient)"),
        ("deviation", "(c) standard deviation"),
    )
    for ax, (column, title) in zip(panels, titles, strict=True):
        for arm, look in LOOKS.items():
            if column == "cut_share" and arm in NAMES:
                continue
            mean = table[table["arm"] == arm].groupby("drift")[column].mean()
            style = {"color": look.color, "linestyle": look.dash, "marker": look.marker, "markersize": 4}
            ax.plot(range(len(drifts)), mean.loc[drifts], label=NAMES.get(arm, arm), **style)
        ax.set_title(title, loc="left")
        ax.set_ylim(bottom=0)
    panels[-1].set_xticks(range(len(drifts)), [f"{d:g}" for d in drifts])
    panels[-1].set_xlabel("drift of logits from mu to pi")
    handles, labels = panels[1].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=2)
    return fig
