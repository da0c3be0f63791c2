"""testbed card: the report card of one objective."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.cost_prompt import Yes
from testbed.errors import UserError

if TYPE_CHECKING:
    from analysis.cards.report_card import Card
    from testbed.config.run import Run


def card(
    name: Annotated[
        str, typer.Argument(metavar="OBJECTIVE", help="path/to/file.py:function, or a registered objective.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Promises, exact numbers and cost only: under a minute.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Page to write; default out/card-NAME.html.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Worker processes of the training; default one per core.")
    ] = None,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Write the report card of an objective: promises, exact numbers, training, cost, nearest relatives.

    Every number stands beside its percentile among all registered objectives. The cost is said first.

    Examples: testbed card mine.py:my_objective --quick    testbed card cispo
    """
    from analysis.cards.report_card import make_card
    from paper_figs import report_card
    from paper_figs.run import write_file
    from testbed.cli import show

    def said(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    found = make_card(
        name,
        quick=quick,
        train=None if quick else lambda cells: train(cells, workers, yes, quiet),
        said=said,
    )
    path = html or Path("out") / f"card-{file_name(found.title)}.html"
    write_file(path, report_card.page(found).encode())
    if json:
        show.as_json({**found.row(), "html": str(path)})
        return
    report(found)
    print(f"Page: {path}")


def file_name(title: str) -> str:
    """Return a name as a file may have it."""
    return "".join(c if c.isalnum() or c in "-_@." else "-" for c in title)


def train(cells: "tuple[Run, ...]", workers: int | None, yes: bool, quiet: bool) -> Any:
    """Run those cells of one objective that are not done; return its rows of card-training, a DataFrame."""
    from analysis.experiments.cards.card_training import by_arm
    from analysis.tables.committed import load_results
    from testbed.cli.cost_prompt import agree, cost_of
    from testbed.execution.progress import choose
    from testbed.execution.runner import run_sweep
    from testbed.results.store import folder_for

    name = cells[0].recipe
    folder = folder_for("results", f"card-training-{file_name(name.rpartition('/')[2])}")
    if not quiet:
        print(f"3 training: {len(cells)} runs of the toy LLM, kept in {folder}", file=sys.stderr, flush=True)
    agree(cost_of([(cells, folder)], workers, extend=True), yes=yes, quiet=quiet)
    status = run_sweep(cells, folder, workers=workers, extend=True, progress=choose(quiet))
    if status.done < status.planned:
        raise UserError(f"{status.planned - status.done} runs have no result. Why: testbed status {folder}")
    return by_arm(load_results(folder)).frame


def report(found: "Card") -> None:
    """Print a card as tables."""
    from paper_figs.report_card import in_words
    from testbed.cli import show

    print(f"{found.title}: {found.formula}" if found.formula else found.title)
    words = {True: "kept", False: "BROKEN", None: "seen"}
    show.table([{"check": c.what, "": words[c.kept], "found": c.found} for c in found.checks])
    if found.lines:
        show.table([in_words(line) for line in found.lines])
        print("percentile: share of registered objectives that it is better than; (n): how many there are.")
    if found.relatives:
        show.table(
            [
                {"relative": r.name, "likeness": f"{r.likeness:.3f}", "they differ most at": r.where,
                 "here": f"{r.mine:.3g}", "there": f"{r.theirs:.3g}"}
                for r in found.relatives
            ]
        )  # fmt: skip
    for line in found.left_out:
        print(f"Left out: {line}")
