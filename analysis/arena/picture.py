"""Gains over tuned GRPO, and losses of the advised recipes, as pictures: dots and intervals, plain SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from analysis.palette import BLUE, GREEN, INK, ORANGE, PINK, RULE, VERMILION

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from analysis.arena.advice import Advice

COLORS = (BLUE, ORANGE, GREEN, PINK, VERMILION)
WIDTH, LETTER, LINE, BOTTOM = 460, 7.2, 7, 34
"""Sizes in pixels: the picture, a letter, a task in a recipe's row, the space below the rows."""
GAIN = "final accuracy minus tuned GRPO's; 95 % interval; gray: under .05"
LOSS = "fresh data's final accuracy minus the recipe's; 95 % interval"
MARGIN = 0.05
"""Half the width of the gray band, inside which gains do not count."""
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
            color = COLORS[at % len(COLORS)]
            gain, low, high = (float(getattr(row, name)) for name in ("gain", "gain_low", "gain_high"))
            said = f"{row.arm}, {row.task}: {gain:+.3f} ({low:+.3f} to {high:+.3f})"
            body.append(
                f'<g stroke="{color}" fill="{color}"><title>{escape(said)}</title>'
                f'<path d="M{axis.x(low):.1f} {middle:.1f}H{axis.x(high):.1f}" stroke-width="2"/>'
                f'<circle cx="{axis.x(gain):.1f}" cy="{middle:.1f}" r="2.6"/></g>'
            )
    return _svg(height, f"Gain over tuned GRPO at lag {lag}, by recipe and task", body)


def losses(choices: Sequence[tuple[float, bool, Advice]]) -> str:
    """Return the SVG of the advised recipe's loss and GRPO's by drift, tuned and with a guessed rate.

    A guessed rate has the loss at a wrong rate, on two seeds a cell and without interval.
    """
    rows = [(kl, guessed, advice.rows[0], _grpo(advice)) for kl, guessed, advice in choices]
    if not rows:
        return ""
    pitch, top = 20, 40
    ends = [
        float(row[key]) for _, _, best, grpo in rows for row in (best, grpo) for key in ("low", "wrong rate")
    ]
    axis = _Axis(200, min(0.0, *ends), max(ends))
    height = top + pitch * len(rows) + BOTTOM
    body = [*_legend(["recipe advised", "tuned GRPO"]), *axis.lines(top, height - BOTTOM, LOSS)]
    for place, (kl, guessed, best, grpo) in enumerate(rows):
        y = top + pitch * (place + 0.5)
        known = "rate guessed" if guessed else "tuned"
        body.append(_text(194, y + 4, f"KL {kl:g}, {known}: {best['arm']}", 'text-anchor="end"'))
        for row, color, shift in ((grpo, COLORS[1], 4), (best, COLORS[0], -4)):
            x = float(row["wrong rate" if guessed else "loss"])
            if not guessed:
                span = f'd="M{axis.x(row["low"]):.1f} {y + shift:.1f}H{axis.x(row["high"]):.1f}"'
                body.append(f'<path {span} stroke="{color}" stroke-width="2"/>')
            body.append(f'<circle cx="{axis.x(x):.1f}" cy="{y + shift:.1f}" r="2.6" fill="{color}"/>')
    return _svg(height, "Loss of accuracy of the best recipe, by drift, and of tuned GRPO", body)


def _grpo(advice: Advice) -> dict[str, Any]:
    return next(row for row in advice.rows if row["arm"] == "grpo")


def _svg(height: float, label: str, body: list[str]) -> str:
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

    def lines(self, top: float, bottom: float, title: str = GAIN) -> list[str]:
        """Return the band of gains that do not count, the grid, its numbers and the title."""
        left, right = self.x(-MARGIN), self.x(MARGIN)
        width, height = right - left, bottom - top
        band = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}"'
        found = [f'<rect {band} fill="#ececec"/>']
        for tick in self.ticks:
            x, ink = self.x(tick), INK if abs(tick) < 1e-9 else "#d0d0d0"
            found.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="{ink}" stroke-width="1"/>')
            found.append(_text(x, bottom + 14, f"{tick:+.2g}" if abs(tick) > 1e-9 else "0", _MIDDLE))
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
