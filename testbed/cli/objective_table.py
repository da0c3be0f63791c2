"""Tables of `testbed objectives compare`: settings, effective weights, a worked example."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.cli import show
from testbed.inspection import atlas
from testbed.inspection.explain import difference, settings
from testbed.registry import Entry

LOG_RATIOS = (-2.0, -1.0, -0.5, -0.2, 0.0, 0.1, 0.22, 0.5, 1.0, 2.0)
EXAMPLE = ("A>0: 1.5", "0.5", "A<0: 0.5", "1.25", "4.0")
FULL = 2.0
"""The |w/A| that fills a sparkline."""


def row(entry: Entry) -> dict[str, Any]:
    """Return an objective's registered facts and effective weights.

    weights: w/A on the atlas's probe; w itself if the objective reads neither advantage nor reward.
    example: the same for A = +1 with ratios 1.5, 0.5 and A = -1 with 0.5, 1.25, 4.
    """
    axis = main_axis(entry)
    sign = -1.0 if reads_signal(entry) else 1.0
    positive, negative = atlas.weights(entry.name, np.array(LOG_RATIOS), axis)
    first, second = atlas.example_weights(entry.name)
    return {
        "name": entry.name,
        "source": entry.source,
        "formula": entry.formula,
        "difference": difference(entry) if "@" in entry.name else "",
        "settings": settings(entry),
        "defaults": entry.defaults,
        "ratio": entry.promises.get("ratio"),
        "reads": list(entry.promises.get("reads", ())),
        "axis": axis,
        "divided_by_advantage": reads_signal(entry),
        "log_ratios": list(LOG_RATIOS),
        "weights": {"positive": list(positive), "negative": [sign * w + 0.0 for w in negative]},
        "example": {"positive": first, "negative": [sign * w + 0.0 for w in second]},
        "curves": _sparklines(entry.name, axis),
    }


def reads_signal(entry: Entry) -> bool:
    """Return True if w/A is meaningful: the loss reads advantages or rewards, or does not declare it."""
    reads = entry.promises.get("reads")
    return reads is None or bool({"adv", "reward"} & set(reads))


def main_axis(entry: Entry) -> str:
    """Return the first axis of the atlas; for decoupled losses, the mismatch between engines."""
    axes = atlas.axes(entry)
    return "anchor/mu" if "anchor/mu" in axes else axes[0]


def _sparklines(name: str, axis: str) -> dict[str, str]:
    both = atlas.weights(name, np.linspace(-2, 2, 17), axis)
    positive, negative = (show.sparkline(np.abs(weight), FULL) for weight in both)
    return {"positive": positive, "negative": negative}


def report(rows: Sequence[Mapping[str, Any]]) -> None:
    show.table(
        [
            {
                "name": r["name"],
                "ratio": r["ratio"] or "?",
                "reads": ", ".join(r["reads"]) or "?" if r["ratio"] else "?",
                "defaults": r["settings"],
                "source": r["source"],
            }
            for r in rows
        ]
    )
    for r in rows:
        if r["difference"]:
            print(f"{r['name']}: {r['difference']}")
    for sign, title in (("positive", "A > 0"), ("negative", "A < 0")):
        show.table([_weights(r, sign) for r in rows], f"\nEffective weight w/A by log-ratio, {title}")
    show.table([_example(r) for r in rows], "\nWorked example: w/A of two answers with these ratios")
    print(f"curve: |w/A| for log-ratios -2 to 2, full at {FULL:g}. Column x: the ratio on the axis.")
    if not all(r["divided_by_advantage"] for r in rows):
        print("Objectives that read neither advantages nor rewards show w itself.")


def _weights(r: Mapping[str, Any], sign: str) -> dict[str, str]:
    numbers = {
        f"{x:+g}" if x else "0": _number(w) for x, w in zip(r["log_ratios"], r["weights"][sign], strict=True)
    }
    return {"name": r["name"], "x": f"log {r['axis']}", **numbers, "curve": r["curves"][sign]}


def _example(r: Mapping[str, Any]) -> dict[str, str]:
    numbers = [*r["example"]["positive"], *r["example"]["negative"]]
    return {"name": r["name"], **dict(zip(EXAMPLE, map(_number, numbers), strict=True))}


def _number(weight: float) -> str:
    return f"{weight:.4g}"
