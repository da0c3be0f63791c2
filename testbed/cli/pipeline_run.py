"""testbed pipeline … --then run …: train a sweep under the pipeline's lags, by wall clock."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core

from testbed.cli import show
from testbed.cli.extensions import part
from testbed.errors import UserError
from testbed.execution.progress import choose

if TYPE_CHECKING:
    from testbed.config.run import Run
    from testbed.pipeline.design import Design
    from testbed.results.store import Status


class WithTail(typer.core.TyperCommand):
    """A command that takes everything after --then as one value: the words of another command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the words after --then with line breaks."""
        if "--then" in args[:-1]:
            place = args.index("--then")
            args = [*args[: place + 1], "\n".join(args[place + 1 :])]
        return super().parse_args(ctx, args)


def pipeline_run(text: str, design: "Design", seed: int, reach: float | None, json: bool) -> None:
    """Train the sweep of the words after --then at this design's lags; UserError for other commands."""
    from testbed.cli.run_sweep import describe, resolve
    from testbed.results.store import folder_for

    command, *tail = text.split("\n")
    if command != "run":
        raise UserError(f"--then {command}: expected `--then run SWEEP [FIELD=VALUE]...`.")
    given = parse(tail)
    base = resolve(given["sweep"], given["overrides"] or [], given["objective"] or [])
    cells = under(base, design, seed)
    folder = Path(given["out"] or folder_for("results", f"{Path(given['sweep']).stem}-pipeline"))
    if given["dry_run"]:
        describe(cells, folder, json or given["json"])
        return
    status = train(cells, folder, given)
    keep_trace(folder, design, max(cell.steps for cell in cells), seed)
    report(folder, status, reach, json or given["json"])
    if status.failed:
        raise typer.Exit(1)


def parse(tail: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `testbed run` by name, parsed as that command does."""
    from testbed.cli.run_sweep import run

    app = typer.Typer(add_completion=False)
    app.command("run")(run)
    return typer.main.get_command(app).make_context("testbed pipeline --then run", list(tail)).params


def under(cells: "Sequence[Run]", design: "Design", seed: int) -> "tuple[Run, ...]":
    """Return the cells with their lags from this pipeline and its seed."""
    from testbed.pipeline.design import to_words

    arguments = (("design", " ".join(to_words(design))), ("seed", seed))
    return tuple(replace(cell, staleness="pipeline", staleness_args=arguments) for cell in cells)


def train(cells: "Sequence[Run]", folder: Path, given: dict[str, Any]) -> "Status":
    """Run the cells missing from the folder, with the options of `testbed run`."""
    from testbed.cli.run_sweep import _ray
    from testbed.execution.runner import run_sweep

    executor = _ray(given["ray"], given["workers"], given["threads"], given["timeout"])
    how = {name: given[name] for name in ("workers", "threads", "timeout", "shard", "extend")}
    return run_sweep(cells, folder, executor=executor, progress=choose(given["quiet"]), **how)


def keep_trace(folder: Path, design: "Design", steps: int, seed: int) -> None:
    """Write the trace that the cells followed next to their results, for `staleness=trace`."""
    from testbed.pipeline import trace

    trace.write(trace.record(design, -(-steps // design.updates), seed), folder / "lags.parquet")


def report(folder: Path, status: "Status", reach: float | None, json: bool) -> None:
    """Print return and simulated time per recipe, and where the results are."""
    from testbed.cli.run_sweep import counts, settled
    from testbed.results.store import read

    level, rows = part("wall_clock")(read(folder).to_pandas(), reach) if status.done else (reach, [])
    if json:
        show.as_json({"folder": str(folder), **counts(status), "level": level, "recipes": rows})
        return
    if rows:
        print(f"Return {level:.3g} is asked for; seconds are the pipeline's.")
        show.table([brief(row) for row in rows])
    print(settled(status))
    print(f"Results: {folder}, with the trace in lags.parquet")
    if status.failed:
        print(f"Why cells failed: testbed status {folder}")


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for a terminal."""
    found = {name: value for name, value in row.items() if name not in ("reached", "seeds")}
    level = f"{row['seconds to level']:.0f}" if row["reached"] else "never"
    told = {"final": f"{row['final']:.3f}", "age": f"{row['age']:.2f}", "seconds to level": level}
    return {**found, **told, "reached": f"{row['reached']} of {row['seeds']}"}
