"""testbed evidence judge: claims and their verdicts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from analysis.commands.kinds import in_words
from analysis.experiment import EXPERIMENTS
from testbed.cli import show
from testbed.errors import UserError


def judge_claims(
    pattern: Annotated[str, typer.Argument(help="Shell pattern of claims, or an experiment.")] = "*",
    data: Annotated[
        Path | None, typer.Option(help="Results folder or tables; default: the committed tables.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Judge what changed, and write analysis/verdicts.csv.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --write: all claims.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Judge claims now and print effect, interval and verdict; with --write, judge and keep what changed.

    A claim has changed when its experiment, table or code has another digest.

    Examples:
    testbed evidence judge 'ess-*'

    testbed evidence judge vcpo-ends-above-tuned-grpo-at-lag-256-on-long --json

    testbed evidence judge --write
    """
    if write and (pattern != "*" or data):
        raise UserError("--write judges every claim that changed; give it without a pattern and --data.")
    if every and not write:
        raise UserError("--all needs --write; give both, or a pattern.")
    _write(every, json) if write else _print(pattern, data, json)


def _print(pattern: str, data: Path | None, json: bool) -> None:
    from analysis.judging.verdicts import ask

    rows = ask(pattern, data)
    if json:
        show.as_json(rows)
        return
    width = max(len(row["claim"]) for row in rows)
    for row in rows:
        print(f"{row['claim']:{width}}  {in_words(row)}  {row['verdict']}")


def _write(every: bool, json: bool) -> None:
    from analysis.judging import verdicts
    from analysis.tables.committed import manifest

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
