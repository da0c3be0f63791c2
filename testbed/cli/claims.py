"""testbed claims: sentences, their evidence and their verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List, run and show claims.", rich_markup_mode=None, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Data = Annotated[Path | None, typer.Option(help="Results folder or tables; default: the committed tables.")]


@app.command("list")
def list_claims(json: Json = False) -> None:
    """List every claim with its kind and statement."""
    from testbed.cli import show
    from testbed.cli.listing import KINDS

    show.as_json(KINDS["claims"]()) if json else show.table(KINDS["claims"]())


@app.command("run")
def run_claims(
    pattern: Annotated[str, typer.Argument(help="Shell pattern of names.")] = "*",
    data: Data = None,
    json: Json = False,
) -> None:
    """Run claims and print verdict, effect, interval and adjusted p.

    Examples: testbed claims run    testbed claims run 'ess-*' --json
    """
    from analysis.claims.base import run_claims as run
    from testbed.cli import show

    rows = run(pattern, data)
    if json:
        show.as_json(rows)
        return
    shown = ("claim", "verdict", "kind", "effect", "low", "high", "p_holm", "tolerance", "n", "arms", "cells")
    show.table([{k: "" if row[k] is None else row[k] for k in shown} for row in rows])


@app.command("show")
def show_claim(
    name: Annotated[str, typer.Argument(help="Name of a claim.")], data: Data = None, json: Json = False
) -> None:
    """Show one claim: statement, source, evidence, verdict, and the code that an exact one is about."""
    from analysis.claims.base import run_claims as run
    from analysis.planted_bugs import about
    from testbed.cli import show

    (row,) = run(name, data)[:1]
    row["about"] = ", ".join(about(row["claim"]))
    if json:
        show.as_json(row)
        return
    for key, value in row.items():
        print(f"{key:10} {value}")


@app.command("page")
def claims_page(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/claims.md"), data: Data = None
) -> None:
    """Run every claim and write the page of verdicts and effects."""
    from analysis.claims.base import run_claims as run
    from analysis.claims.page import page
    from testbed.errors import UserError

    text = page(run(data=data))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}. Give another file.") from error
    print(out)
