"""testbed tune: the learning rate of every recipe of a sweep, chosen on seeds that no claim uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.sweeps.tuning_knobs import KNOBS
from testbed.cli import show
from testbed.cli.cost_prompt import Yes, agree, cost_of
from testbed.cli.run_sweep import describe, resolve
from testbed.errors import UserError
from testbed.execution.progress import choose

if TYPE_CHECKING:
    from testbed.config.run import Run


def tune(
    sweep: Annotated[str, typer.Argument(help="Name of a sweep (`testbed list sweeps`) or a TOML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIELD=VALUE]...", help="As in `testbed run`; learning_rate=a,b,c is the grid."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Tuning seeds, from 10000 up.")] = 4,
    outcome: Annotated[
        str, typer.Option(help="Outcome to score, from docs/outcomes.md; default: last, or exact/value.")
    ] = "",
    common: Annotated[
        float | None, typer.Option(help="Rate to compare with; default: that of the sweep.")
    ] = None,
    knobs: Annotated[
        bool, typer.Option(help="Tune the one argument that a recipe's paper tunes, too.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Results folder; default results/SWEEP-tuning.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Table to write; default: tuning.csv in that folder.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Worker processes; default one per core.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and stop.")] = False,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Choose each recipe's learning rate by the median outcome over tuning seeds; write all scores.

    Without a grid five rates are tried, half a decade apart: the sweep's own, three below, one above.

    Examples:
    testbed tune staleness recipe=grpo,m2po lag=0,128 --seeds 8

    testbed tune staleness recipe=cispo lag=64 learning_rate=0.0001,0.0003,0.001,0.003

    testbed tune lag-schedules --outcome area --csv rates.csv
    """
    if any(word.startswith("seed=") for word in overrides or []):
        raise UserError("Tuning uses seeds from 10000 up; give their number: --seeds 8.")
    from analysis.sweeps.tuning import best_rates, tuning_seeds
    from testbed.execution.runner import run_sweep
    from testbed.results.store import folder_for

    given = resolve(sweep, overrides or [])
    arms, rates, own = split(given)
    cells = tuning_cells(arms, rates, tuning_seeds(seeds), knobs)
    outcome = outcome or ("exact/value" if all(cell.policy == "tabular" for cell in cells) else "last")
    folder = out or folder_for("results", f"{Path(sweep).stem}-tuning")
    _check(outcome, csv, common, rates)
    if dry_run:
        describe(cells, folder, json)
    agree(cost_of([(cells, folder)], workers), yes=yes or dry_run, quiet=quiet)
    if dry_run:
        return
    status = run_sweep(cells, folder, workers=workers, progress=choose(quiet))
    frame, by, tuned = table(folder, cells, outcome)
    file = csv or folder / "tuning.csv"
    _write(file, frame, by, outcome, tuned)
    rows = best_rates(frame, by, outcome, tuned, common=common if common is not None else own)
    if json:
        show.as_json({"folder": str(folder), "csv": str(file), "rates": rows.to_dict("records")})
    else:
        _report(rows, outcome, seeds, file)
    if status.failed:
        raise typer.Exit(1)


def _check(outcome: str, csv: Path | None, common: float | None, rates: Sequence[float]) -> None:
    """Refuse, before anything runs, what could not be reported afterwards."""
    from analysis.sweeps.tuning import check_common
    from analysis.tables.cell_table import check_word

    check_word(outcome)
    if csv and not csv.absolute().parent.is_dir():
        raise UserError(f"{csv}: the folder {csv.parent} does not exist. Create it, or give another file.")
    if common is not None:
        check_common(common, rates)


def split(cells: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[float, ...], float | None]:
    """Return the arms of a sweep (seed 0, rate 0), the rates to try, and the sweep's single rate, if any."""
    from analysis.sweeps.tuning import rates_around

    arms = tuple(dict.fromkeys(replace(cell, seed=0, learning_rate=0.0) for cell in cells))
    rates = tuple(sorted({cell.learning_rate for cell in cells}))
    return (arms, rates_around(rates[0]), rates[0]) if len(rates) == 1 else (arms, rates, None)


def tuning_cells(
    arms: Sequence[Run], rates: Sequence[float], seeds: Sequence[int], knobs: bool
) -> tuple[Run, ...]:
    """Return every arm at every rate and seed; with knobs, also at the other settings that its paper tries.

    Where some arms come with arguments all keep theirs: somebody's settings are an arm of their own.
    """
    knobs = knobs and not any(arm.recipe_args for arm in arms)
    tried = [
        replace(arm, recipe_args=setting)
        for arm in arms
        for setting in (arm.recipe_args, *(KNOBS[arm.recipe].others if knobs and arm.recipe in KNOBS else ()))
    ]
    return tuple(
        replace(arm, learning_rate=rate, seed=seed) for arm in tried for rate in rates for seed in seeds
    )


def table(folder: Path, cells: Sequence[Run], outcome: str) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return a row per finished cell with its outcome, the columns of arms, and the tuned columns."""
    from analysis.sweeps.tuning import ARGS, RATE, SEED
    from analysis.tables.cell_table import FIELDS, cell_table
    from analysis.tables.committed import load_results

    varied = [name for name in FIELDS if len({getattr(cell, name) for cell in cells}) > 1]
    arms = {replace(cell, seed=0, learning_rate=0.0, recipe_args=()) for cell in cells}
    own = len(arms) == len(
        {replace(cell, seed=0, learning_rate=0.0) for cell in cells if not cell.recipe_args}
    )
    tuned = (ARGS,) if ARGS in varied and own else ()
    others = [name for name in varied if name not in (RATE, SEED, "recipe", "lag", *tuned)]
    by = ("recipe", "lag", *others)
    return cell_table("tuning", load_results(folder), [*by, *tuned, RATE, SEED], [outcome]).frame, by, tuned


def _write(file: Path, frame: Any, by: Sequence[str], outcome: str, tuned: Sequence[str]) -> None:
    from analysis.sweeps.tuning import scores
    from analysis.tables.committed import Table

    try:
        file.write_bytes(Table.of("tuning", scores(frame, by, outcome, tuned)).csv)
    except OSError as error:
        raise UserError(
            f"{file} cannot be written: {error.strerror}. Give another file with --csv."
        ) from error


def _report(rows: Any, outcome: str, seeds: int, file: Path) -> None:
    from analysis.sweeps.tuning import FEWER, WITHIN

    best = "smallest" if outcome.partition(" ")[0] in FEWER else "largest"
    common = rows["common_rate"].iloc[0]
    show.table([brief(row, outcome) for row in rows.to_dict("records")])
    print(
        f"{outcome}: median of {seeds} tuning seeds, at the best rate of each arm (the {best}) and at the "
        f"common {common:g}."
    )
    print("The best of several rates flatters its arm: judge it on other seeds.")
    print(f"width: decades of rate around the best one with scores within {WITHIN:g} of it.")
    print("edge: the end of the grid where the best rate lies; a better one may lie beyond.")
    print(f"All scores: {file}")


def brief(row: Mapping[Any, Any], outcome: str) -> dict[str, Any]:
    """Format a row for the terminal."""
    kept = ("score", "common_rate", "common_score", "width", "at_edge", "seeds")
    return {
        **{str(name): value for name, value in row.items() if name not in kept},
        f"{outcome}, best": f"{row['score']:.3f}",
        f"{outcome}, common": f"{row['common_score']:.3f}",
        "width": f"{row['width']:.2f}",
        "edge": row["at_edge"],
    }
