"""One drawing per area: the central claims of its systems, each effect with its interval in margins."""

from collections.abc import Mapping
from html import escape

from analysis.judging.systems import systems
from analysis.judging.verdicts import Row

LEFT, RIGHT = -3.0, 5.0
"""Ends of the axis, in margins; what lies beyond is drawn at the end."""
LABEL, WIDTH, HEIGHT = 330, 360, 15
"""Pixels of the names, of the axis, and of a line."""


def forest(names: tuple[str, ...], judged: Mapping[str, Row]) -> str:
    """Return an SVG with a line per central claim that an area's experiments make, "" without any.

    Effects are divided by the claim's margin and point the source's way: 0 is no effect, 1 the margin. Claims
    without a margin, or asked within one, have no place on that axis.
    """
    lines = []
    for system in systems().values():
        for claim in system.central:
            row = judged[claim]
            sign, _, number = row["asks"].partition(" ")
            if row["experiment"] in names and sign in "<>" and float(number) and row["low"] is not None:
                unit = abs(float(number)) * (1 if sign == ">" else -1)
                lines.append((f"{system.name.split(' (')[0]}: {row['verdict']}", row, unit))
    if not lines:
        return ""
    high = HEIGHT * (len(lines) + 2)
    marks = [_rule(0.0, high, "0"), _rule(1.0, high, "the margin")]
    for i, (text, row, unit) in enumerate(lines):
        y = HEIGHT * (i + 1.5)
        low, middle, top = sorted(_place(row[name] / unit) for name in ("low", "effect", "high"))
        marks.append(f'<text x="{LABEL - 8}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
        marks.append(f'<line x1="{low:.1f}" x2="{top:.1f}" y1="{y}" y2="{y}" stroke="currentColor"/>')
        marks.append(f'<circle cx="{middle:.1f}" cy="{y}" r="3" fill="currentColor"/>')
    size = f'viewBox="0 0 {LABEL + WIDTH + 40} {high}" width="100%" font-size="11" fill="currentColor"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(marks)}</svg>'


def _place(x: float) -> float:
    """Return the pixel of a number of margins."""
    return LABEL + WIDTH * (min(max(x, LEFT), RIGHT) - LEFT) / (RIGHT - LEFT)


def _rule(x: float, high: float, text: str) -> str:
    """Return a dashed line over all claims with its name above."""
    at = f"{_place(x):.1f}"
    line = f'<line x1="{at}" x2="{at}" y1="{HEIGHT}" y2="{high}" stroke="gray" stroke-dasharray="3"/>'
    return f'{line}<text x="{at}" y="{HEIGHT - 4}" text-anchor="middle">{text}</text>'
