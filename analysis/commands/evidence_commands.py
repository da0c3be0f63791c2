"""testbed evidence run: an experiment's runs, table and claims, by one name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.experiment import EXPERIMENTS
from testbed.cli import show
from testbed.cli.cost_prompt import Yes, agree, cost_of
from testbed.errors import UserError
from testbed.execution.progress import choose

if TYPE_CHECKING:
    from analysis.experiment import Experiment
    from testbed.execution.progress import Progress

RUNS = Path("out/experiments")
Workers = Annotated[int | None, typer.Option(min=0, help="Worker processes; default one per core.")]


def run_experiments(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments: `testbed list experiments`.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the tables beside the others; judge no claims.")
    ] = False,
    computed: Annotated[
        bool, typer.Option("--computed", help="Every experiment with a table that needs no runs.")
    ] = False,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Read this results folder instead of running; repeatable."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the written tables; default: the committed ones.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the runs; finished runs are not repeated.")] = RUNS,
    workers: Workers = None,
    partial: Annotated[bool, typer.Option("--partial", help="Accept folders with unfinished cells.")] = False,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run what an experiment lacks, make its table and judge its claims; --write keeps the table instead.

    Without --write the committed files stay as they are, and --write later takes a computed table from
    out/experiments/NAME if the code is still the same.

    Examples:
    testbed evidence run batch-invariance --workers 2

    testbed evidence run passes --write

    testbed evidence run staleness --write --from results/mine
    """
    chosen = [EXPERIMENTS[name] for name in names or ()]
    every = EXPERIMENTS.values() if computed else ()  # looking at them all loads their files
    chosen += [each for each in every if each.compute and each not in chosen]
    if not chosen:
        raise UserError("No experiment was given. Give names, or --computed for all that need no runs.")
    if not write and (source or data or partial):
        raise UserError("--from, --data and --partial act on the written table; give --write too.")
    for experiment in chosen:
        if experiment.command and not write:
            raise UserError(
                f"'{experiment.name}' is run by another command. Run instead: {experiment.command}"
            )
        if not source:
            agree_on_experiment(experiment, results, workers, yes=yes, quiet=quiet or json)
    progress = choose(quiet or json)
    if write:
        options = {"root": results, "workers": workers, "partial": partial, "progress": progress}
        paths = []
        for each in chosen:
            say(f"making the table of {each.name}", quiet or json)
            paths += [str(path) for path in _written(each, source or (), data, options)]
        show.as_json(paths) if json else print(*paths, sep="\n")
        return
    found = [_judged(each, results, workers, progress, quiet or json) for each in chosen]
    if json:
        show.as_json(found[0] if len(found) == 1 else found)
        return
    for one in found:
        _report(one)


def _written(
    experiment: Experiment, source: Sequence[Path], data: Path | None, options: dict[str, Any]
) -> list[Path]:
    """Take or compute one table, write it to the folder of tables, and return the written paths."""
    from analysis.tables.committed import COMMITTED, is_committed, load_committed
    from analysis.tables.making import add_tables, make

    name, before = experiment.name, _folder_of_today(experiment, options["root"])
    if not source and is_committed(before):
        table = load_committed([name], before)[name]
    else:
        table = make(experiment, source, **options)
    return add_tables({name: table}, data or COMMITTED)


def _folder_of_today(experiment: Experiment, results: Path) -> Path:
    """Return the folder that holds the experiment's computed table if this very code made it before."""
    from analysis.judging.digests import of_code, of_question

    name = experiment.name
    return results / name / f"table-{of_question(name)}-{of_code(name, computed=True)}"


def _judged(
    experiment: Experiment, results: Path, workers: int | None, progress: Progress, quiet: bool
) -> dict[str, Any]:
    """Run missing cells, make the table, judge the claims; return both as JSON-compatible values."""
    from analysis.judging.verdicts import ask
    from analysis.tables.making import make, run, write_tables

    name, fresh = experiment.name, {}
    if experiment.keys:
        say(f"making the table of {name}", quiet)
        fresh = {name: make(experiment, root=results, workers=workers, progress=progress)}
        if experiment.compute:
            write_tables(fresh, _folder_of_today(experiment, results))
    elif experiment.cells is not None:
        run(experiment, results, workers=workers, progress=progress)
    rows = []
    for index, claim in enumerate(experiment.claims, start=1):
        say(f"claim {index}/{len(experiment.claims)}: {claim}", quiet)
        rows += ask(claim, fresh=fresh)
    tables = {table: len(made.frame) for table, made in fresh.items()}
    return {"experiment": name, "rows": tables, "claims": rows}


def _report(found: dict[str, Any]) -> None:
    for table, rows in found["rows"].items():
        print(f"table {table}: {rows} rows. Keep it: testbed evidence run {table} --write")
    if found["claims"]:
        shown = ("claim", "effect", "low", "high", "asks", "verdict", "kind", "e", "n")
        show.table([{k: "" if row[k] is None else row[k] for k in shown} for row in found["claims"]])


def say(text: str, quiet: bool) -> None:
    """Print a line of progress to stderr."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def agree_on_experiment(
    experiment: Experiment, root: Path, workers: int | None, *, yes: bool, quiet: bool
) -> None:
    """Print the cost of the runs behind an experiment's table; above an hour ask for confirmation.

    With a stopping rule the cost is that of all its seeds.
    """
    from testbed.results.store import folder_for

    source = EXPERIMENTS[experiment.runs] if experiment.runs else experiment
    if source.cells is None:
        return
    source.make_ready(quiet=quiet)
    folder = folder_for(root, source.name)
    parts = [(source.table_cells(), folder)]
    if source.stop is not None:
        blocks = [new for seeds in (source.stop.seeds(), source.stop.fresh_seeds()) for _, new in seeds]
        parts = [(source.cells_at(new), folder / f"{new.start}-{new.stop - 1}") for new in blocks]
    agree(cost_of(parts, workers), yes=yes, quiet=quiet, at_most=source.stop is not None)
