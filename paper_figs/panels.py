"""Keep panels readable: few series, labels that do not collide, marks where an axis is cut."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.palette import RULE

SERIES = 5
"""Most series of one panel; more have to be small multiples."""


def few(names: Sequence[str], most: int = SERIES) -> tuple[list[str], str]:
    """Return the names to draw, and a sentence that names the dropped ones ("" if none)."""
    kept, left = list(names[:most]), list(names[most:])
    return kept, f"Not drawn, for want of room: {', '.join(left)}." if left else ""


def say_dropped(fig: Figure, sentence: str) -> None:
    """Write the sentence about dropped names under the figure, unless it is empty."""
    if sentence:
        fig.supxlabel(sentence, fontsize=7, color=RULE)


def legend(fig: Figure, handles: Sequence[Any], **how: Any) -> None:
    """Draw the legend above the panels; raise ValueError if two entries share a label or a look."""
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
