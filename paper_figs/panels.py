"""Keep panels readable: few series, labels that do not collide, marks where an axis is cut."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from analysis.palette import RULE

SERIES = 5
"""Most series of one panel; more have to be small multiples."""


def few(names: Sequence[str], most: int = SERIES) -> tuple[list[str], str]:
    """Return the names that are drawn and a sentence that names the others, "" where all are drawn."""
    kept, left = list(names[:most]), list(names[most:])
    return kept, f"Not drawn, for want of room: {', '.join(left)}." if left else ""


def say_dropped(fig: Figure, sentence: str) -> None:
    """Write the sentence about what is not drawn under the figure; nothing where it is empty."""
    if sentence:
        fig.supxlabel(sentence, fontsize=7, color=RULE)


def apart(place_N: ArrayLike, gap: float) -> NDArray[np.float64]:
    """Return the places moved as little as possible (least squares) so that neighbors are `gap` apart.

    The order stays. Pool-adjacent-violators on place - rank * gap: Barlow et al. (1972).
    """
    given_N = np.asarray(place_N, dtype=np.float64)
    order_N = np.argsort(given_N, kind="stable")
    blocks: list[list[float]] = []  # sum and count of places whose shifted means have been pooled
    for rank, value in enumerate(given_N[order_N]):
        blocks.append([value - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    level_N = np.concatenate([np.full(int(count), total / count) for total, count in blocks])
    found_N = np.empty_like(given_N)
    found_N[order_N] = level_N + gap * np.arange(given_N.size)
    return found_N


def mark_cut(ax: Axes, axis: str = "y") -> None:
    """Mark an axis that does not start at 0 with two strokes across its foot."""
    for place in (0.025, 0.055):
        slant = np.array([-0.012, 0.012])
        x, y = (slant, place + 0.8 * slant) if axis == "y" else (place + 0.8 * slant, slant)
        ax.plot(x, y, transform=ax.transAxes, color="#444444", linewidth=0.7, clip_on=False, zorder=10)


def mark_switch(ax: Axes, at: float, top: bool = False) -> None:
    """Mark where a symmetrical logarithmic x axis stops being linear; the words stand at its foot or top."""
    ax.axvline(at, color=RULE, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1)
    for text, side, shift in (("linear", "right", -3), ("log", "left", 3)):
        ax.annotate(
            text,
            (at, 0.985 if top else 0.015),
            (shift, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="top" if top else "bottom",
            fontsize=7,
            color=RULE,
        )


def legend(fig: Figure, handles: Sequence[Any], **how: Any) -> None:
    """Draw the legend above the panels; two entries with one label or one look are a ValueError."""
    labels = [handle.get_label() for handle in handles]
    looks = [_look(handle) for handle in handles if isinstance(handle, Line2D)]
    for found in (labels, looks):
        twice = [each for each in found if found.count(each) > 1]
        if twice:
            raise ValueError(f"the legend has {twice[0]!r} twice: {labels}")
    fig.legend(handles=list(handles), loc="outside upper center", **how)


def _look(line: Line2D) -> tuple[object, ...]:
    size = round(float(line.get_markersize()), 2)
    marker = (line.get_marker(), size, str(line.get_markerfacecolor()))
    dash = str(getattr(line, "_dash_pattern", line.get_linestyle()))
    return (line.get_color(), *marker, dash, round(float(line.get_linewidth()), 2))
