"""testbed systems: what the systems of the literature claim, and what was found here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="The systems of the literature: their central claims, how they were tried, verdicts.",
    rich_markup_mode=None,
    invoke_without_command=True,
)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback()
def list_systems(
    context: typer.Context,
    status: Annotated[bool, typer.Option("--status", help="Count them by status.")] = False,
    json: Json = False,
) -> None:
    """List every system with the status of its central claim; --status counts them.

    Examples: testbed systems    testbed systems --status    testbed systems show m2po
    """
    if context.invoked_subcommand is not None:
        return
    from analysis.judging.systems import counts
    from testbed.cli import show

    rows = _rows()
    if status:
        found: dict[str, Any] = dict(counts(rows))
        if json:
            show.as_json(found)
            return
        from analysis.judging.verdicts import by_claim
        from analysis.pages.systems_page import kinds_line

        show.table([{"status": k, "systems": v} for k, v in found.items()])
        print(f"\nfindings by kind: {kinds_line(by_claim())}")
    elif json:
        show.as_json(rows)
    else:
        show.table([{key: row[key] for key in ("n", "name", "kind", "status", "world")} for row in rows])


@app.command("show")
def show_system(
    name: Annotated[str, typer.Argument(help="Name or number of a system (`testbed systems`).")],
    json: Json = False,
) -> None:
    """Show one system: what its source claims, the verdict on that, and all experiments about it.

    Examples: testbed systems show m2po    testbed systems show 18 --json
    """
    from analysis.judging.systems import find
    from testbed.cli import show

    n = find(name).n
    row = next(row for row in _rows() if row["n"] == n)
    if json:
        show.as_json(row)
        return
    _print({key: row[key] for key in ("n", "name", "kind", "says", "status", "world")})
    for claim in row["central"]:
        _print({"central": _said(claim)})
    _print({"would show": row["would show"]})
    for each in row["experiments"]:
        print()
        _print({key: value for key, value in each.items() if key != "claims"})
        for claim in each["claims"]:
            _print({"claim": _said(claim)})


@app.command("index")
def write_index(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/verdicts.md"),
) -> None:
    """Write the index of systems that stands in the repository: a line each, from analysis/verdicts.csv."""
    from analysis.judging.verdicts import by_claim
    from analysis.pages.systems_page import index
    from testbed.errors import UserError

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(index(by_claim()), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}. Give another file.") from error
    print(out)


def _rows() -> list[dict[str, Any]]:
    from analysis.judging.verdicts import by_claim
    from analysis.pages.systems_page import facts

    return facts(by_claim())


def _said(claim: dict[str, Any]) -> str:
    gate = f" ({claim['gates']})" if claim["gates"] else ""
    return f"{claim['statement']} {claim['effect']} ({claim['asks']}): {claim['verdict']}{gate}"


def _print(row: dict[str, Any]) -> None:
    for key, value in row.items():
        if value not in ("", []):
            print(f"{key:10} {', '.join(value) if isinstance(value, list) else value}")
