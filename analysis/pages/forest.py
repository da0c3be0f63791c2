"""One drawing per area: the central claims of its systems, each effect with its interval in margins."""

from collections.abc import Mapping
from html import escape

from analysis.judging.system_list import systems
from analysis.judging.verdicts import Row

LEFT, RIGHT = -3.0, 5.0
"""Ends of the axis, in margins; what lies beyond is drawn at the end."""
LABEL, WIDTH, HEIGHT = 330, 360, 15
"""Pixels of the names, of the axis, and of a line."""


def forest(names: tuple[str, ...], judged: Mapping[str, Row]) -> str:
    """Return an SVG with a line per central claim that an area's experiments make, "" without any.

    Effects are divided by the claim's margin and point the source's way: 0 is no effect, the tick is what the
    claim asks for. Arrows point at effects beyond the ends; a claim's name shows under the pointer. Claims
    without a margin, or asked within one, and shares of seeds have no place on that axis.
    """
    lines = []
    for system in systems().values():
        for claim in system.central:
            row = judged[claim]
            sign, _, number = row["asks"].partition(" ")
            if row["experiment"] in names and sign in ("<", ">") and float(number) and row["low"] is not None:
                unit = abs(float(number)) * (1 if sign == ">" else -1)
                if float(number) != 0.5:  # no effect of a share
                    label = f"{system.name.split(' (')[0]}: {row['verdict']}"
                    lines.append((label, claim, row, unit, float(number) / unit))
    if not lines:
        return ""
    high = HEIGHT * (len(lines) + 2)
    zero = f"{_place(0.0):.1f}"
    marks = [
        f'<line x1="{zero}" x2="{zero}" y1="{HEIGHT}" y2="{high}" stroke="gray" stroke-dasharray="3"/>',
        f'<text x="{zero}" y="{HEIGHT - 4}" text-anchor="middle">0; a tick is what is asked</text>',
    ]
    for i, (label, claim, row, unit, asked) in enumerate(lines):
        y = HEIGHT * (i + 1.5)
        low, middle, top = sorted(_place(row[name] / unit) for name in ("low", "effect", "high"))
        tick = f"{_place(asked):.1f}"
        marks.append(
            f"<g><title>{escape(claim)}</title>"
            f'<text x="{LABEL - 14}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
            f'<line x1="{tick}" x2="{tick}" y1="{y - 5}" y2="{y + 5}" stroke="gray" stroke-width="2"/>'
            f'<line x1="{low:.1f}" x2="{top:.1f}" y1="{y}" y2="{y}" stroke="currentColor"/>'
            f"{_mark(row['effect'] / unit, middle, y)}</g>"
        )
    size = f'viewBox="0 0 {LABEL + WIDTH + 40} {high}" width="100%" font-size="11" fill="currentColor"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>{"".join(marks)}</svg>'


def _place(x: float) -> float:
    """Return the pixel of a number of margins."""
    return LABEL + WIDTH * (min(max(x, LEFT), RIGHT) - LEFT) / (RIGHT - LEFT)


def _mark(effect: float, x: float, y: float) -> str:
    """Return a dot at an effect, or an arrow at the end beyond which it lies."""
    if LEFT <= effect <= RIGHT:
        return f'<circle cx="{x:.1f}" cy="{y}" r="3" fill="currentColor"/>'
    tip = 7 if effect > RIGHT else -7
    return f'<path d="M{x:.1f} {y - 4}v8l{tip} -4z" fill="currentColor"/>'
