"""testbed claims: sentences, their evidence and their verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="List, judge and show claims.", rich_markup_mode=None, no_args_is_help=True)
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
    """Judge claims now and print effect, interval and verdict. Committed files stay as they are.

    Examples: testbed claims run    testbed claims run 'ess-*' --json
    """
    from analysis.judging.verdicts import ask
    from testbed.cli import show

    rows = ask(pattern, data)
    if json:
        show.as_json(rows)
        return
    width = max(len(row["claim"]) for row in rows)
    for row in rows:
        print(f"{row['claim']:{width}}  {evidence(row)}  {row['verdict']}")


def evidence(row: Mapping[str, Any]) -> str:
    """Return the effect with its interval, what the claim asks of it, and the number of units."""
    from analysis.pages.experiment_page import effect

    if row["verdict"] == "no table":
        return str(row["note"])
    cells = f", {row['agree']:.0f} of {row['cells']:.0f} cells" if (row["cells"] or 0) > 1 else ""
    return f"{effect(row)} ({row['asks']}), n {row['n']:.0f}{cells}:"


@app.command("show")
def show_claim(
    name: Annotated[str, typer.Argument(help="Name of a claim.")], data: Data = None, json: Json = False
) -> None:
    """Show one claim: statement, source, evidence, verdict, and the code that a computed one is about.

    Example: testbed claims show m2po-ends-above-grpo-at-lag-256
    """
    from analysis.judging.verdicts import ask
    from analysis.planted_bugs import about
    from testbed.cli import show

    (row,) = ask(name, data)[:1]
    row["about"] = ", ".join(about(row["claim"]))
    if json:
        show.as_json(row)
        return
    shown = {
        "claim": row["claim"],
        "statement": row["statement"],
        "effect": evidence(row).removesuffix(":"),
        "it is": row["note"],
        "verdict": row["verdict"],
        "gate": row["gates"],
        "evidence": _bets(row),
        "kind": row["kind"],
        "set": row["standing"],
        "systems": row["systems"],
        "source": row["source"],
        "code": row["about"],
    }
    for key, value in shown.items():
        if value:
            print(f"{key:10} {value}")


def _bets(row: Mapping[str, Any]) -> str:
    if not row["e"]:
        return ""
    runs = f"; first run {row['e_first']:.3g}, fresh seeds {row['e_fresh']:.3g}" if row["e_fresh"] else ""
    return f'e-value {row["e"]:.3g} for "{row["leans"]}"{runs}'


@app.command("judge")
def judge_claims(
    every: Annotated[bool, typer.Option("--all", help="All claims, not only those that changed.")] = False,
    json: Json = False,
) -> None:
    """Judge what changed and write analysis/verdicts.csv: experiments, tables or code with other digests.

    Examples: testbed claims judge    testbed claims judge --all
    """
    import sys

    from analysis.experiment import EXPERIMENTS
    from analysis.judging import verdicts
    from analysis.tables.committed import manifest
    from testbed.cli import show

    known = () if every or not verdicts.TABLE.is_file() else verdicts.stored()
    chosen = verdicts.changed(known, {name: entry["sha256"] for name, entry in manifest().items()})
    rows = [row for row in known if row["experiment"] not in chosen and row["experiment"] in EXPERIMENTS]
    for number, name in enumerate(chosen, start=1):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(chosen)} {name:60}", end="", file=sys.stderr, flush=True)
        rows += verdicts.judge([name])
    before = {row["claim"]: row["verdict"] for row in known}
    decided = verdicts.decide(rows)
    verdicts.write(decided)
    moved = {
        row["claim"]: [before.get(row["claim"], "new"), row["verdict"]]
        for row in decided
        if before.get(row["claim"]) != row["verdict"]
    }
    if json:
        show.as_json({"judged": chosen, "moved": moved})
        return
    print(f"{verdicts.TABLE}: {len(decided)} claims, {len(moved)} verdicts moved")
    for name, (old, new) in moved.items() if known else ():
        print(f"  {name}: {old} -> {new}")
