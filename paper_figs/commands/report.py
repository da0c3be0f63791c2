"""testbed report: write one page about a results folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="A results folder.")],
    html: Annotated[Path | None, typer.Option(help="File to write; default out/RESULTS.html.")] = None,
    metric: Annotated[
        str, typer.Option(help="Outcome to compare, as final_accuracy; default as in `testbed compare`.")
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Open the page.")] = False,
) -> None:
    """Write one page about a results folder: what was run, warnings, comparison, figures, commands.

    The page fetches nothing, so it can be sent and kept.

    Example: testbed report results/staleness --html staleness.html
    """
    from paper_figs.report_page import page
    from paper_figs.save_figures import write_file

    path = html or Path("out") / f"{folder.resolve().name}.html"
    write_file(path, page(folder, metric).encode())
    print(path)
    if open_ and typer.launch(str(path)):
        print(f"No program could be started to open {path}.", file=sys.stderr)
