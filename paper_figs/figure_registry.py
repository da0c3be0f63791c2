"""The registry of figures. A figure is one file: a CAPTION, and draw(table) under @figure."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter, LogitFormatter, ScalarFormatter

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


def no_mathtext(fig: Figure) -> None:
    """Show "$" literally in a figure's texts: labels come from data and hold no formulas.

    Tick labels by matplotlib's own formatters, such as 10², keep their notation.
    """
    of_numbers = set[Text]()
    for axis in (axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)):
        if isinstance(axis.get_major_formatter(), ScalarFormatter | LogFormatter | LogitFormatter):
            of_numbers |= {label for tick in axis.get_major_ticks() for label in (tick.label1, tick.label2)}
        else:
            axis.get_major_ticks(len(axis.get_majorticklocs()))  # made now, so that they are found below
        of_numbers |= {label for tick in axis.get_minor_ticks() for label in (tick.label1, tick.label2)}
        of_numbers.add(axis.offsetText)
    for text in fig.findobj(Text):
        if isinstance(text, Text) and text not in of_numbers:
            text.set_parse_math(False)


def draw(name: str, table: pd.DataFrame, **hyper: Any) -> Figure:
    """Return the named figure drawn from a table, with the current rcParams."""
    drawn: Figure = FIGURES[name].bind(**hyper)(table)
    return drawn
