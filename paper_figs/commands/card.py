"""testbed card: the report card of one objective."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.evidence_commands import say
from testbed.cli import show

if TYPE_CHECKING:
    from analysis.cards.report_card import Card


def card(
    name: Annotated[
        str, typer.Argument(metavar="OBJECTIVE", help="path/to/file.py:function, or a registered objective.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Promises, exact numbers and cost only: under a minute.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Page to write; default out/card-NAME.html.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Write the report card of an objective: promises, exact numbers, arena, cost, nearest relatives.

    Every number stands beside its percentile among all registered objectives.

    Examples: testbed card mine.py:my_objective --quick

    testbed card cispo
    """
    from analysis.cards.report_card import make_card
    from paper_figs import report_card_page
    from paper_figs.save_figures import write_file

    found = make_card(name, quick=quick, said=partial(say, quiet=quiet))
    path = html or Path("out") / f"card-{file_name(found.title)}.html"
    write_file(path, report_card_page.page(found).encode())
    if json:
        show.as_json({**found.row(), "html": str(path)})
        return
    report(found)
    print(f"Page: {path}")


def file_name(title: str) -> str:
    """Return the name with characters that a file name may have."""
    return "".join(c if c.isalnum() or c in "-_@." else "-" for c in title)


def report(found: "Card") -> None:
    from paper_figs.report_card_page import in_words

    print(f"{found.title}: {found.formula}" if found.formula else found.title)
    words = {True: "kept", False: "BROKEN", None: "seen"}
    show.table([{"check": c.what, "": words[c.kept], "found": c.found} for c in found.checks])
    if found.lines:
        show.table([in_words(line) for line in found.lines])
        print("percentile: share of the (n) registered objectives that this one beats.")
    if found.arena:
        show.table(list(found.arena))
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
