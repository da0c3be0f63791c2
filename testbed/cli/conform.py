"""testbed conform: is a loss the entry of the catalogue that it is called by?"""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli.identify import Given, Html, Inputs, Json, Layout, Target, Timeout, job, tell


def conform(
    target: Target,
    as_: Annotated[str, typer.Option("--as", help="An objective or a recipe: testbed list objectives.")],
    aggregation: Annotated[
        str, typer.Option(help="token_mean, sequence_mean, …; found by search where it is not given.")
    ] = "",
    length: Annotated[float, typer.Option(help="The constant of aggregation constant.")] = 0.0,
    hyper: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Hyperparameter of the entry; repeatable.")
    ] = None,
    inputs: Inputs = None,
    given: Given = None,
    layout: Layout = "",
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    timeout: Timeout = 20.0,
    html: Html = None,
    json: Json = False,
) -> None:
    """Try a loss on batches that break wrong ports; exit code 0 when every property holds, else 1.

    Bounds and both signs, ragged masks, groups of one, extreme ratios, padding, packed rows, micro-batches,
    float32 and bfloat16. Counterexamples are shrunk. Hyperparameters come from the options, then from the
    defaults of the signature; others are found by search and said to be.

    Examples:
    testbed conform mine.py:loss --as gspo --aggregation token_mean

    testbed conform my_package.losses:grpo --as grpo --hyper eps_high=0.28 --json
    """
    from testbed.cli.identify import values
    from testbed.conformance.sandbox import run

    words = {"as": as_, "aggregation": aggregation, "length": length, "strict": strict}
    found = run(job("conform", target, inputs, given, layout) | words | {"hyper": values(hyper)}, timeout)
    tell(found, html, json)
    if not found["holds"]:
        raise typer.Exit(1)
