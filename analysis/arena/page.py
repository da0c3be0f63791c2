"""docs/arena.md, written from the committed table: `python -m analysis.arena.page`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.arena.table import load, records, steps_to_fresh, summary
from analysis.arena.tasks import HIGH, LOW, TASKS

PAGE = Path(__file__).parents[2] / "docs" / "arena.md"
HEAD = """# The arena

Recipes on stale data, each tuned alike: nine settings of learning rate and one knob, by successive halving
on tuning seeds, then six fresh seeds. The design, fixed before the first run, is the text of
`analysis/arena/__init__.py`. This page is written from `analysis/arena/table.csv` by `python -m
analysis.arena.page`; `testbed arena show` prints the same table.

The table is a part of the design: it has only the tasks, lags and arms below. Six seeds and one tuning seed
in the first round decide little, so there are no verdicts here. The placebo is GRPO tuned and run on other
seeds: a gain of the size that it shows is what tuning and seeds alone make. The rate's grid grows until its
optimum is inside; the knob's grid does not, and "edge" marks a chosen value that is the first or last of
its knob.

Departures from the design: fresh data of GRPO ran before lag 64 was complete, which has 12 of 41 arms; the
pilots' figures were written into the design's text while the first batch ran; pass@8 is read from the last
row that has it.

Your own recipe joins with `testbed arena add FILE:FN --knob width=.1,.3,1`.

| column | what it says |
|---|---|
| final | accuracy on held-out prompts, mean over the last three logged rows and the seeds |
| gain | difference to GRPO's final on the same seed, with a Student interval of 95 % |
| wrong rate | final less the final at a third and three times of the rate, two seeds |
| 80 % at | median step at which 80 % of fresh data's final is reached |
| KL, clip, ESS | KL(mu, pi) per token (k3), share of clipped tokens, Kish ESS of sequences, means |
"""


def page(frame: pd.DataFrame) -> str:
    """Return the page: a table per task and lag, best final first."""
    found = summary(frame)
    reached = {
        (task, lag, TASKS[task].steps): steps_to_fresh(
            frame[(frame["task"] == task) & frame["lag"].isin([0, lag])], TASKS[task].steps
        )
        for task, lag in found[["task", "lag"]].drop_duplicates().itertuples(index=False)
    }
    parts = [HEAD]
    for (task, lag, _), steps in reached.items():
        rows = found[(found["task"] == task) & (found["lag"] == lag)]
        at = {row["arm"]: row["steps_to_fresh"] for row in records(steps) if row["lag"] == lag}
        parts.append(f"\n## {task}, lag {lag}\n\n{_headroom(frame, task)}")
        parts.append(
            "| arm | rate | knob | final | gain | area | collapsed | wrong rate | 80 % at | entropy | length "
            "| pass@8 | KL | clip | ESS |"
        )
        parts.append("|---" * 15 + "|")
        parts += [_line(row, at.get(row["arm"])) for row in records(rows)]
    return "\n".join(parts) + "\n"


def _headroom(frame: pd.DataFrame, task: str) -> str:
    fresh = frame[(frame["task"] == task) & (frame["lag"] == 0) & (frame["arm"] == "grpo")]["final"]
    if fresh.empty:
        return "Fresh data have not run on this task, so its headroom is not known.\n"
    inside = LOW <= fresh.mean() <= HIGH
    said = (
        "the task has headroom" if inside else "so by the design the task has no headroom and decides nothing"
    )
    return f"Fresh data end at {fresh.mean():.2f}, expected {LOW:g} to {HIGH:g}: {said}.\n"


def _line(row: dict[str, object], steps: object) -> str:
    gain = "" if row["gain"] != row["gain"] else f"{row['gain']} ({row['gain_low']} to {row['gain_high']})"
    when = "" if steps is None else "never" if steps == float("inf") else f"{steps:.0f}"
    names = ("entropy", "length", "pass@8", "kl", "clip_share", "ess")
    rest = " | ".join(str(row[name]) for name in names)
    knob = f"{row['knob']}{' (edge)' if row['at_edge'] else ''}"
    return (
        f"| {row['arm']} | {row['rate']:g} | {knob} | {row['final']} | {gain} | {row['area']} "
        f"| {row['collapsed']} | {row['sensitivity']} | {when} | {rest} |"
    )


if __name__ == "__main__":
    PAGE.write_text(page(load()))
