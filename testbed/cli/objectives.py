"""testbed objectives: the registry of losses, for readers."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback()
def default(context: typer.Context, json: Json = False) -> None:
    """List and explain objectives. Without a command: the list.

    Examples: testbed objectives    testbed objectives show m2po    testbed objectives cite m2po
    """
    if context.invoked_subcommand is None:
        list_objectives(json)


@app.command("list")
def list_objectives(json: Json = False) -> None:
    """List every objective with its loss and source."""
    from testbed.cli import show
    from testbed.objectives import objective

    rows = [_facts(name) for name in objective]
    if json:
        show.as_json(rows)
    else:
        show.table([{"name": r["name"], "loss": r["formula"], "source": r["source"]} for r in rows])


@app.command("show")
def show_objective(
    name: Annotated[str, typer.Argument(help="Name of an objective.")], json: Json = False
) -> None:
    """Show one objective: formula, source, hyperparameters, promises.

    Example: testbed objectives show m2po
    """
    from testbed.cli import show
    from testbed.objectives import objective

    facts = _facts(name)
    if json:
        show.as_json(facts)
        return
    print(f"{name}\n\n{inspect.getdoc(objective[name].function)}\n")
    print(f"Source: {facts['source']}")
    for title in ("hyperparameters", "promises"):
        print(f"{title.capitalize()}: " + (", ".join(f"{k}={v}" for k, v in facts[title].items()) or "none"))


@app.command("cite")
def cite(name: Annotated[str, typer.Argument(help="Name of an objective.")]) -> None:
    """Print where an objective comes from."""
    print(_facts(name)["source"])


def _facts(name: str) -> dict[str, Any]:
    from testbed.objectives import objective

    entry = objective[name]
    return {
        "name": name,
        "formula": entry.formula,
        "source": entry.source,
        "hyperparameters": entry.defaults,
        "promises": dict(entry.promises),
    }
