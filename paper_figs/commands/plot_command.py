"""testbed plot: draw any results folder."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli import show
from testbed.errors import UserError, unknown


def plot(
    folders: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="Results folders.")],
    kind: Annotated[
        str,
        typer.Option(
            help="curves, final, heat, collapse, ess, tails or seeds; default: from the settings that vary."
        ),
    ] = "",
    metric: Annotated[str, typer.Option(help="accuracy, final_accuracy, best, 'min NAME', …")] = "",
    x: Annotated[str, typer.Option(help="Setting on the x-axis (final, heat, collapse).")] = "",
    y: Annotated[str, typer.Option(help="Setting on the y-axis (heat).")] = "",
    arm: Annotated[str | None, typer.Option(metavar="SETTING,…", help="Settings shown by color.")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="SETTING,…", help="Settings with a panel per value.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="SETTING=VALUE,…", help="Draw only these cells; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write, .png, .pdf or .svg; default out/RESULTS-KIND.png.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the picture.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was drawn as JSON.")] = False,
) -> None:
    """Draw a results folder: learning curves, outcomes against settings, collapse, ESS, tails, seeds.

    A setting is a field that the sweep varies, as lag, learning_rate or recipe_args.eps. Options that are not
    given are guessed from what varies; no panel has more than five arms.

    Examples:
    testbed plot results/staleness

    testbed plot results/mine --kind heat --x lag --y learning_rate --out heat.pdf

    testbed plot results/mine --kind seeds --where recipe=grpo --open
    """
    from analysis.sweeps.sweep_table import usual_metric, value_words
    from paper_figs import plot as drawn

    if kind and kind not in drawn.KINDS:
        raise unknown("kind of plot", kind, drawn.KINDS)
    if out:
        drawn.file_kind(out)
    rows = drawn.load(*folders)
    kind = kind or ("heat" if y else "final" if x else drawn.usual_kind(rows))
    given = {"metric": metric, "x": x, "y": y, "arm": arm, "by": by}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    for name in options.keys() - inspect.signature(drawn.KINDS[kind]).parameters.keys():
        raise UserError(f"A plot of kind '{kind}' takes no --{name}.")
    options |= {name: options[name].split(",") for name in ("arm", "by") if name in options}
    with drawn.style():
        axes = drawn.KINDS[kind](rows, **options, where=where or ())
        path = drawn.save(axes, out or Path("out") / f"{folders[0].resolve().name}-{kind}.png")
    text = drawn.caption(kind, axes, value_words(rows, metric or usual_metric(rows)))
    if json:
        show.as_json({"file": str(path), "kind": kind, "panels": len(axes), "caption": text})
    else:
        print(path)
        print(text, file=sys.stderr)
    if open_ and typer.launch(str(path)):
        print(f"No program could be started to open {path}.", file=sys.stderr)
