"""Colors and line styles of all figures; strings, no plotting library."""

from dataclasses import dataclass
from typing import TypeAlias

Dash: TypeAlias = tuple[float, tuple[float, ...]]
"""Offset and on-off lengths in points, as matplotlib's `linestyle` takes them; () is a solid line."""

BLUE, ORANGE, GREEN, VERMILION, PINK, TAN, LIGHT_PINK, GRAY, YELLOW, SKY = (
    "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133",
    "#56b4e9",
)  # fmt: skip
"""seaborn's `colorblind` palette, written out because importing seaborn takes a second and starts pyplot."""

INK = "#222222"
"""Exact curves and text."""
RULE = "#7a7a7a"
"""Reference lines: floors, bounds, diagonals."""

SOLID: Dash = (0, ())
LONG: Dash = (0, (5, 1.5))
SHORT: Dash = (0, (2.5, 1.2))
DOT: Dash = (0, (1, 1.2))
DASH_DOT: Dash = (0, (5, 1.2, 1, 1.2))


@dataclass(frozen=True)
class Look:
    """Style of one arm; marker and dash repeat the color, for readers who cannot see it."""

    color: str
    marker: str
    dash: Dash


LOOKS = (
    Look(BLUE, "o", SOLID), Look(VERMILION, "X", LONG), Look(GREEN, "s", SHORT), Look(ORANGE, "^", DASH_DOT),
    Look(PINK, "D", DOT), Look(SKY, "d", SOLID), Look(TAN, "P", LONG), Look(GRAY, "v", SHORT),
)  # fmt: skip
"""Looks of the arms in their order; a ninth arm starts again, with a thinner line."""
