"""One color, marker and line style per recipe, the same in every figure; strings, no plotting library."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

Dash: TypeAlias = tuple[float, tuple[float, ...]]
"""Offset and on-off lengths in points, as matplotlib's `linestyle` takes them; () is a solid line."""

BLUE, ORANGE, GREEN, VERMILION, PINK, TAN, LIGHT_PINK, GRAY, YELLOW, SKY = (
    "#0173b2",
    "#de8f05",
    "#029e73",
    "#d55e00",
    "#cc78bc",
    "#ca9161",
    "#fbafe4",
    "#949494",
    "#ece133",
    "#56b4e9",
)
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
    """Style of one recipe; marker and dash repeat the color, for readers who cannot see it."""

    color: str
    marker: str
    dash: Dash


RECIPES: Mapping[str, Look] = MappingProxyType(
    {
        "reinforce": Look(VERMILION, "X", SOLID),
        "grpo": Look(BLUE, "o", SOLID),
        "importance": Look(SKY, "d", SHORT),
        "dr_grpo": Look(YELLOW, "v", LONG),
        "gspo": Look(GREEN, "s", LONG),
        "cispo": Look(ORANGE, "^", SHORT),
        "m2po": Look(PINK, "D", DASH_DOT),
        "minpro": Look(TAN, "P", SHORT),
        "topr": Look(LIGHT_PINK, "<", DASH_DOT),
        "vcpo": Look(GRAY, ">", DOT),
    }
)

_OTHERS = tuple(
    Look(color, marker, dash)
    for color, marker, dash in zip(
        (BLUE, ORANGE, GREEN, VERMILION, PINK, TAN, SKY), "hHp*83h", (DOT,) * 7, strict=True
    )
)

_LAG_RAMP = ((0x9F, 0xDA, 0x3A), (0x1F, 0xA1, 0x87), (0x36, 0x5C, 0x8D), (0x44, 0x01, 0x54))


def look(recipe: str) -> Look:
    """Return the look of a recipe; a variant `name@source` keeps its name's color and marker and is dotted.

    A recipe that is not in RECIPES gets a look from its name alone, so it is the same in every figure.
    """
    name, _, source = recipe.partition("@")
    base = RECIPES.get(name) or _OTHERS[zlib.crc32(name.encode()) % len(_OTHERS)]
    return Look(base.color, base.marker, DOT) if source else base


def spread(values: list[int], most: int) -> list[int]:
    """Return at most `most` of the sorted values, both ends among them, evenly spaced by rank."""
    if len(values) <= most:
        return values
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def in_order(recipes: set[str]) -> list[str]:
    """Return the recipes in the order of the palette, unknown ones last by name."""
    known = list(RECIPES)
    return sorted(recipes, key=lambda r: (known.index(r) if r in known else len(known), r))


def lag_colors(lags: Sequence[int]) -> dict[int, str]:
    """Return one color per lag, light to dark as the lag grows (viridis without its palest end)."""
    ordered = sorted(set(lags))
    span = max(len(ordered) - 1, 1)
    return {lag: _ramp(index / span) for index, lag in enumerate(ordered)}


def _ramp(share: float) -> str:
    position = share * (len(_LAG_RAMP) - 1)
    left = min(int(position), len(_LAG_RAMP) - 2)
    mixed = (
        round(a + (position - left) * (b - a))
        for a, b in zip(_LAG_RAMP[left], _LAG_RAMP[left + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)
