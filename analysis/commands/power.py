"""testbed power: how many seeds a comparison needs, before it is run."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.experiment import Stop
from testbed.cli import show
from testbed.errors import UserError


def power(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[RESULTS]...", help="Results of a pilot, on other seeds.")
    ] = None,
    gap: Annotated[float | None, typer.Option(help="Mean difference of paired seeds to decide.")] = None,
    spread: Annotated[float | None, typer.Option(help="Standard deviation of these differences.")] = None,
    by: Annotated[
        str, typer.Option(help="Setting of the pilot to compare; default the first that varies.")
    ] = "",
    baseline: Annotated[str, typer.Option(help="One of its values; default grpo, else the first.")] = "",
    metric: Annotated[str, typer.Option(help="As in `testbed compare`.")] = "",
    alpha: Annotated[float, typer.Option(help="Chance of a false verdict of the t test.")] = 0.05,
    power: Annotated[float, typer.Option(help="Chance that the t test decides.")] = 0.8,
    block: Annotated[int, typer.Option(min=1, help="Seeds between two updates of the bets.")] = 8,
    cap: Annotated[int, typer.Option(min=1, max=512, help="Most seeds of one run of the bets.")] = 32,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say how many seeds decide a gap between two arms, before a run.

    By a t test of paired seeds, and by the rule of this project's claims: bets that may be looked at after
    every block, on a first run and on fresh seeds. The gap and the spread are given, or read from a pilot.

    Examples:
    testbed power --gap 0.05 --spread 0.1

    testbed power results/pilot --by recipe --baseline grpo --gap 0.05 --cap 48
    """
    from analysis.judging.seed_power import CAP, agreeing, bet_seeds, decided
    from analysis.kernels.t_test_seeds import MOST, t_seeds

    if cap % block:
        raise UserError(
            f"cap is {cap}, expected a multiple of block, {block}: looks come after whole blocks."
        )
    stop = Stop(block=block, cap=cap)
    rows: list[dict[str, Any]] = []
    for name, one_gap, one_spread in _arms(folders or [], gap, spread, by, baseline, metric):
        seeds = t_seeds(one_gap, one_spread, alpha, power)
        chance = agreeing(one_gap, one_spread)
        rows.append(
            {
                "arm": name,
                "gap": round(one_gap, 4),
                "spread": round(one_spread, 4),
                "seeds (t test)": seeds or "none",
                "seeds (bets)": bet_seeds(chance, stop, power) or "none",
                "seeds that agree": round(chance, 3),
                "decided": round(decided(chance, stop), 3),
            }
        )
    if json:
        show.as_json({"alpha": alpha, "power": power, "stop": vars(stop), "rows": rows})
        return
    if rows[0]["arm"] == "":
        rows = [{key: value for key, value in row.items() if key != "arm"} for row in rows]
    show.table(rows)
    show.say(NOTE.format(alpha=alpha, power=power, stop=stop, most=MOST, cap=CAP).splitlines())


NOTE = """\
Seeds (t test): pairs for power {power:g} at alpha {alpha:g}, two-sided, differences normal; none \
up to {most:,}.
Decided: chance that bets on the sign decide a claim, with up to {stop.cap} seeds in a first run and as \
many fresh ones, a look every {stop.block}.
Seeds (bets): the cap of each of the two runs with which power {power:g} is reached; none up to {cap}.
Arms that share nothing but the seed have 1.4 times the spread of one arm."""


SAME = "all seeds of the pilot differ by the same amount"


def _arms(
    folders: list[Path], gap: float | None, spread: float | None, by: str, baseline: str, metric: str
) -> list[tuple[str, float, float]]:
    """Return (name, gap, spread) per comparison: the given numbers, or those of a pilot's arms."""
    if not folders:
        if gap is None or spread is None:
            raise UserError("Give --gap and --spread, or the results folder of a pilot that has both.")
        for name, value in {"by": by, "baseline": baseline, "metric": metric}.items():
            if value:
                raise UserError(
                    f"--{name} says how to read a pilot. Give its results folder, or leave it out."
                )
        return [("", gap, spread)]
    from analysis.sweeps.sweep_comparison import compare
    from analysis.sweeps.sweep_table import load

    table = compare(load(*folders), by, baseline, metric).to_dict("records")
    found = [
        (
            f"{row['arm']} {row['setting']}".strip(),
            row["difference"] if gap is None else gap,
            row["spread"] if spread is None else spread,
        )
        for row in table
    ]
    known = [arm for arm in found if arm[1] != 0 and arm[2] > 0]
    for why, few in (("the pilot has one pair of seeds", True), (SAME, False)):
        lost = [arm[0] for arm, row in zip(found, table, strict=True)
                if arm not in known and (row["seeds"] < 2) == few]  # fmt: skip
        if lost:
            print(f"Left out, because {why}: {', '.join(lost)}.", file=sys.stderr)
    if not known:
        raise UserError("No arm of the pilot has a gap and a spread; give --gap and --spread, or more seeds.")
    return known
