"""A user's recipe in the arena, as one self-contained HTML page: its row, and every recipe's gain."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.arena.picture import gains
from analysis.arena.table import records
from paper_figs.report_page import _table, document
from paper_figs.save_figures import write_file

SHOWN = ("arm", "rate", "knob", "at_edge", "final", "gain", "gain_low", "gain_high", "sensitivity")


def page(found: pd.DataFrame, row: Mapping[str, Any], task: str, lag: int) -> str:
    """Return the page.

    Args:
        found: `analysis.arena.own.joined`: a row per arm.
        row: the arm's row of `analysis.arena.own.ranked`.
        task: of the arena.
        lag: optimizer steps.
    """
    arm = str(row["arm"])
    said = (
        f"{arm} ends at {row['final']:.3f} on {task} at lag {lag}: rank {row['rank']} of {row['of']} "
        f"({row['rank_low']} to {row['rank_high']}), {row['gain']:+.3f} over tuned GRPO "
        f"({row['gain_low']:+.3f} to {row['gain_high']:+.3f}). Intervals of 95 %, over seeds."
    )
    everyone = [{k: "" if v != v else v for k, v in one.items()} for one in records(found[list(SHOWN)])]
    sections = {
        "Result": f"<p>{escape(said)}</p>",
        "Gain over GRPO": f'<div style="max-width:40rem">{gains(found, lag, arm)}</div>',
        "All recipes": _table(everyone),
    }
    return document(f"{arm} in the arena", sections)


def write(path: Path, found: pd.DataFrame, row: Mapping[str, Any], task: str, lag: int) -> None:
    """Write the page to a file; raise UserError if it cannot be written."""
    write_file(path, page(found, row, task, lag).encode())
