"""Gains over tuned GRPO as a picture: a row per recipe, a dot and an interval per task, plain SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from analysis.palette import BLUE, GREEN, INK, ORANGE, PINK, RULE, VERMILION

if TYPE_CHECKING:
    import pandas as pd

COLORS = (BLUE, ORANGE, GREEN, PINK, VERMILION)
WIDTH, LETTER, LINE, BOTTOM = 460, 7.2, 7, 34
"""Pixels: of the picture, of a letter, of a task in a recipe's row, below the rows."""
MARGIN = 0.05
"""Half the width of the gray band: gains inside do not count."""
STEPS = (0.05, 0.1, 0.2, 0.5)


def gains(found: pd.DataFrame, lag: int, mine: str = "") -> str:
    """Return the SVG of the gains at a lag, "" without a gain.

    Recipes that ran on most tasks come first, among them those with the largest mean gain.

    Args:
        found: rows of `table.summary`: task, lag, arm, gain, gain_low, gain_high.
        lag: optimizer steps.
        mine: arm whose name is set in bold.
    """
    rows = found[(found["lag"] == lag) & found["gain"].notna()]
    if rows.empty:
        return ""
    tasks = list(dict.fromkeys(rows["task"]))
    means = rows.groupby("arm")["gain"].agg(["count", "mean"])
    arms = list(means.sort_values(["count", "mean"], ascending=False).index)
    labels = 12 + LETTER * max(map(len, arms))
    axis = _Axis(labels, min(rows["gain_low"].min(), -MARGIN), max(rows["gain_high"].max(), MARGIN))
    pitch, top = max(16, LINE * len(tasks) + 6), 18 * (2 + (len(tasks) - 1) // 3)
    height = top + pitch * len(arms) + BOTTOM
    body = [*_legend(tasks), *axis.lines(top, height - BOTTOM)]
    for place, arm in enumerate(arms):
        y = top + pitch * place
        bold = ' font-weight="bold"' if arm == mine else ""
        body.append(_text(labels - 6, y + pitch / 2 + 4, arm, f'text-anchor="end"{bold}'))
        for row in rows[rows["arm"] == arm].itertuples():
            at = tasks.index(row.task)
            middle = y + pitch / 2 + LINE * (at - (len(tasks) - 1) / 2)
            body.append(_dot(axis, middle, row, COLORS[at % len(COLORS)]))
    label = f"Gain over tuned GRPO at lag {lag}, by recipe and task"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{label}" font-family="sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(body)}</svg>\n'
    )


class _Axis:
    """Horizontal position of a gain; labels: pixels left of the axis."""

    def __init__(self, labels: float, low: float, high: float) -> None:
        step = next((one for one in STEPS if (high - low) / one <= 9), STEPS[-1])
        self.labels = labels
        self.ticks = [step * n for n in range(int(low // step), int(-(-high // step)) + 1)]

    def x(self, gain: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.labels + (WIDTH - self.labels - 14) * (gain - low) / (high - low)

    def lines(self, top: float, bottom: float) -> list[str]:
        """Return the band of gains that do not count, the grid, its numbers and the title."""
        left, right = self.x(-MARGIN), self.x(MARGIN)
        width, height = right - left, bottom - top
        band = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}"'
        found = [f'<rect {band} fill="#ececec"/>']
        for tick in self.ticks:
            x, ink = self.x(tick), INK if abs(tick) < 1e-9 else "#d0d0d0"
            found.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="{ink}" stroke-width="1"/>')
            found.append(_text(x, bottom + 14, f"{tick:+.2g}" if abs(tick) > 1e-9 else "0", _MIDDLE))
        title = "final accuracy less tuned GRPO's; 95 % interval; gray: under .05"
        return [*found, _text(WIDTH / 2, bottom + 29, title, f'{_MIDDLE} font-size="11" fill="{RULE}"')]


_MIDDLE = 'text-anchor="middle"'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _legend(tasks: list[str]) -> list[str]:
    """Return a dot and a name per task, at most three in a line."""
    found = []
    for place, task in enumerate(tasks):
        x, y = 14 + 148 * (place % 3), 18 + 18 * (place // 3)
        found.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLORS[place % len(COLORS)]}"/>')
        found.append(_text(x + 9, y, task))
    return found


def _dot(axis: _Axis, y: float, row: Any, color: str) -> str:
    gain, low, high = (float(getattr(row, name)) for name in ("gain", "gain_low", "gain_high"))
    said = f"{row.arm}, {row.task}: {gain:+.3f} ({low:+.3f} to {high:+.3f})"
    return (
        f'<g stroke="{color}" fill="{color}"><title>{escape(said)}</title>'
        f'<path d="M{axis.x(low):.1f} {y:.1f}H{axis.x(high):.1f}" stroke-width="2"/>'
        f'<circle cx="{axis.x(gain):.1f}" cy="{y:.1f}" r="2.6"/></g>'
    )
