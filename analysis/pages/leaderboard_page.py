"""docs/leaderboard.md: every objective beside every other, from the committed tables of the report cards."""

import numpy as np
import pandas as pd

from analysis.cards.report_card import COST, EXACT, committed
from analysis.pages.markdown import text

FILTERS = '<div class="filters" data-by="family objective" data-words="ppo, cispo"></div>'


def page() -> str:
    tables = committed()
    rows = [_row(str(name), tables) for name in tables[EXACT].index]
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f'{text("leaderboard")}\n{FILTERS}\n\n<div class="block sortable" markdown>\n\n{table}\n\n</div>\n'


def _row(name: str, tables: dict[str, pd.DataFrame]) -> dict[str, str]:
    exact = tables[EXACT].loc[[name]].iloc[0]
    moving = "" if exact["settled"] else "*"
    row = {"objective": f"`{name}`", "family": str(exact["family"])}
    for fact, title in (("bias", "bias"), ("noise", "noise"), ("ess", "ESS")):
        row |= {f"{title} {drift}": _brief(exact[f"{fact} {drift}"]) for drift in ("0.1", "0.5", "1")}
    row["top tenth"] = _brief(exact["concentration 0.5"])
    open_end = f"open [{_brief(exact['gain low'])}, {_brief(exact['gain high'])}]"
    row["gain"] = (open_end if np.isnan(exact["gain"]) else _brief(exact["gain"])) + moving
    cost = tables.get(COST)
    row["time"] = _brief(cost["both"][name]) if cost is not None and name in cost.index else "–"
    return row


def _brief(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3g}"
