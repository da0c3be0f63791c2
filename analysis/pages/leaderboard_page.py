"""docs/leaderboard.md: every objective beside every other, from the committed tables of the report cards."""

import numpy as np
import pandas as pd

from analysis.cards.report_card import COST, EXACT, committed

HEAD = """# Exact numbers of objectives

Written by `testbed evidence pages leaderboard` from the tables `card-exact` and `card-cost`; do not edit. In
the site a click on a column's head sorts by it. What recipes learn with these objectives on stale data is
[the arena](arena.md).

There is no overall score: which of these numbers matters depends on how stale the data are, and a number of a
small world does not hold for a large model. `testbed card NAME` draws one row as a radar of percentiles, and
`testbed card path/to/file.py:my_objective` puts your objective beside these rows
([how to](howto/report-card.md)).

- **bias, noise, ESS, top tenth** (exact): the gradient of groups of two responses with A = R - R
  of the other, enumerated on 16 trees of three tokens, after a drift of the logits by .1, .5, 1. Bias is that
  of the direction, sqrt(1 - cos²) to the true policy gradient, as a learning rate absorbs a scale; noise is
  sqrt(tr Cov g) / |E g|; ESS that of the effective weights; top tenth: share of E|g|² in the tenth of batches
  with the largest gradients, at drift .5.
- **gain** (exact): where the exact gradient on frozen data of two five-armed bandits ends, as a share of the
  way from J(mu) to the best action; * marks one that still moves after 1,000 updates, and "open" one that
  moves by more than .001 when the last digits of mu do, with its range: steps that switch hang on them.
- **time** (stopwatch): loss and gradient, ppo_clip = 1.
- **–**: not defined (a mean gradient of 0).

**One row again:** `testbed card NAME --quick`. All rows: `testbed evidence run card-exact card-cost --write`.
"""
FILTERS = '<div class="filters" data-by="family objective" data-words="ppo, cispo"></div>'


def page() -> str:
    """Return the page."""
    tables = committed()
    rows = [_row(str(name), tables) for name in tables[EXACT].index]
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f'{HEAD}\n{FILTERS}\n\n<div class="block sortable" markdown>\n\n{table}\n\n</div>\n'


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
