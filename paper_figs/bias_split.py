"""Split the bias of an objective by cause: prefixes, continuations, or the weight itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.palette import BLUE, INK, ORANGE, RULE, VERMILION
from analysis.tables.outcomes import need
from paper_figs.figure_registry import PAGE

PARTS = {
    "bias_state": ("state distribution: prefixes from μ", BLUE),
    "bias_suffix": ("suffix: what follows, from μ", ORANGE),
    "bias_clipping": ("weight: clipped, averaged or missing", VERMILION),
}
COLUMNS = ["objective", *PARTS, "relative_bias", "relative_deviation"]


def draw_reports(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return the page-wide figure of reports, such as those of `testbed exact`.

    A diamond is the relative bias |E g - grad J| / |grad J|, the sum of the bars of one row: projections of
    its parts on it, with their sign. Right: sqrt(tr Cov g) / |grad J|.
    """
    table = pd.DataFrame(rows)
    need(table, COLUMNS)
    fig = Figure(figsize=(PAGE, 0.9 + 0.19 * max(len(table), 3)))
    left, right = fig.subplots(1, 2, sharey=True, width_ratios=(2.2, 1))
    y = np.arange(len(table))[::-1]
    _stack(left, table, y)
    left.plot(
        table["relative_bias"],
        y,
        "D",
        color=INK,
        markersize=3.5,
        linestyle="none",
        label="relative bias",
        clip_on=False,
    )
    right.barh(y, table["relative_deviation"], height=0.66, color=RULE)
    left.set_yticks(y, list(table["objective"]))
    left.axvline(0, color=INK, linewidth=0.6)
    left.set_xlabel("relative bias")
    right.set_xlabel("relative deviation")
    for ax in (left, right):
        ax.grid(visible=False, axis="y")
    fig.legend(loc="outside upper center", ncols=2, columnspacing=1.6)
    return fig


def _stack(ax: Axes, table: pd.DataFrame, y: np.ndarray) -> None:
    """Stack positive parts to the right of 0 and negative ones to the left."""
    right, left = np.zeros(len(table)), np.zeros(len(table))
    for name, (label, color) in PARTS.items():
        width = table[name].to_numpy(dtype=float)
        start = np.where(width >= 0, right, left)
        ax.barh(y, width, left=start, height=0.66, color=color, label=label)
        right += np.maximum(width, 0.0)
        left += np.minimum(width, 0.0)
