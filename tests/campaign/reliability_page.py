"""docs/reliability.md: each promise, what was tried, how often, and what failed."""

import datetime
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass

PROMISES = {
    "P1": "kill -9 at any moment: no finished pack is lost, none torn; resuming gives the same bytes",
    "P2": "a pack that kills its worker costs only itself",
    "P3": "a hung pack ends at its limit; Ctrl-C drains, a second one stops in 2 s; nothing is orphaned",
    "P4": "many runners on one folder: nothing is committed twice, no lock goes stale",
    "P5": "a full or read-only disk: one line naming the path; resuming works later",
    "P6": "a flipped bit or a cut file is noticed, never averaged in",
    "P7": "results of different code never blend silently",
    "P8": "NaN or divergence is a recorded outcome, counted in every denominator",
    "P9": "a bad file or flag: one clear message, exit 2, no traceback, nothing written",
    "P10": "reading results, models and answers never runs code",
    "P11": "names cannot leave the output folder",
    "P12": "bits do not depend on worker count, order, engine, clock or resume",
    "P13": "ids are stable until a version rises",
    "P14": "planned = done + failed + pending at any time",
    "P15": "old result folders stay readable; newer formats are refused politely",
    "P16": "figures regenerate byte for byte, offline, without LaTeX",
    "P17": "statistics are calibrated, not only pinned",
    "P18": "offline by default; nothing listens beyond loopback; temporary files are private",
    "P19": "malformed training logs end in one message",
    "P20": "user code that is wrong ends in one message, whatever reads it",
    "P21": "texts of users are drawn, printed and written as they are",
    "Scale": "planning, status, resume and figures take linear time; memory stays flat over 5,000 steps",
}

KEPT = "## What earlier runs found"
"""From this heading on the page is written by hand, and every run keeps it."""

HEAD = """# Reliability

Each promise of the bench is tried over and over, at random moments and with random damage, from fixed seeds.
This page is written by `make campaign`; `make campaign ONLY="P1 P6" TRIALS=0.1` tries some of them,
less often, without writing the page. A short form of every row runs in `make test`.

"""


@dataclass(frozen=True)
class Row:
    """One test: what it tried, how often, and "" or how it ended otherwise."""

    promise: str
    what: str
    trials: int
    outcome: str
    seconds: float


def promise_of(name: str) -> str:
    """Return "P1" for tests/campaign/test_p01_kills.py::…, "Scale" for a file without a number."""
    number = re.search(r"test_p(\d+)_", name)
    return f"P{int(number[1])}" if number else "Scale"


def machine() -> str:
    """Return the kind of machine, as "2-core x86_64 Linux"."""
    # Not above: pytest refuses to start where a module of its plugins is imported already.
    from testbed.execution.threads import cores

    return f"{cores()}-core {platform.machine()} {platform.system()}"


def page(rows: Iterable[Row], seconds: float, there: str = "") -> str:
    """Return the page as Markdown, with what is written by hand in the page that is there."""
    rows = list(rows)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    failed = sum(row.outcome == "failed" for row in rows)
    trials = sum(row.trials for row in rows)
    scale = float(os.environ.get("CAMPAIGN", "1"))
    part = "" if scale == 1 else f" Trials were scaled by {scale:g}."
    load = f"Load average at the end: {os.getloadavg()[2]:.0f}.{part}"
    lines = [
        f"Last run: {today}, {machine()}, Python {platform.python_version()}, {seconds / 60:.1f} minutes, "
        f"{trials:,} trials, {failed} failures. {load}", "",
        "| promise | what was tried | trials | failures | seconds |", "|---|---|---:|---:|---:|",
    ]  # fmt: skip
    for promise, text in PROMISES.items():
        mine = [row for row in rows if row.promise == promise]
        if mine:
            lines.append(f"| **{promise}** {text} | | | | |")
        for row in mine:
            failures = row.outcome if row.outcome == "not run here" else str(int(row.outcome == "failed"))
            lines.append(f"| | {row.what} | {row.trials:,} | {failures} | {row.seconds:.0f} |")
    _, kept, notes = there.partition(KEPT)
    return HEAD + "\n".join(lines) + "\n" + (f"\n{kept}{notes}" if kept else "")
