"""Bounding boxes of a figure's texts: what is cut off, what lies over what, what a line runs through."""

from itertools import combinations, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0
"""Points by which boxes may meet: a box is larger than its ink."""


def faults(fig: Figure) -> list[str]:
    """Return a sentence for every text that is cut off, too small, over another text, or under a line."""
    fig.draw_without_rendering()
    shown = texts(fig)
    page = fig.bbox
    found = [f"'{t.get_text()}' is cut off" for t, box in shown if not _inside(box, page)]
    found += [
        f"'{t.get_text()}' has {t.get_fontsize():.1f} points" for t, _ in shown if t.get_fontsize() < 6.99
    ]
    found += [f"'{a.get_text()}' and '{b.get_text()}' overlap"
              for (a, first), (b, second) in combinations(shown, 2)
              if _overlap(first, second, fig)]  # fmt: skip
    for ax in fig.axes:
        found += [f"a line runs through '{text.get_text()}'" for text in ax.texts if _struck(text, ax)]
    return found


def texts(fig: Figure) -> list[tuple[Text, Bbox]]:
    """Return the texts that are drawn, with their boxes in pixels; labels of ticks out of view are not."""
    hidden = {id(label) for ax in fig.axes for label in _out_of_view(ax)}
    every = [t for t in fig.findobj(Text) if t.get_visible() and t.get_text().strip() and id(t) not in hidden]
    off = {id(t) for ax in fig.axes if not ax.axison for t in ax.findobj(Text)}
    return [(t, t.get_window_extent()) for t in every if id(t) not in off]


def _out_of_view(ax: Axes) -> list[Text]:
    found: list[Text] = []
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        room = 1e-9 * max(abs(low), abs(high))
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - room <= tick.get_loc() <= high + room:
                found += [tick.label1, tick.label2]
    return found


def _inside(box: Bbox, page: Bbox) -> bool:
    return bool(
        box.x0 >= page.x0 - 1 and box.y0 >= page.y0 - 1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
    )


def _overlap(first: Bbox, second: Bbox, fig: Figure) -> bool:
    slack = SLACK * fig.dpi / 72
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return bool(width > slack and height > 2 * slack)


def _struck(text: Text, ax: Axes) -> bool:
    """Return whether a curve of data runs through the middle of a text."""
    box = text.get_window_extent()
    middle = Bbox.from_extents(box.x0, box.y0 + 0.25 * box.height, box.x1, box.y1 - 0.25 * box.height)
    return any(
        line.get_visible()
        and line.get_linestyle() not in ("None", "none", "", " ")
        and line.get_transform() == ax.transData
        and len(line.get_xdata()) > 2
        and _crosses(line.get_path().transformed(ax.transData).vertices, middle)
        for line in ax.lines
    )


def _crosses(vertex_N2: np.ndarray, box: Bbox) -> bool:
    """Return whether a polygon line has a point in the box, looked at in steps of a pixel or so."""
    finite_N2 = vertex_N2[np.isfinite(vertex_N2).all(-1)]
    for start, end in pairwise(finite_N2):
        if max(start[0], end[0]) < box.x0 or min(start[0], end[0]) > box.x1:
            continue
        count = int(min(np.abs(end - start).max(), 4000)) + 2
        points = np.linspace(start, end, count)
        inside = (
            (points[:, 0] > box.x0)
            & (points[:, 0] < box.x1)
            & (points[:, 1] > box.y0)
            & (points[:, 1] < box.y1)
        )
        if inside.any():
            return True
    return False
