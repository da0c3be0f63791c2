"""testbed identify: find the catalogue entry that equals a loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli import show
from testbed.conformance.conformance_report import in_words, page
from testbed.conformance.sandbox import run
from testbed.results.atomic_files import replace
from testbed.words import named_values, split

Target = Annotated[str, typer.Argument(metavar="FILE:FN", help="file.py:function or package.module:fn.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="PARAMETER=ROLE", help="Role of a parameter, as x=logp; repeatable."),
]
Given = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PARAMETER=VALUE", help="Value of a parameter; repeatable."),
]
Layout = Annotated[str, typer.Option(help="padded, packed or lists; by default from the parameters.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds that one call may take.")]
Html = Annotated[Path | None, typer.Option(help="Write the report as a page.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def identify(
    target: Target,
    inputs: Inputs = None,
    given: Given = None,
    layout: Layout = "",
    timeout: Timeout = 20.0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Find the catalogue entry that a loss equals, or the nearest entries and where the loss differs.

    The loss runs on adversarial batches in a separate process. Its weights -dLoss/dlogp are compared;
    hyperparameters and aggregation are found by search.

    Examples: testbed identify mine.py:loss

    testbed identify my_package.losses:loss --input x=logp
    """
    tell(run(job("identify", target, inputs, given, layout), timeout), html, json)


def job(
    command: str, target: str, inputs: Sequence[str] | None, given: Sequence[str] | None, layout: str
) -> dict[str, Any]:
    """Return the request to the loss's process."""
    roles = dict(split(word, "PARAMETER=ROLE, as x=logp") for word in inputs or ())
    values = named_values(given or (), "PARAMETER=VALUE, as eps=.2")
    return {"command": command, "target": target, "inputs": roles, "given": values, "layout": layout}


def tell(found: dict[str, Any], html: Path | None, json: bool) -> None:
    """Print a report, and write its page."""
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        replace(html, page(found).encode())
    if json:
        show.as_json(found)
    else:
        print("\n".join(in_words(found)))
