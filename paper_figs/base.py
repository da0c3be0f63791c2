"""The registry of figures. A figure is one file: a CAPTION, and draw(table) under @figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from testbed.registry import Registry

COLUMN = 3.25
"""Width of one text column, inches."""
PAGE = 6.75
"""Width of a page of two columns, inches."""

FIGURES = Registry("figure", package="paper_figs")


def figure(
    name: str,
    *,
    data: str,
    caption: str,
    supports: tuple[str, ...] = (),
    counted: Callable[[pd.DataFrame], str] = lambda _: "",
) -> Callable[[Callable[..., Figure]], Callable[..., Figure]]:
    """Register draw(table: DataFrame) -> Figure, which neither saves, reads files nor sets rcParams.

    Args:
        name: the file name of the figure, without extension.
        data: name of the table it is drawn from.
        caption: what the reader sees, with n and the name of every interval.
        supports: names of the claims that it illustrates.
        counted: table -> a sentence that the caption ends in, where n is a matter of the table.
    """
    return FIGURES(
        name, source=f"table {data}", data=data, caption=caption, supports=supports, counted=counted
    )


def draw(name: str, table: pd.DataFrame, **hyper: Any) -> Figure:
    """Return the named figure drawn from a table, with the current rcParams."""
    drawn: Figure = FIGURES[name].bind(**hyper)(table)
    return drawn
