"""Write a report card as one self-contained HTML page with a radar of percentiles, without overall score."""

import shlex
from collections.abc import Mapping
from html import escape

import numpy as np
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from analysis.cards.report_card import Card, Line
from analysis.palette import BLUE, INK, RULE
from paper_figs.report_page import _figure, _list, _svg, _table, document
from paper_figs.save_figures import style

YES_NO = ("settled there",)
TITLES = {2: "Exact", 4: "Cost"}
ABOUT = {
    2: "Enumerated, without sampling error: 16 trees of 3 tokens, groups of two, A = R - R of the other. "
    "Bias and its parts are those of the direction, as a learning rate absorbs a scale; parts add up to it.",
    4: "CPU seconds, the shortest of several rounds, this machine; the committed ones are of another run.",
}
ARENA = (
    "Recipes with this objective in the arena: a toy LLM, rate and knob tuned alike for every recipe at that "
    "task and lag; gain: final accuracy less tuned GRPO's on the same seeds, with a 95 % interval."
)
RADAR = (
    "Mean percentile among all registered objectives on each axis: 50 is the median objective, the edge is "
    "better than all. The axes measure different things and are not summed."
)


def page(card: Card) -> str:
    """Return a card's page; every string is escaped."""
    sections = {"Promises": _promises(card)}
    if len(card.axes) > 2:
        with style():
            svg = _svg(radar(card.axes), "radar", f"Radar of {card.title}")
        sections["Profile"] = _figure(svg, RADAR)
    for part, title in TITLES.items():
        lines = [line for line in card.lines if line.part == part]
        if lines:
            sections[title] = f"<p>{escape(ABOUT[part])}</p>{_table([in_words(line) for line in lines])}"
    if card.arena:
        rows = [{key: str(value) for key, value in row.items()} for row in card.arena]
        sections["The arena"] = f"<p>{escape(ARENA)}</p>{_table(rows)}"
    if card.relatives:
        sections["Nearest relatives"] = _relatives(card)
    if card.left_out:
        sections["Left out"] = _list(card.left_out)
    sections["Reproduce"] = f"<pre>{escape(command(card))}</pre>"
    return document(f"Report card of {card.title}", sections)


def command(card: Card) -> str:
    """Return the command that makes the card again."""
    return f"testbed card {shlex.quote(card.objective)}{' --quick' if card.quick else ''}"


def in_words(line: Line) -> dict[str, str]:
    """Format a line of the card for a table."""
    better = {1: "more", -1: "less", 0: ""}[line.better]
    exact = {2: "exact", 4: "stopwatch"}.get(line.part, "–")
    return {
        "number": line.title,
        "value": ("yes" if line.value else "no") if line.title in YES_NO else brief(line.value),
        "interval": exact if line.low is None else f"{brief(line.low)} to {brief(line.high)}",
        "better": better,
        "percentile": "–" if line.percentile is None else f"{line.percentile:.0f}",
        "median of all": f"{brief(line.typical)} ({line.among})" if line.among else "–",
    }


def brief(value: float | None) -> str:
    """Return a number with three digits; "–" for none, "never" for an infinite number of steps."""
    if value is None or np.isnan(value):
        return "–"
    return "never" if np.isinf(value) else f"{value:.3g}"


def _promises(card: Card) -> str:
    broken = sum(check.kept is False for check in card.checks)
    judged = sum(check.kept is not None for check in card.checks)
    said = f"{broken} of {judged} promises are broken." if broken else "All promises hold."
    rows = [
        {
            "check": check.what,
            "found": check.found,
            "": {True: "kept", False: "BROKEN", None: "seen"}[check.kept],
        }
        for check in card.checks
    ]
    formula = f"<p>{escape(card.formula)}</p>" if card.formula else ""
    return f"{formula}<p>{said} The contract tests of this project, run on it.</p>{_table(rows)}"


def _relatives(card: Card) -> str:
    rows = [
        {
            "objective": each.name,
            "likeness": f"{each.likeness:.3f}",
            "they differ most at": each.where,
            "weight here": brief(each.mine),
            "weight there": brief(each.theirs),
        }
        for each in card.relatives
    ]
    note = (
        "<p>Likeness: cosine of the effective weights of 65 tokens, 1 for equal ones up to a factor. The "
        "weights beside it are those of the token where they differ most, after that factor.</p>"
    )
    return note + _table(rows)


def radar(axes: Mapping[str, float]) -> Figure:
    """Return the radar of mean percentiles by axis, [0, 100]."""
    names, values = list(axes), list(axes.values())
    angle_K = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    around_K = np.append(angle_K, angle_K[0])
    fig = Figure(figsize=(5.6, 3.9))  # a circle as high as the page, with room for words beside it
    ax = fig.add_subplot(projection="polar")
    assert isinstance(ax, PolarAxes)
    ax.set_theta_offset(np.pi / 2)
    ax.set_theta_direction(-1)
    ax.plot(np.linspace(0, 2 * np.pi, 181), np.full(181, 50.0), color=RULE, lw=0.8)
    ax.plot(around_K, [*values, values[0]], color=BLUE, marker="o", markersize=3)
    ax.fill(around_K, [*values, values[0]], color=BLUE, alpha=0.15)
    ax.set_ylim(0, 100)
    ax.set_yticks([50, 100], ["50", "100"], fontsize=7, color=INK)
    ax.set_xticks(angle_K, names)
    ax.tick_params(axis="x", pad=4)
    for label, angle in zip(ax.get_xticklabels(), angle_K, strict=True):
        side = np.sin(angle)  # labels stand outside the circle, on their own side of it
        label.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    return fig
