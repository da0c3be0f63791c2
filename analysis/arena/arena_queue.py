"""The arena's queue: tune arms, run their finals, keep their rows. A step is a sweep that can be resumed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.arena import curves, table
from analysis.arena.arms import Arm
from analysis.arena.chosen_settings import cells_of
from analysis.arena.halving import (
    FACTOR,
    FULL,
    WRONG,
    Effort,
    Scores,
    Setting,
    across,
    best_of,
    between,
    beyond,
    cell,
    chosen,
    lower,
    promising,
    seeds_up_to,
    unsettled,
)
from analysis.arena.halving import on_tuning_seeds as tuning_cells
from analysis.arena.tasks import shown, tuned_at
from analysis.tables.cell_table import words
from analysis.tables.committed import load_results
from testbed.config.run import Run
from testbed.config.run import cell_ids as ids
from testbed.errors import UserError

BATCH = 4
"""Arms whose cells run stacked and whose rows are written together."""
SECONDS = 1.8
"""Core-seconds of a cell, for the cost printed before a queue starts: measured for one arm on sorted; stacked
arms take 0.1 to 0.8."""


def cost(arms: int, effort: Effort = FULL) -> tuple[int, float]:
    """Return the most cells that `arms` arms need at one task and lag, and their core-seconds."""
    cells = arms * effort.cells
    return cells, cells * SECONDS


def run_arms(
    name: str,
    base: Run,
    arms: Sequence[Arm],
    lag: int,
    folder: Path,
    say: Callable[[str], None] = print,
    effort: Effort = FULL,
    tried: Mapping[str, Scores] | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tune the arms on a task at a lag, run their finals; return a row per arm and final seed, and tuning.

    Args: name: of the task in the table. base: run of the task. arms: arms that run stacked. lag:
    optimizer steps. folder: keeps the sweeps, from which the same call resumes. say: called with each
    step. effort: how many seeds. tried: scores of an earlier tuning by arm, from which it goes on; then
    finals run for arms whose setting changes.
    """
    from testbed.execution.runner import run_sweep

    started = time.monotonic()
    scores = {arm.name: {at: [*each] for at, each in (tried or {}).get(arm.name, {}).items()} for arm in arms}
    before = {name: chosen(found) for name, found in scores.items() if found}

    def step(step_name: str, wanted: Sequence[tuple[Arm, Run]]) -> pd.DataFrame:
        runs = [run for _, run in wanted]
        unique = dict(zip(ids(runs), runs, strict=True))
        done = run_sweep(unique.values(), folder / step_name, workers=0)
        if done.failures:
            failure = done.failures[0]
            raise UserError(
                f"{name}, {step_name}: {done.failed} of {done.planned} runs failed, as {failure.cells[0]}: "
                f"{failure.message.rstrip('.')}. Change what fails and call again; finished runs are kept."
            )
        say(f"{name} lag {lag} {step_name}: {len(unique)} cells, after {time.monotonic() - started:.0f} s")
        return load_results(folder / step_name)

    def tune(step_name: str, settings: dict[str, list[Setting]], seeds: Sequence[int]) -> None:
        cells = [(a, run) for a in arms for run in tuning_cells(base, a, lag, settings[a.name], seeds)]
        if not cells:
            return
        rows = step(step_name, cells)
        found = {by: table.scores(rows, by) for by in {arm.by for arm in arms}}
        for (arm, run), cell_id in zip(cells, ids([r for _, r in cells]), strict=True):
            score = found[arm.by][cell_id]
            scores[arm.name].setdefault((run.learning_rate, run.recipe_args), []).append(score)

    _search(tune, arms, scores, effort, curves.start(name), new=not tried)
    best = {arm.name: chosen(scores[arm.name]) for arm in arms}
    moved = [arm for arm in arms if best[arm.name] != before.get(arm.name)]
    for arm in arms:
        say(f"{name} lag {lag}: {arm.name} at {_told(best[arm.name])}{', as before' * (arm not in moved)}")
    tuned = table.tuning_of(name, lag, scores)
    if not moved:
        return pd.DataFrame(), tuned
    wanted, wrong = _finals(base, lag, {arm: best[arm.name] for arm in moved}, effort.finals)
    edges = {arm.name: bool(beyond(scores[arm.name], arm.knob)) for arm in arms}
    return table.rows_of(name, step("finals", [*wanted, *wrong]), wanted, wrong, edges), tuned


def _search(
    tune: Callable[[str, dict[str, list[Setting]], Sequence[int]], None],
    arms: Sequence[Arm],
    scores: Mapping[str, Scores],
    effort: Effort,
    start: float = 0.0,
    *,
    new: bool,
) -> None:
    """Tune the arms by successive halving, or go on from their scores; `tune` adds to these.

    With further pilots, what a round makes promising on a few seeds runs on all of them before the next.
    """
    seen, few = len(effort.screen), len(effort.tuning)
    more = range(few, effort.pilots)
    if new:
        tune("screen", {arm.name: list(arm.settings) for arm in arms}, effort.screen)
        tune("fine", {arm.name: best_of(scores[arm.name]) for arm in arms}, effort.fine)
    if effort.growths:
        tune("across", {arm.name: across(scores[arm.name], arm.knob) for arm in arms}, effort.screen)
        tune("across-fine", {arm.name: promising(scores[arm.name], seen) for arm in arms}, effort.fine)
    tune("settled", {arm.name: unsettled(scores[arm.name], effort.pilots) for arm in arms}, more)
    for kind, neighbors in [("growth", beyond)] * new + [("finer", between)]:
        for each in range(effort.growths):
            tune(f"{kind}-{each}", {a.name: neighbors(scores[a.name], a.knob) for a in arms}, effort.tuning)
    for each in range(effort.growths * bool(effort.pilots)):
        tune(f"lower-{each}", {arm.name: lower(scores[arm.name], start) for arm in arms}, effort.tuning)
        tune(f"settled-{each}", {arm.name: promising(scores[arm.name], few) for arm in arms}, more)
        tune(f"refined-{each}", {a.name: between(scores[a.name], a.knob) for a in arms}, effort.tuning)


def _told(setting: Setting) -> str:
    rate, args = setting
    return f"rate {rate:g}, {words(args)}"


def _finals(
    base: Run, lag: int, settings: Mapping[Arm, Setting], seeds: Sequence[int]
) -> tuple[list[tuple[Arm, Run]], list[tuple[Arm, Run]]]:
    """Return the finals of arms at their settings, and those at both wrong rates on the seeds WRONG."""
    wanted = [(arm, cell(base, arm, lag, best, seed)) for arm, best in settings.items() for seed in seeds]
    wrong = [
        (arm, replace(run, learning_rate=float(f"{run.learning_rate * factor:.2g}")))
        for arm, run in wanted
        for factor in (1 / FACTOR, FACTOR)
        if run.seed - arm.shift in WRONG
    ]
    return wanted, wrong


def run_more(
    name: str, arms: Sequence[Arm], lag: int, frame: pd.DataFrame, folder: Path, count: int
) -> pd.DataFrame:
    """Run the arms at the settings of the committed table until both runs have `count` seeds; write the rows
    that were missing or had run at another setting to FOLDER/NAME-lag-more.csv.

    Raises KeyError for an arm that the table lacks at this task and lag.
    """
    from testbed.execution.runner import run_sweep

    rows_at = dict(iter(frame[frame["task"] == name].groupby("lag")))
    tuned = rows_at[tuned_at(lag)].groupby("arm")
    edges, rates, knobs = tuned["at_edge"].max(), tuned["rate"].first(), tuned["knob"].first()
    here = rows_at.get(lag, frame[:0])
    same = (here["rate"] == here["arm"].map(rates)) & (here["knob"] == here["arm"].map(knobs))
    had = here[same].groupby("arm")["seed"].agg(set).to_dict()
    wanted = [
        (arm, run)
        for arm in arms
        for run in cells_of(frame, name, {arm.name: (lag,)}, seeds_up_to(count, had.get(arm.name, ())))
    ]
    place = folder / name / f"lag{shown(lag)}" / f"to{count}"
    run_sweep([run for _, run in wanted], place, workers=0)
    rows = load_results(place)
    found = table.rows_of(name, rows, wanted, [], {arm.name: bool(edges[arm.name]) for arm in arms})
    found.to_csv(folder / f"{name}-{shown(lag)}-more.csv", index=False)
    return found


def run_queue(
    name: str,
    base: Run,
    arms: Sequence[Arm],
    lag: int,
    folder: Path,
    say: Callable[[str], None] = print,
    shard: tuple[int, int] = (1, 1),
    effort: Effort = FULL,
    finer: bool = False,
) -> pd.DataFrame:
    """Run the arms batch by batch, most valuable first; FOLDER/NAME-lag.csv has the rows so far.

    shard: (k, n) runs every n-th batch from the k-th on, and marks its file, so that machines can share a
    queue. finer: go on from the committed tuning, which raises UserError where it lacks an arm.
    """
    k, n = shard
    arms = [arm for place, arm in enumerate(arms) if place // BATCH % n == k - 1]
    part = f"-shard{k}of{n}" if n > 1 else ""
    cells, seconds = cost(len(arms), effort)
    say(f"{name} at lag {lag}: at most {cells} cells, about {seconds / 60:.1f} core-minutes.")
    done: list[tuple[pd.DataFrame, pd.DataFrame]] = []
    for first in range(0, len(arms), BATCH):
        some = arms[first : first + BATCH]
        place = folder / name / f"lag{lag}" / "-".join(arm.name for arm in some)
        tried = {arm.name: table.tried(name, lag, arm) for arm in some} if finer else None
        done.append(run_arms(name, base, some, lag, place, say, effort, tried))
        for suffix, frames in zip(("", "-tuning"), zip(*done, strict=True), strict=True):
            if len(both := pd.concat(frames)):
                both.to_csv(folder / f"{name}-{lag}{part}{suffix}.csv", index=False)
    return pd.concat([rows for rows, _ in done])
