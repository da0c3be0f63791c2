"""testbed conform: test whether a loss equals the catalogue entry with its name."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.cli.identify import Given, Html, Inputs, Json, Layout, Timeout, job, tell
from testbed.conformance.sandbox import run
from testbed.errors import UserError
from testbed.words import named_values


def conform(
    target: Annotated[str, typer.Argument(metavar="FILE:FN", help="As in testbed identify.")] = "",
    as_: Annotated[str, typer.Option("--as", help="An objective or a recipe: testbed list objectives.")] = "",
    aggregation: Annotated[
        str, typer.Option(help="token_mean, sequence_mean, …; found by search if not given.")
    ] = "",
    length: Annotated[float, typer.Option(help="Divisor of aggregation constant, in tokens.")] = 0.0,
    hyper: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Hyperparameter of the entry; repeatable.")
    ] = None,
    inputs: Inputs = None,
    given: Given = None,
    layout: Layout = "",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    installed: Annotated[
        bool, typer.Option("--installed", help="Identify the losses of the installed packages.")
    ] = False,
    page: Annotated[Path | None, typer.Option(help="Write what --installed finds, as Markdown.")] = None,
    only: Annotated[str, typer.Option(help="With --installed: text in the names of package and loss.")] = "",
    timeout: Timeout = 20.0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Try a loss on batches that expose errors; exit code 0 if every property holds, else 1.

    Bounds and both signs, ragged masks, groups of one, extreme ratios, padding, packed rows, micro-batches,
    float32 and bfloat16. Counterexamples are shrunk. Hyperparameters come from the options, then from the
    defaults of the signature; the others are found by search and reported as such.

    Examples:
    testbed conform mine.py:loss --as gspo --aggregation token_mean

    testbed conform my_package.losses:grpo --as grpo --hyper eps_high=0.28 --json

    testbed conform --installed --only AsyncGRPOTrainer
    """
    if installed:
        _installed(page, only, json)
        return
    if page is not None or only:
        raise UserError("--page and --only are about the losses of installed packages. Give --installed too.")
    if not (target and as_):
        raise UserError("expected a loss and an entry: testbed conform FILE.py:FN --as NAME; or --installed.")
    words = {"as": as_, "aggregation": aggregation, "length": length, "strict": strict}
    found = run(
        job("conform", target, inputs, given, layout) | words | {"hyper": named_values(hyper or ())}, timeout
    )
    tell(found, html, json)
    if not found["holds"]:
        raise typer.Exit(1)


def _installed(page: Path | None, only: str, json: bool) -> None:
    """Identify the losses of installed packages, print each at once, and write the page."""
    from testbed.conformance.installed import outcomes, write

    found = []
    for row in outcomes(only=only):
        print("\n".join(row.lines()), file=sys.stderr if json else sys.stdout, flush=True)
        found.append(row)
    if not found:
        raise UserError(
            f"no installed package has a loss with '{only}' in its name; pip install one of them."
        )
    if page is not None:
        write(page, found)
    if json:
        show.as_json([asdict(row) for row in found])
