"""testbed run: run a sweep on this machine, in shards or on Ray; it can be resumed."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.cost_prompt import Yes, agree, cost_of
from testbed.cli.extensions import has, part
from testbed.cli.own_model import (
    EXACT,
    Data,
    Dedupe,
    Lora,
    Model,
    Verifier,
    own_model,
    refuse_without_model,
)
from testbed.config.run import cell_ids
from testbed.errors import UserError, counted
from testbed.execution.progress import choose, watched
from testbed.user_files import in_a_file, pin

if TYPE_CHECKING:
    from testbed.config.run import Run
    from testbed.config.toml_file import Watch
    from testbed.execution.executors import Executor
    from testbed.results.store import Status


Sweep = Annotated[
    str, typer.Argument(help="Name of a sweep (`testbed list sweeps`) or a TOML file; none with --model.")
]
Fields = Annotated[
    list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Fields to set; a,b,c makes an axis.")
]
Objectives = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE.py:FUNCTION", help="Run your objective in place of the recipes."),
]
Out = Annotated[Path | None, typer.Option(help="Results folder; default results/SWEEP.")]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Worker processes; default one per core, 0 = this process.")
]
Threads = Annotated[int, typer.Option(min=1, help="Threads per worker.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds a pack of cells may take.")]
Shard = Annotated[str, typer.Option(help="i/n: run the i-th of n parts, for job arrays.")]
Extend = Annotated[bool, typer.Option("--extend", help="Add new cells to those of the folder.")]
OnRay = Annotated[
    str | None,
    typer.Option(metavar="[ADDRESS]", help="Run on Ray: a cluster's address, or one started here."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan without running it.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


def run(
    sweep: Sweep = "",
    overrides: Fields = None,
    objective: Objectives = None,
    model: Model = None,
    data: Data = None,
    verifier: Verifier = EXACT,
    dedupe: Dedupe = False,
    lora: Lora = False,
    out: Out = None,
    workers: Workers = None,
    threads: Threads = 1,
    timeout: Timeout = None,
    shard: Shard = "1/1",
    extend: Extend = False,
    ray: OnRay = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a sweep, without the cells that its folder already has.

    With --model the cells train your local causal language model instead of a sweep's: recipe grpo at lags 0
    and 8 on the task reasoning-gym, or on the problems of --data, unless fields set others.

    If a lag needs more versions of the weights than memory holds, TESTBED_SPILL=FOLDER stores them there.
    record=tokens also writes the tokens of every logged step below RESULTS/tokens, for `testbed diagnose`;
    finished cells are not run again for it.

    Examples:
    testbed run staleness

    testbed run staleness recipe=grpo,m2po lag=0,32 seed=0,1,2 steps=100 --out results/mine

    testbed run staleness seed=0..7 --extend

    testbed run my_sweep.toml --shard 3/10

    testbed run staleness recipe=grpo,cispo@trl --objective mine.py:my_objective

    testbed run bandit-grid --ray

    testbed run --model ./my-model --data mine.jsonl --verifier number --lora recipe=grpo,m2po lag=0,8
    """
    from testbed.config.toml_file import unwatched
    from testbed.execution.runner import check_limits, run_sweep
    from testbed.results.store import folder_for

    watch = unwatched if quiet else watched
    base: str | tuple[Run, ...] = sweep
    given = overrides or []
    if model is not None:
        base, given = own_model(model, data, verifier, dedupe, lora), [sweep, *given]
        workers = 1 if workers is None else workers
    else:
        refuse_without_model(data=data, verifier=verifier != EXACT, dedupe=dedupe, lora=lora)
    words, told = record_asked([word for word in given if word], ray is not None)
    cells = resolve(base, words, objective or [], watch)
    folder = out or folder_for("results", model.resolve().name if model else Path(sweep).stem)
    warn(cells, quiet or json)
    if dry_run:
        check_limits(workers, threads, timeout)
        describe(watch("planning cells", len(cells), cells), folder, json, shard, extend)
        agree(cost_of([(cells, folder)], workers, shard, extend), yes=True, quiet=quiet)
        return
    if ray is None:  # a cluster's machines are unknown here
        agree(cost_of([(cells, folder)], workers, shard, extend), yes=yes, quiet=quiet)
    with recording(folder, told):
        status = run_sweep(
            cells,
            folder,
            executor=_ray(ray, workers, threads, timeout),
            workers=workers,
            threads=threads,
            timeout=timeout,
            shard=shard,
            extend=extend,
            progress=choose(quiet, board=board_of(cell_ids(cells))),
        )
    finish(folder, status, json)


def board_of(cells: Iterable[str]) -> Callable[[], Any] | None:
    """Return the maker of the table above these cells' progress bar; None if no package adds one."""
    return (lambda: part("progress_table")(cells)) if has("progress_table") else None


def record_asked(words: Sequence[str], on_ray: bool) -> tuple[list[str], bool]:
    """Return the words without record=tokens, and True if it was there; UserError for another, or on Ray."""
    given = {word.partition("=")[2] for word in words if word.startswith("record=")}
    if given - {"tokens"}:
        raise UserError(f"record={','.join(sorted(given))} is unknown; expected record=tokens.")
    if given and on_ray:
        raise UserError(
            "record=tokens writes into the results folder, which Ray may not see; run without --ray."
        )
    return [word for word in words if not word.startswith("record=")], bool(given)


@contextmanager
def recording(folder: Path, told: bool) -> Iterator[None]:
    """Let workers write the tokens of every logged step below a results folder while the block runs."""
    if not told:
        yield
        return
    from testbed.logs.record import RECORD

    before = os.environ.get(RECORD)
    os.environ[RECORD] = str(folder.resolve() / "tokens")
    try:
        yield
    finally:
        os.environ.pop(RECORD, None)
        if before is not None:
            os.environ[RECORD] = before


def finish(folder: Path, status: "Status", json: bool) -> None:
    """Print the outcome of a sweep; exit with 1 if cells failed."""
    try:
        summary = summarize(folder)
        if json:
            show.as_json({"folder": str(folder), **counts(status), "summary": summary})
        else:
            report(folder, status, summary)
    except KeyboardInterrupt:
        again = f"The results are in {folder}; print them with: testbed report {shlex.quote(str(folder))}"
        raise KeyboardInterrupt(f"Stopped before the summary. {settled(status)} {again}") from None
    if status.failed:
        raise typer.Exit(1)


def resolve(
    sweep: "str | tuple[Run, ...]",
    overrides: list[str],
    outside: Sequence[str] = (),
    watch: "Watch | None" = None,
) -> "tuple[Run, ...]":
    """Return the cells of a named sweep, a TOML file or a tuple with field=value words applied.

    outside: objectives in files, which replace the sweep's recipes, or join those that `recipe=` names.
    Explicit `recipe_args` also apply to them; those of a named sweep do not. watch: receives every cell.
    """
    from testbed.config.toml_file import expand, from_toml, unique, unwatched
    from testbed.recipes import recipe
    from testbed.staleness.trace_driven import pin_trace
    from testbed.worlds.task_registry import pin_data, tasks

    known = {"task": list(tasks()), "recipe": recipe.names()}
    watch = watch or unwatched
    in_toml = isinstance(sweep, str) and sweep.endswith(".toml")
    if isinstance(sweep, tuple):
        base = sweep
    elif sweep and ("=" not in sweep or in_toml):
        base = from_toml(sweep, known, watch) if in_toml else part("sweep")(sweep)
    else:
        first = f" before {sweep}" if sweep else ""
        raise UserError(
            f"No sweep was given{first}. Name one of `testbed list sweeps`, a TOML file, or --model FOLDER."
        )
    cells = expand(base, overrides, known, watch) if overrides or not in_toml else base
    if outside:
        kept = cells if any(word.startswith("recipe=") for word in overrides) else ()
        words = [word for word in overrides if not word.startswith("recipe=")]
        pinned = [(cell, pin(name)) for name in outside for cell in base]
        bare = [replace(c, recipe=name, recipe_args=c.recipe_args if in_toml else ()) for c, name in pinned]
        cells = unique([*kept, *expand(unique(bare), words, known)])
    return tuple(pin_data(pin_trace(pin_files(cell))) for cell in cells)


def pin_files(cell: "Run") -> "Run":
    """Add the digests of all files to the names of a cell's parts, so that its id depends on them."""
    parts = {"task": cell.task, "recipe": cell.recipe, "staleness": cell.staleness}
    found: dict[str, Any] = {
        field: pin(name) for field, name in parts.items() if in_a_file(name) and "#" not in name
    }
    return replace(cell, **found) if found else cell


def describe(
    cells: "Iterable[Run]", folder: Path, json: bool, shard: str = "1/1", extend: bool = False
) -> None:
    """Print what would run; raise UserError if nothing would."""
    from testbed.execution.preflight import prepare

    packs, ours = prepare(cells, shard, folder, extend=extend)
    if json:
        show.as_json({"folder": str(folder), "packs": [list(pack.names) for pack in ours]})
        return
    count, whole = (sum(len(pack.cells) for pack in part) for part in (ours, packs))
    part = f", part {shard} of {counted(whole, 'cell')}," if len(ours) < len(packs) else ""
    print(f"{counted(count, 'cell')} in {counted(len(ours), 'pack')}{part} would go to {folder}", end="")
    ends = dict.fromkeys([ours[0].names[0], ours[-1].names[-1]] if ours else [])
    print("\n  ".join(["; the first and the last:" if len(ends) > 1 else ":", *ends]) if ends else ".")


def warn(cells: "Iterable[Run]", quiet: bool) -> None:
    """Warn on standard error of likely mistakes: a lag as long as the run, repeated prompts."""
    far = {(c.lag, c.steps) for c in cells if c.staleness == "exact" and c.lag > 0 and c.lag >= c.steps - 1}
    if far and not quiet:
        lag, steps = max(far)
        text = f"note: lag {lag} in a run of {steps} steps: every step learns from data of the start weights."
        print(text, file=sys.stderr)
    if not quiet:
        for line in (*data_notes(cells), *dtype_notes(cells)):
            print(f"note: {line}", file=sys.stderr)


def data_notes(cells: "Iterable[Run]") -> Iterator[str]:
    """Yield notes on the data sets that the cells read."""
    from testbed.worlds.task_registry import token_task

    for cell in {(cell.task, cell.task_args): cell for cell in cells if cell.task == "jsonl"}.values():
        yield from (f"{dict(cell.task_args).get('file')}: {line}" for line in token_task(cell).notes)


def dtype_notes(cells: "Iterable[Run]") -> Iterator[str]:
    """Yield a note if the cells compute in bfloat16 on a CPU that is slow at it."""
    asked = (dict(c.policy_args).get("dtype") == "bfloat16" for c in cells if c.model and c.device == "cpu")
    if any(asked):
        from testbed.policies.hf.options import bfloat16_slowdown

        if (times := bfloat16_slowdown()) > 2:
            yield (
                f"matrix products take {times:.0f} times as long in bfloat16 as in float32 on this CPU; "
                "policy_args.dtype=float32 is faster."
            )


def summarize(folder: Path) -> list[dict[str, Any]]:
    """Return the summary table's rows, one per setting, over seeds; none without results."""
    found: list[dict[str, Any]] = part("summarize")(folder) if has("summarize") else []
    return found


def report(folder: Path, status: "Status", summary: list[dict[str, Any]]) -> None:
    """Print the summary table and the next steps."""
    if summary:
        part("print_summary")(summary)
    print(settled(status))
    if line := divergence(summary):
        print(line)
    print(f"Results: {folder}")
    if status.done and has("next_steps"):
        print("Next:", *part("next_steps")(folder, several=len(summary) > 1), sep="\n  ")
    if status.failed:
        print(f"Why cells failed: testbed status {shlex.quote(str(folder))}")


def divergence(summary: list[dict[str, Any]]) -> str:
    """Return the sentence about cells that diverged to non-finite numbers, "" without any."""
    lost = sum(round(row["diverged"] * row.get("seeds", row.get("n", 0))) for row in summary)
    if not lost:
        return ""
    return (
        f"{counted(lost, 'cell')} diverged: a loss or gradient was not finite, and the weights were frozen "
        "from that step on."
    )


def settled(status: "Status") -> str:
    """Return "4 of 6 cells done, 1 failed, 1 pending."."""
    done = f"{status.done} of {counted(status.planned, 'cell')} done"
    return f"{done}, {status.failed} failed, {status.pending} pending."


def counts(status: "Status") -> dict[str, int]:
    """Return planned, done, failed and pending cells."""
    return {name: getattr(status, name) for name in ("planned", "done", "failed", "pending")}


def _ray(address: str | None, workers: int | None, threads: int, timeout: float | None) -> "Executor | None":
    if address is None:
        return None
    from testbed.execution.ray_executor import Ray

    return Ray(None if address == "local" else address, workers or None, threads, timeout)
