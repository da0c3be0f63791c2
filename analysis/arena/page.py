"""docs/arena.md, written from the committed table: `python -m analysis.arena.page`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.arena.table import load, records, summary
from analysis.arena.tasks import HIGH, LOW

PAGE = Path(__file__).parents[2] / "docs" / "arena.md"
HEAD = """# The arena

Recipes on stale data, each tuned alike: learning rate times one knob of the recipe's, on tuning seeds, with
grids that grow until the optimum is inside; then 16 seeds and 16 fresh ones. The design, fixed before the
first run, is the text of `analysis/arena/__init__.py`. This page is written from the committed table by
`python -m analysis.arena.page`; `testbed arena show` prints the same, and the verdicts are the claims of
experiment `arena` (`testbed claims list --experiment arena`). What follows from it: [findings](findings.md).

The placebo is GRPO tuned and run on other seeds: a gain of the size that it shows is what tuning and seeds
alone make. Your own recipe joins with `testbed arena add FILE:FN --knob width=.1,.3,1`.

| column | what it says |
|---|---|
| final | accuracy on held-out prompts, mean over the last three measurements and the seeds |
| gain | difference to GRPO's final on the same seed, with a Student interval of 95 % |
| wrong rate | final less the final at a third and three times of the rate, two seeds |
| 80 % at | median step at which 80 % of fresh data's final is reached |
| KL, clip, ESS | KL(mu, pi) per token (k3), share of clipped tokens, Kish ESS of sequences, means |
| (edge) | the best setting still lay at the edge of what was tried |
"""
TITLES = (
    "arm",
    "rate",
    "knob",
    "final",
    "gain",
    "area",
    "collapsed",
    "wrong rate",
    "80 % at",
    "entropy",
    "length",
    "pass@8",
    "KL",
    "clip",
    "ESS",
)


def page(frame: pd.DataFrame) -> str:
    """Return the page: a table per task and lag, best final first."""
    found = summary(frame)
    parts = [HEAD]
    for task, lag in found[["task", "lag"]].drop_duplicates().itertuples(index=False):
        rows = found[(found["task"] == task) & (found["lag"] == lag)]
        parts.append(f"\n## {task}, lag {lag}\n\n{_headroom(frame, task)}")
        parts += [f"| {' | '.join(TITLES)} |", "|---" * len(TITLES) + "|"]
        parts += [_line(row) for row in records(rows)]
    return "\n".join(parts) + "\n"


def _headroom(frame: pd.DataFrame, task: str) -> str:
    fresh = frame[(frame["task"] == task) & (frame["lag"] == 0) & (frame["arm"] == "grpo")]["final"]
    if fresh.empty:
        return "Fresh data have not run on this task, so its headroom is not known.\n"
    inside = LOW <= fresh.mean() <= HIGH
    said = "the task has headroom" if inside else "the task has no headroom and decides nothing"
    return f"Fresh data end at {fresh.mean():.2f}, expected {LOW:g} to {HIGH:g}: {said}.\n"


def _line(row: dict[str, object]) -> str:
    gain = "" if row["gain"] != row["gain"] else f"{row['gain']} ({row['gain_low']} to {row['gain_high']})"
    when = "" if row["steps_to_fresh"] != row["steps_to_fresh"] else f"{row['steps_to_fresh']:.0f}"
    knob = f"{row['knob']}{' (edge)' if row['at_edge'] else ''}"
    first = (row["arm"], f"{row['rate']:g}", knob, row["final"], gain, row["area"], row["collapsed"])
    rest = (row[name] for name in ("entropy", "length", "pass@8", "kl", "clip_share", "ess"))
    return f"| {' | '.join(map(str, (*first, row['sensitivity'], when.replace('inf', 'never'), *rest)))} |"


if __name__ == "__main__":
    PAGE.write_text(page(load()))
