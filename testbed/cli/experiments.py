"""testbed experiments: question, cells or computation, table, claims and figure, by one name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.cost_prompt import Yes, agree_on_experiment

if TYPE_CHECKING:
    from analysis.experiment import Experiment

app = typer.Typer(
    help="List, show and run experiments, make their tables.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Name of an experiment (`testbed experiments list`).")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Workers = Annotated[int | None, typer.Option(min=0, help="Worker processes; default one per core.")]
Results = Annotated[Path, typer.Option(help="Where runs are kept; what it holds is not run again.")]
Data = Annotated[Path | None, typer.Option(help="Folder of the tables; default: the committed ones.")]
RUNS = Path("out/experiments")


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List every experiment with its question.

    Examples: testbed experiments list    testbed experiments list --json
    """
    from testbed.cli import show
    from testbed.cli.listing import KINDS

    show.as_json(KINDS["experiments"]()) if json else show.table(KINDS["experiments"]())


@app.command("show")
def show_experiment(name: Name, json: Json = False) -> None:
    """Show one experiment: question, source, cells, table, margins, claims, figure and commands.

    Example: testbed experiments show areal-lag
    """
    from analysis.experiment import EXPERIMENTS
    from testbed.cli import show

    row = facts(EXPERIMENTS[name])
    if json:
        show.as_json(row)
        return
    for key, value in row.items():
        if key == "claims":
            for claim in value:
                print(f"{'claim':10} {claim['name']} ({claim['kind']}): {claim['statement']}")
        elif value not in ("", [], {}):
            print(f"{key:10} {_words(value)}")


@app.command("run")
def run_experiment(
    name: Name,
    results: Results = RUNS,
    workers: Workers = None,
    yes: Yes = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Do all of an experiment: run what is missing, make its table, judge its claims. Committed files stay.

    Example: testbed experiments run areal-lag --workers 2
    """
    from analysis.experiment import EXPERIMENTS
    from analysis.judging.verdicts import ask
    from analysis.tables.making import make, run
    from testbed.cli import show
    from testbed.errors import UserError
    from testbed.execution.progress import choose

    experiment = EXPERIMENTS[name]
    if experiment.command:
        raise UserError(f"Experiment '{name}' is not run so. Instead: {experiment.command}")
    agree_on_experiment(experiment, results, workers, yes=yes, quiet=quiet or json)
    progress = choose(quiet or json)
    fresh = {}
    if experiment.keys:
        _say(f"making the table of {name}", quiet or json)
        fresh = {name: make(experiment, root=results, workers=workers, progress=progress)}
    elif experiment.cells is not None:
        run(experiment, results, workers=workers, progress=progress)
    rows = []
    for index, claim in enumerate(experiment.claims, start=1):
        _say(f"claim {index}/{len(experiment.claims)}: {claim}", quiet or json)
        rows += ask(claim, fresh=fresh)
    if json:
        tables = {table: len(made.frame) for table, made in fresh.items()}
        show.as_json({"experiment": name, "rows": tables, "claims": rows})
        return
    for table, made in fresh.items():
        print(f"table {table}: {len(made.frame)} rows. Keep it: testbed experiments table {table}")
    if rows:
        shown = ("claim", "effect", "low", "high", "asks", "verdict", "kind", "e", "n")
        show.table([{k: "" if row[k] is None else row[k] for k in shown} for row in rows])


@app.command("table")
def make_table(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names of experiments.")
    ] = None,
    computed: Annotated[bool, typer.Option("--computed", help="Every table that needs no runs.")] = False,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="FOLDER", help="Read this results folder, run nothing; repeatable."),
    ] = None,
    data: Data = None,
    results: Results = RUNS,
    workers: Workers = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Read folders though cells have no result.")
    ] = False,
    yes: Yes = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make experiments' tables and write them beside the others; what is missing is run first.

    Examples: testbed experiments table rec    testbed experiments table staleness --from results/mine
    """
    from analysis.experiment import EXPERIMENTS
    from analysis.tables.committed import COMMITTED
    from analysis.tables.making import add_tables, make
    from testbed.cli import show
    from testbed.errors import UserError
    from testbed.execution.progress import choose

    chosen = [EXPERIMENTS[name] for name in names or ()]
    chosen += [each for each in EXPERIMENTS.values() if computed and each.compute and each not in chosen]
    if not chosen:
        raise UserError(
            "No table is named. Give names of experiments, or --computed for all that need no runs."
        )
    written: list[Path] = []
    for experiment in chosen:
        if not source:
            agree_on_experiment(experiment, results, workers, yes=yes, quiet=quiet or json)
        _say(f"making the table of {experiment.name}", quiet or json)
        options: dict[str, Any] = {"root": results, "workers": workers, "partial": partial}
        table = make(experiment, source or (), progress=choose(quiet or json), **options)
        written += add_tables({experiment.name: table}, data or COMMITTED)
    if json:
        show.as_json([str(path) for path in written])
    else:
        print(*written, sep="\n")


def facts(experiment: Experiment) -> dict[str, Any]:
    """Return what an experiment declares, as JSON can hold it; "" or [] for what it does not."""
    from analysis.pages.experiment_page import commands, figure_of, origin

    return {
        "name": experiment.name,
        "question": experiment.question,
        "source": experiment.source,
        "differs": experiment.differs,
        "made of": origin(experiment),
        "keys": list(experiment.keys),
        "metrics": list(experiment.metrics),
        "margins": dict(experiment.margins),
        "figure": figure_of(experiment),
        "claims": [
            {"name": name, "kind": entry.promises["kind"], "statement": entry.promises["statement"]}
            for name, entry in experiment.claims.items()
        ],
        "see": list(experiment.see),
        "systems": list(experiment.judges()),
        "commands": commands(experiment),
    }


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {item:g}" for key, item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)
