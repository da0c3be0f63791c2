"""testbed claims: sentences, their evidence and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    from analysis.judging.claims import run_claims as run
    from testbed.cli import show

    rows = run(pattern, data)
    if json:
        show.as_json(rows)
        return
    width = max(len(row["claim"]) for row in rows)
    for row in rows:
        print(f"{row['claim']:{width}}  {row['verdict']:12}  {evidence(row)}")


def evidence(row: Mapping[str, Any]) -> str:
    """Return what a verdict rests on: a gap and its tolerance, or an effect, its interval and adjusted p."""
    if row["verdict"] == "no table":
        return str(row["note"])
    if row["kind"] == "exact":
        return f"{row['effect']:.2g} <= {row['tolerance']:g}, {row['n']} relations"
    numbers = {k: float("nan") if row[k] is None else row[k] for k in ("effect", "low", "high", "p_adjusted")}
    arms = f" in {row['arms']} arms" if row["arms"] > 1 else ""
    return (
        "{effect:.3g} [{low:.3g}, {high:.3g}], p {p_adjusted:.2g}".format(**numbers) + f", n {row['n']}{arms}"
    )


@app.command("show")
def show_claim(
    name: Annotated[str, typer.Argument(help="Name of a claim.")], data: Data = None, json: Json = False
) -> None:
    """Show one claim: statement, source, evidence, verdict, and the code that an exact one is about."""
    from analysis.judging.claims import run_claims as run
    from analysis.planted_bugs import about
    from testbed.cli import show

    (row,) = run(name, data)[:1]
    row["about"] = ", ".join(about(row["claim"]))
    if json:
        show.as_json(row)
        return
    for key, value in row.items():
        print(f"{key:10} {in_words(value)}".rstrip())


def in_words(value: Any) -> str:
    """Return a value of a claim for a reader: three digits, no brackets around tables and lists."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {in_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@app.command("page")
def claims_page(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/claims.md"), data: Data = None
) -> None:
    """Run every claim and write the page of verdicts and effects."""
    from analysis.judging.claims import run_claims as run
    from analysis.pages.claims_page import page
    from testbed.errors import UserError

    text = page(run(data=data))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}. Give another file.") from error
    print(out)
