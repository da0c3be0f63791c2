"""A legend above the panels that says nothing twice."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D


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
