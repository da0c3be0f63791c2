"""docs/arena.md and its pictures, written from the committed table: `python -m analysis.arena.page`."""

import math
from pathlib import Path

import pandas as pd

from analysis.arena import curves as drawn
from analysis.arena import one_setting
from analysis.arena.advice import Advice, Drift, advise
from analysis.arena.picture import gains, losses
from analysis.arena.table import fresh, joint, load, records, roomy, summary, tuning
from analysis.arena.tasks import HIGH, LOW, PIPELINE, shown

PAGE = Path(__file__).parents[2] / "docs" / "arena.md"
PICTURE = "assets/arena-{lag}.svg"
"""File name of the picture of a lag, beside PAGE."""
HEAD = """# The arena

This page compares recipes that train on stale data. Every recipe is tuned in the same way: its learning rate
and one knob, on seeds for tuning alone. A grid grows until its best setting is inside, and rates halfway to
the best one's neighbors are tried, too. Every recipe then runs on 16 seeds and 16 fresh ones; recipes with an
open claim get more. Tuning takes 32 seeds everywhere. The design was fixed before the runs:
`analysis/arena/__init__.py` has it. The verdicts are the claims of experiment `arena`, and
[findings](findings.md) has the conclusions. `python -m analysis.arena.page` writes this page from the
committed table; `testbed arena show` prints the same.

The placebo is GRPO again, tuned and run on other seeds. Its gain shows what tuning and seeds alone can do.
To add your recipe, run `testbed arena add FILE:FN --knob width=.1,.3,1`.
`testbed advise LOG` reads this table at the drift of a training log. On the site you can filter the page by
task, lag and recipe. Click the head of a column to sort by it, or a recipe to see its seeds and, where
stored, its curves.

| column | what it says |
|---|---|
| final | accuracy on held-out prompts, mean over the last three measurements and the seeds |
| gain | difference to GRPO's final on the same seed, with a Student interval of 95 % |
| failed | share of seeds that end below .1; large on `sums`, where it widens the intervals |
| wrong rate | final less the final at a third and three times of the rate, two seeds |
| 80 % at | step at which the mean curve of four seeds reaches 80 % of fresh data's final |
| KL, clip, ESS | KL(mu, pi) per token (k3), share of clipped tokens, Kish ESS of sequences, means |
| (edge) | the best setting still lay at the edge of what was tried |
"""
WHICH = """## Which to use

Measure KL(mu, pi) per token on your run: `testbed advise LOG` does this and reads the table at that drift.
Below are its answers by drift, once with rate and knob tuned, and once with a rate that is off by a factor of
3. Cells within a factor of 3 of the drift count. The answer is the recipe that loses least against fresh data
among those that ran in all of these cells. The first run's seeds choose the recipe; loss and 95 % interval
come from the replication's seeds. A negative loss is a gain. The table says nothing below {low:.2g} or above
{high:.2g} nats, or about larger models.

![Loss of accuracy of the best recipe, by drift, and of tuned GRPO](assets/arena-which.svg){{ width="640" }}

| KL per token | you can tune | recipe | loss | at a wrong rate | rate / GRPO's | knob |
|---|---|---|---|---|---|---|
{rows}
"""
JOINT = """## One setting for all

Read this table if you must fix rate and knob beforehand. For each recipe it compares one setting for all
stale tasks and lags with the best setting of each cell. The one setting has the best mean score among those
that tuning tried everywhere. The left part has scores of tuning, on two to 32 seeds. The right part has
finals of {seeds} seeds on which nothing was tuned, at {places}, with a 95 % interval over seeds. Recipes were
tuned on different cells. grpo and placebo are one recipe on other seeds and cells, so that a difference
smaller than theirs means nothing. `testbed arena show
--one-setting` prints the finals cell by cell.

<div class="sortable" markdown>

| arm | rate | knob | cells | score at one | at own | loss | final at one | at own | loss of accuracy |
|---|---|---|---|---|---|---|---|---|---|
{rows}

</div>
"""
FILTERS = '<div class="filters" data-by="task lag arm" data-words="grpo, vcpo"></div>\n'
DRIFTS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""KL per token of the choices."""
TITLES = (
    "arm", "rate", "knob", "final", "gain", "failed", "area", "collapsed", "wrong rate", "80 % at",
    "entropy", "length", "pass@8", "KL", "clip", "ESS",
)  # fmt: skip


def page(frame: pd.DataFrame) -> str:
    """Return the page: a picture per lag, then a table per task and lag, best final first.

    On the site, assets/tables.js filters its blocks by task, lag and recipe, and shows the seeds.
    """
    found = drawn.timed(summary(frame), dict(fresh(frame)))
    parts = [HEAD, _which(frame), _joint(frame), FILTERS, *(_picture(lag) for lag in pictures(frame))]
    for task, lag in found[["task", "lag"]].drop_duplicates().itertuples(index=False):
        rows = found[(found["task"] == task) & (found["lag"] == lag)]
        parts.append(f'<div class="block sortable" data-task="{task}" data-lag="{shown(lag)}" markdown>\n')
        parts += [f"## {task}, lag {shown(lag)}\n", _headroom(frame, task)]
        parts += [f"| {' | '.join(TITLES)} |", "|---" * len(TITLES) + "|"]
        parts += [*(_line(row) for row in records(rows)), "\n</div>\n"]
    return "\n".join(parts)


def seeds(frame: pd.DataFrame, task: str, lag: int) -> str:
    """Return "grpo:837 694;fresh:…": finals of arms in thousandths, a number per seed."""
    here = frame[(frame["task"] == task) & frame["lag"].isin({0, lag})]
    base = here[(here["lag"] == 0) & (here["arm"] == "grpo")].assign(arm="fresh")
    found = pd.concat([here[here["lag"] == lag], base]).groupby("arm", sort=False)["final"]
    return ";".join(f"{arm}:{' '.join(f'{1000 * final:.0f}' for final in finals)}" for arm, finals in found)


def curves(task: str, lag: int) -> str:
    """Return "grpo:35 51 …;grpo at one setting:…;fresh:…": mean accuracy along training in thousandths."""
    found = drawn.load()
    found = found[(found["task"] == task) & found["lag"].isin({0, lag})]
    names = found["arm"].where(found["setting"] == "own", found["arm"] + " at one setting")
    names = names.where(found["lag"] == lag, "fresh") if lag else names
    lines = (" ".join(f"{1000 * float(at):.0f}" for at in curve.split()) for curve in found["curve"])
    return ";".join(f"{name}:{line}" for name, line in zip(names, lines, strict=True))


def pictures(frame: pd.DataFrame) -> dict[int, str]:
    """Return the SVG of gains by lag, of tasks with headroom."""
    found = frame[frame["task"].isin(roomy(frame))]
    found = summary(found) if len(found) else found
    lags = sorted(set(frame["lag"]) - {PIPELINE})
    drawn = {int(lag): gains(found, lag) for lag in lags} if len(found) else {}
    return {lag: svg for lag, svg in drawn.items() if svg}


def choices(frame: pd.DataFrame) -> list[tuple[float, bool, Advice]]:
    """Return the table's advice at DRIFTS, with everything tuned and with a guessed rate."""
    asked = ((kl, guessed) for kl in DRIFTS for guessed in (False, True))
    found = (
        (kl, guessed, advise(Drift(kl, math.nan, math.nan, math.nan, 0, 0), frame, guessed))
        for kl, guessed in asked
    )
    return [each for each in found if each[2].rows]


def _which(frame: pd.DataFrame) -> str:
    found = choices(frame)
    if not found:
        return ""
    rows = []
    for kl, guessed, advice in found:
        best = advice.rows[0]
        loss = f"{best['loss']:.2f} ({best['low']:.2f} to {best['high']:.2f})"
        known = "the knob, the rate is a guess" if guessed else "rate and knob"
        knobs, factor = "<br>".join(best["knob"].split("; ")), best["rate / GRPO's"]
        cells = (
            f"<details><summary>{best['tasks']} cell{'s' * (best['tasks'] > 1)}</summary>{knobs}</details>"
        )
        rows.append(
            f"| {kl:g} | {known} | {best['arm']} | {loss} | {best['wrong rate']:.2f} | {factor} | {cells} |"
        )
    return WHICH.format(low=found[0][2].low, high=found[0][2].high, rows="\n".join(rows))


def _joint(frame: pd.DataFrame) -> str:
    found = one_setting.losses(frame, ["arm"]).set_index("arm")
    rows = []
    for row in joint(tuning()).to_dict("records"):
        ran = "– | – | –"
        if row["arm"] in found.index:
            at = found.loc[row["arm"]]
            ran = (
                f"{at['one']:.2f} | {at['own']:.2f} | {at['loss']:.2f} ({at['low']:.2f} to {at['high']:.2f})"
            )
        rows.append(
            f"| {row['arm']} | {row['rate']:g} | {row['knob']} | {row['cells']} | {row['joint']:.2f} | "
            f"{row['own']:.2f} | {row['loss']:.2f} | {ran} |"
        )
    places = ", ".join(f"{task} {lag}" for task, lag in one_setting.places())
    return JOINT.format(rows="\n".join(rows), seeds=len(one_setting.SEEDS), places=places)


def _picture(lag: int) -> str:
    return (
        f'<div class="block" data-lag="{lag}" markdown>\n\n'
        f"## Gains at lag {lag}\n\n"
        "Recipes from the largest mean gain over tuned GRPO to the smallest, a dot and a 95 % interval per\n"
        "task; right of the gray band a recipe gains what counts. Recipes that ran on fewer tasks come\n"
        "last; tasks without headroom are left out.\n\n"
        f"![Gain over tuned GRPO at lag {lag}, by recipe and task]({PICTURE.format(lag=lag)})"
        '{ width="640" }\n\n</div>\n'
    )


def _headroom(frame: pd.DataFrame, task: str) -> str:
    finals = fresh(frame)
    if task not in finals:
        return "Fresh data have not run on this task, so its headroom is not known.\n"
    inside = LOW <= finals[task] <= HIGH
    said = "the task has headroom" if inside else "the task has no headroom and decides nothing"
    return f"Fresh data end at {finals[task]:.2f}, expected {LOW:g} to {HIGH:g}: {said}.\n"


def _line(row: dict[str, object]) -> str:
    gain = "" if row["gain"] != row["gain"] else f"{row['gain']} ({row['gain_low']} to {row['gain_high']})"
    when = "" if row["steps_to_fresh"] != row["steps_to_fresh"] else f"{row['steps_to_fresh']:.0f}"
    knob = f"{row['knob']}{' (edge)' if row['at_edge'] else ''}"
    first = (row["arm"], f"{row['rate']:g}", knob, row["final"], gain, row["failed"])
    paths = (row["area"], row["collapsed"], row["sensitivity"], when.replace("inf", "never"))
    rest = (row[name] for name in ("entropy", "length", "pass@8", "kl", "clip_share", "ess"))
    return f"| {' | '.join(map(str, (*first, *paths, *rest)))} |"


def write(frame: pd.DataFrame, place: Path = PAGE) -> None:
    """Write the page and its pictures; remove pictures of lags that the table no longer has."""
    chosen = losses(choices(frame))
    drawn = {place.parent / PICTURE.format(lag=lag): svg for lag, svg in pictures(frame).items()}
    drawn |= {place.parent / PICTURE.format(lag="which"): chosen} if chosen else {}
    for old in set(place.parent.glob(PICTURE.format(lag="*"))) - set(drawn):
        old.unlink()
    for path, svg in drawn.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(svg)
    place.write_text(page(frame))


if __name__ == "__main__":
    write(load())
