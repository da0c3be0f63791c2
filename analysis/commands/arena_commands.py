"""testbed arena: every recipe on stale data in one table, with recipes of a user beside them."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.cli.extensions import part
from testbed.errors import UserError, unknown

app = typer.Typer(
    help="Compare recipes on stale data, each tuned alike.", rich_markup_mode=None, no_args_is_help=True
)
Task = Annotated[str, typer.Option(help="Task of the arena.")]
Lag = Annotated[
    str, typer.Option(metavar="N|pipeline", help="Age of data in optimizer steps, or a pipeline's ages.")
]
Out = Annotated[Path, typer.Option(help="Results folder; the same call goes on from there.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
SHOWN = (
    "task", "lag", "arm", "seeds", "rate", "knob", "final", "gain", "gain_low", "gain_high", "sensitivity",
)  # fmt: skip
OUTCOMES = (
    "failed", "area", "collapsed", "entropy", "length", "pass@8", "steps_to_fresh", "kl", "clip_share", "ess",
)  # fmt: skip
"""What --outcomes shows in place of the gains."""


@app.command("show")
def show_table(
    task: Annotated[str, typer.Option(help="Only this task.")] = "",
    lag: Annotated[str, typer.Option(metavar="N|pipeline", help="Only this lag.")] = "",
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="Show area, collapse, entropy, length, pass@8 and drift.")
    ] = False,
    one_setting: Annotated[
        bool, typer.Option("--one-setting", help="Show finals at a recipe's one setting for all tasks.")
    ] = False,
    curve: Annotated[
        bool, typer.Option("--curve", help="Draw mean accuracy along training, 0 to 1.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the committed table: finals, gains over GRPO with 95 % intervals, cost of a wrong rate.

    Examples: testbed arena show --task sorted --lag 64

    testbed arena show --task guess --lag 64 --outcomes

    testbed arena show --task sums --lag 64 --curve
    """
    from analysis.arena import curves, table, tasks
    from analysis.arena import one_setting as one

    if one_setting + curve + outcomes > 1:
        raise UserError("Give one of --outcomes, --one-setting and --curve: each shows other columns.")
    frame = table.load()
    found = curves.load() if curve else one.losses(frame) if one_setting else table.summary(frame)
    found = curves.timed(found, dict(table.fresh(frame))) if outcomes else found
    at = [tasks.lag_from(lag)] if lag else found["lag"]
    chosen = found[((found["task"] == task) | (task == "")) & found["lag"].isin(at)]
    if chosen.empty:
        sought = f"task '{task}'" * bool(task) + " at " * bool(task and lag) + f"lag {lag}" * bool(lag)
        raise UserError(f"The table has nothing of {sought}. It has {table.held(found)}.")
    if json:
        return show.as_json(table.records(chosen))
    if curve:
        drawn = [show.sparkline(map(float, line.split())) for line in chosen["curve"]]
        return show.table(table.records(chosen.assign(curve=drawn)))
    columns = [*SHOWN[:-4], "sensitivity", *OUTCOMES] if outcomes else [*SHOWN]
    show.table(table.records(chosen if one_setting else chosen[columns]))


@app.command("run")
def run_arena(
    task: Annotated[str, typer.Option(help="Task; all runs every task at every lag.")] = "sorted",
    lag: Lag = "64",
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; can be repeated.")] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Continue arms of the table to this many seeds, at its settings.")
    ] = 0,
    finer: Annotated[
        bool, typer.Option("--finer", help="Go on from the committed tuning; run finals where it changes.")
    ] = False,
    pilots: Annotated[
        int, typer.Option(min=0, help="With --finer: compare the best four settings on so many tuning seeds.")
    ] = 0,
    shard: Annotated[str, typer.Option(metavar="K/N", help="Every N-th batch of arms.")] = "1/1",
    out: Out = Path("results/arena"),
) -> None:
    """Tune the arms on a task at a lag, run their finals, and write OUT/TASK-LAG.csv, batch by batch.

    Examples: testbed arena run --task sorted --lag 64 --arm grpo --arm cispo

    testbed arena run --task sorted --lag 64 --arm grpo --arm cispo --seeds 64
    """
    from analysis.arena import arena_queue, arms, halving, table, tasks

    known = arms.known()
    for name in arm or []:
        if name not in known:
            raise unknown("arm", name, known)
    asked = [known[name] for name in arm or []]
    k, _, n = shard.partition("/")
    if not (k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise UserError(f"--shard is '{shard}', expected K/N with K from 1 to N, as in 1/2.")
    part, steps = (int(k), int(n)), tasks.lag_from(lag)
    if finer and (seeds or steps == tasks.PIPELINE):
        raise UserError("--finer tunes at a lag in steps; leave out --seeds and --lag pipeline.")
    if pilots and (not finer or pilots <= len(halving.FULL.tuning)):
        raise UserError(
            f"--pilots is {pilots}{'' if finer else ' without --finer'}, expected more than the "
            f"{len(halving.FULL.tuning)} seeds of the committed tuning, as in --finer --pilots 32."
        )
    if seeds or steps == tasks.PIPELINE:
        frame = table.load()
        tuned = frame[(frame["task"] == task) & (frame["lag"] == tasks.tuned_at(steps))]
        had = sorted(set(tuned["arm"]))
        if not asked or not {one.name for one in asked} <= {*had}:
            raise UserError(
                f"--seeds and --lag pipeline need --arm, of those tuned for '{task}' at lag {lag}: {had}. "
                f"The table has {table.held(frame)}."
            )
        if part != (1, 1):
            raise UserError(
                "--shard shares out tunings; --seeds and --lag pipeline run one. Leave --shard out."
            )
        arena_queue.run_more(task, asked, steps, frame, out, seeds or tasks.PIPELINE_SEEDS)
        return
    for name, at in tasks.queue() if task == "all" else [(task, steps)]:
        base, tuned = tasks.task(name), table.tuning()
        here = set(tuned[(tuned["task"] == name) & (tuned["lag"] == at)]["arm"])
        every = asked or [arm for arm in arms.at(at) if not finer or arm.name in here]
        effort = replace(halving.FULL, pilots=pilots)
        arena_queue.run_queue(name, base, every, at, out, shard=part, effort=effort, finer=finer)


@app.command("add")
def add(
    recipe: Annotated[str, typer.Argument(metavar="FILE:FN", help="A recipe, or FILE:FUNCTION.")],
    knob: Annotated[str, typer.Option(help="NAME=VALUE,VALUE,…: the argument to tune.")] = "",
    task: Task = "sorted",
    lag: Lag = "64",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A third of the runs: fewer tuning seeds, fixed grid, 8 + 8 finals."),
    ] = False,
    out: Out = Path("results/arena"),
    html: Annotated[Path | None, typer.Option(help="Write the row and a picture to this page.")] = None,
    json: Json = False,
) -> None:
    """Tune and run your recipe against the committed table, without running the others again.

    Examples: testbed arena add my_loss.py:capped --knob cap=1,2,4 --quick --html capped.html

    testbed arena add my_loss.py:capped --knob cap=1,2,4 --task sums --lag 64
    """
    from analysis.arena import own, table, tasks
    from analysis.arena.halving import FULL, QUICK

    if html is not None and html.is_dir():
        raise UserError(f"--html names the folder {html}, expected a file, as in --html page.html.")
    base, arm = tasks.task(task), own.arm_of(recipe, knob)
    steps = tasks.lag_from(lag)
    committed = own.rivals(table.load(), task, steps, arm.name)
    say = partial(print, file=sys.stderr)
    rows = own.trained(task, base, arm, steps, out / "own", say, QUICK if quick else FULL)
    found = table.records(own.ranked(committed, rows))
    show.as_json(found) if json else show.table(found)
    if quick:
        say("Quick: tuned on fewer seeds than the table's recipes, so that the full run may rank it higher.")
    if html is not None:
        part("write_arena_page")(html, own.joined(committed, rows), found[0], task, steps)
        say(f"Wrote {html}")
