"""testbed systems: what the systems of the literature say, and what was found here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="The systems of the literature: what each says, how it was tried here, verdicts.",
    rich_markup_mode=None,
    invoke_without_command=True,
)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Claims = Annotated[
    Path | None,
    typer.Option(help="The page of claims, which says their verdicts; default: the committed one."),
]
COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "claims.md"


@app.callback()
def list_systems(
    context: typer.Context,
    status: Annotated[bool, typer.Option("--status", help="Count them by status.")] = False,
    json: Json = False,
    claims: Claims = None,
) -> None:
    """List every system with its status and the verdicts on claims about it; --status counts them.

    Examples: testbed systems    testbed systems --status    testbed systems show m2po
    """
    if context.invoked_subcommand is not None:
        return
    from analysis.pages.systems_page import verdicts_of
    from testbed.cli import show

    rows = _rows(claims)
    if status:
        _print_status(rows, json)
    elif json:
        show.as_json(rows)
    else:
        shown = ("n", "name", "kind", "status")
        show.table([{key: row[key] for key in shown} | {"claims": verdicts_of(row)} for row in rows])


@app.command("show")
def show_system(
    name: Annotated[str, typer.Argument(help="Name or number of a system (`testbed systems`).")],
    json: Json = False,
    claims: Claims = None,
) -> None:
    """Show one system: what its source says, what would show it, experiments, verdicts and commands.

    Examples: testbed systems show m2po    testbed systems show 18 --json
    """
    from analysis.judging.systems import find
    from testbed.cli import show

    n = find(name).n
    row = next(row for row in _rows(claims) if row["n"] == n)
    if json:
        show.as_json(row)
        return
    _print({key: value for key, value in row.items() if key != "experiments"})
    for each in row["experiments"]:
        print()
        _print({key: value for key, value in each.items() if key != "claims"})
        for claim in each["claims"]:
            _print({"claim": f"{claim['claim']}: {claim['statement']}", "verdict": _verdict(claim)})


@app.command("page")
def write_page(
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/systems.md"), claims: Claims = None
) -> None:
    """Write the page of systems: what sources say, what was found, with effects and commands."""
    from analysis.pages.systems_page import page
    from testbed.errors import UserError

    text = page(_rows(claims))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}. Give another file.") from error
    print(out)


def _rows(claims: Path | None) -> list[dict[str, Any]]:
    from analysis.pages.claims_page import read
    from analysis.pages.systems_page import facts
    from testbed.errors import UserError

    path = claims or COMMITTED
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}. Give the page of claims: --claims FILE") from error
    return facts(read(text))


def _print_status(rows: list[dict[str, Any]], json: bool) -> None:
    from analysis.pages.systems_page import counts
    from testbed.cli import show

    reasons = {row["name"]: row["reason"] for row in rows if row["reason"]}
    if json:
        show.as_json({**counts(rows), "reasons": reasons})
        return
    for word, number in counts(rows).items():
        print(f"{word:20} {number:4}")
    _print(reasons)


def _print(row: dict[str, Any]) -> None:
    for key, value in row.items():
        if value not in ("", []):
            print(f"{key:10} {', '.join(value) if isinstance(value, list) else value}")


def _verdict(claim: dict[str, str]) -> str:
    return f"{claim['verdict']}, effect {claim['effect']} ({claim['what the effect is']})"
