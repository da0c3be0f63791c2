"""testbed run: a sweep, resumable, on this machine, in shards or on Ray."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.consent import Yes

if TYPE_CHECKING:
    from testbed.config.run import Run
    from testbed.config.toml_file import Watch
    from testbed.execution.executors import Executor
    from testbed.results.store import Status


def run(
    sweep: Annotated[str, typer.Argument(help="Name of a sweep (`testbed list sweeps`) or a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Fields to set; a,b,c is an axis.")
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE.py:FUNCTION", help="Run your own objective in place of the recipes."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Results folder; default results/SWEEP.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Worker processes; default one per core, 0 = this process.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads per worker.")] = 1,
    timeout: Annotated[float | None, typer.Option(help="Seconds a pack of cells may take.")] = None,
    shard: Annotated[str, typer.Option(help="i/n: run the i-th of n parts, for job arrays.")] = "1/1",
    ray: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS]", help="Run on Ray: a cluster's address, or one started here."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Run a sweep; what its folder already holds is not run again.

    Where a lag needs more versions of the weights than memory holds, TESTBED_SPILL=FOLDER keeps them there.

    Examples:
    testbed run staleness

    testbed run staleness recipe=grpo,m2po lag=0,32 seed=0,1,2 steps=100 --out results/mine

    testbed run my_sweep.toml --shard 3/10

    testbed run staleness recipe=grpo,cispo@trl --objective mine.py:my_objective

    testbed run bandit-grid --ray
    """
    from testbed.cli import show
    from testbed.cli.consent import agree, cost_of
    from testbed.config.toml_file import unwatched
    from testbed.execution.progress import choose, watched
    from testbed.execution.runner import run_sweep
    from testbed.results.store import folder_for

    watch = unwatched if quiet else watched
    cells = resolve(sweep, overrides or [], objective or [], watch)
    folder = out or folder_for("results", Path(sweep).stem)
    if dry_run:
        describe(watch("planning cells", len(cells), cells), folder, json)
        agree(cost_of([(cells, folder)], workers, shard), yes=True, quiet=quiet)
        return
    if ray is None:  # of a cluster nothing is known here
        agree(cost_of([(cells, folder)], workers, shard), yes=yes, quiet=quiet)
    status = run_sweep(
        cells,
        folder,
        executor=_ray(ray, workers, threads, timeout),
        workers=workers,
        threads=threads,
        timeout=timeout,
        shard=shard,
        progress=choose(quiet),
    )
    summary = summarize(folder)
    if json:
        show.as_json({"folder": str(folder), **counts(status), "summary": summary})
    else:
        report(folder, status, summary)
    if status.failed:
        raise typer.Exit(1)


def resolve(
    sweep: str, overrides: list[str], outside: Sequence[str] = (), watch: Watch | None = None
) -> tuple[Run, ...]:
    """Return the cells of a named sweep or a TOML file with field=value words applied.

    outside: objectives in files, which take the place of the sweep's recipes, or join those that
    `recipe=` names.
    watch: told of every cell on its way.
    """
    from analysis.experiment import sweep as named
    from testbed.config.toml_file import expand, from_toml, unique, unwatched
    from testbed.recipes import recipe
    from testbed.staleness.trace_driven import pin_trace
    from testbed.user_files import pin
    from testbed.worlds.tasks import tasks

    known = {"task": list(tasks()), "recipe": recipe.names()}
    watch = watch or unwatched
    base = from_toml(sweep, known, watch) if sweep.endswith(".toml") else named(sweep)
    cells = expand(base, overrides, known, watch) if overrides or not sweep.endswith(".toml") else base
    if outside:
        kept = cells if any(word.startswith("recipe=") for word in overrides) else ()
        names = [pin(name) for name in outside]
        cells = unique(
            [*kept, *(replace(cell, recipe=name, recipe_args=()) for name in names for cell in cells)]
        )
    return tuple(pin_trace(cell) for cell in cells)


def describe(cells: Iterable[Run], folder: Path, json: bool) -> None:
    """Print what would run; raise UserError where nothing would."""
    from testbed.cli import show
    from testbed.execution.preflight import prepare

    packs, _ = prepare(cells, folder=folder)
    if json:
        show.as_json({"folder": str(folder), "packs": [list(pack.names) for pack in packs]})
        return
    count = sum(len(pack.cells) for pack in packs)
    print(f"{count} cells in {len(packs)} packs would go to {folder}; the first and the last:")
    print(f"  {packs[0].names[0]}\n  {packs[-1].names[-1]}")


def summarize(folder: Path) -> list[dict[str, Any]]:
    """Return the closing table's rows, one per setting, over seeds; none without results."""
    from analysis.collapse import summary_table
    from analysis.values import VALUE, value_table
    from testbed.errors import UserError
    from testbed.results.store import read

    try:
        frame = read(folder).to_pandas()
    except UserError:  # nothing finished yet: the counts say so
        return []
    if "accuracy" in frame:
        found = summary_table(frame)
    elif VALUE in frame:
        found = value_table(frame)
    else:
        return []
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


def report(folder: Path, status: Status, summary: list[dict[str, Any]]) -> None:
    """Print the closing table and what to do next."""
    from testbed.cli import show

    if summary:
        show.table([brief(row) for row in summary])
    print(f"{status.done} of {status.planned} cells done, {status.failed} failed, {status.pending} pending.")
    print(f"Results: {folder}   Figures: testbed figures --data {folder} --out {folder}-figures")
    if status.failed:
        print(f"Why cells failed: testbed status {folder}")


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a summary row that fit a terminal."""
    from testbed.config.run import Run

    start = {"task": row["task"], "recipe": row["recipe"], "lag": int(row["lag"])}
    start |= {
        item.name: row[item.name] for item in fields(Run) if item.name in row and item.name not in start
    }
    if "ess_exact" in row:
        return {
            **start,
            **{f"{name} value": f"{row[name]:.3f}" for name in ("first", "final", "best")},
            "smallest exact ESS": "unknown" if isnan(row["ess_exact"]) else f"{row['ess_exact']:.3g}",
            "sampled": f"{row['ess_sampled']:.3g}",
            "seeds": row["n"],
        }
    lost = row["collapsed"] * row["seeds"]
    return {
        **start,
        "final": f"{row['final']:.2f}",
        "best": f"{row['best']:.2f}",
        "smallest ESS": f"{row['ess_min']:.3f}",
        "floor": f"{row['ess_floor']:.3f}",
        "collapse": "no" if lost == 0 else f"yes, {lost:.0f} of {row['seeds']} seeds",
    }


def counts(status: Status) -> dict[str, int]:
    """Return planned, done, failed and pending cells."""
    return {name: getattr(status, name) for name in ("planned", "done", "failed", "pending")}


def _ray(address: str | None, workers: int | None, threads: int, timeout: float | None) -> Executor | None:
    if address is None:
        return None
    from testbed.execution.ray_executor import Ray

    return Ray(None if address == "local" else address, workers or None, threads, timeout)
