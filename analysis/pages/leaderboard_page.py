"""docs/leaderboard.md: every objective beside every other, from the committed tables of the report cards."""

import numpy as np
import pandas as pd

from analysis.cards.card_rows import SHOWN, TUNED
from analysis.cards.report_card import COST, EXACT, TRAINING, committed
from analysis.experiments.cards import card_training
from analysis.judging.intervals import median_interval

HEAD = """# Leaderboard of objectives

Written by `testbed evidence pages leaderboard` from the tables `card-exact`, `card-training` and
`card-cost`; do not edit. In the site a click on a column's head sorts by it.

There is no overall score: which of these numbers matters depends on how stale the data are, and a number of a
small world does not hold for a large model. `testbed card NAME` draws one row as a radar of percentiles, and
`testbed card path/to/file.py:my_objective` puts your objective beside these rows
([how to](howto/report-card.md)).

{what}

**One row again:** `testbed card NAME --quick` computes its exact numbers and its time, and
`testbed run card-training recipe=NAME` trains it. All rows:
`testbed evidence run card-exact card-training card-cost --write`.
"""

WHAT = """- **bias, noise, ESS, top tenth** (exact): the gradient of groups of two responses with A = R - R
  of the other, enumerated on 16 trees of three tokens, after a drift of the logits by .1, .5, 1. Bias is that
  of the direction, sqrt(1 - cos²) to the true policy gradient, as a learning rate absorbs a scale; noise is
  sqrt(tr Cov g) / |E g|; ESS that of the effective weights; top tenth: share of E|g|² in the tenth of batches
  with the largest gradients, at drift .5.
- **gain** (exact): where the exact gradient on frozen data of two five-armed bandits ends, as a share of the
  way from J(mu) to the best action; * marks one that still moves after 1,000 updates, and "open" one that
  moves by more than .001 when the last digits of mu do, with its range: steps that switch hang on them.
- **time** (stopwatch): loss and gradient, ppo_clip = 1.
{training}
- **–**: not defined (a mean gradient of 0), or not trained: variants, added terms, objectives of turns.
  {missing}"""

TRAINED = """- **{arms}**
  (medians of {seeds} seeds, each with its interval): final accuracy of a toy LLM (4,000 weights) on running
  sums of four digits after {steps} steps at learning rate {rate:g}: on fresh data, on data so many steps old,
  on data of the first weights alone; with every group used eight times; with noise on the sampler's logits;
  with answers four times as long, at lag {lag}; and from wrong answers alone, at lag 4.
  {interval}
- **tuned**: at lag {lag} at the rate, of three, that is best on the other seeds.
- **safe lag**: the largest of 16, 64, 128, 256 up to which the median seed loses at most .1 of its accuracy
  on fresh data; of its interval, both ends are such lags as well.
- **collapsed**: share of all these runs that collapsed."""


def page() -> str:
    """Return the page."""
    tables = committed()
    trained = tables.get(TRAINING)
    head = HEAD.format(what=WHAT.format(training=_training(trained), missing=_missing(trained)))
    rows = [_row(str(name), tables) for name in tables[EXACT].index]
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f'{head}\n<div class="sortable" markdown>\n\n{table}\n\n</div>\n'


def arms(trained: pd.DataFrame | None) -> list[str]:
    """Return the arms that were trained, in the order of the experiment."""
    return [] if trained is None else [arm for arm in SHOWN if f"accuracy {arm}" in trained]


def _training(trained: pd.DataFrame | None) -> str:
    if trained is None or not arms(trained):
        return "- Nothing was trained for this page yet."
    seeds = int(trained["seeds on-policy"].min())
    found = median_interval(range(seeds))
    return TRAINED.format(
        arms=", ".join(arms(trained)), seeds=seeds, steps=card_training.BASE.steps, rate=card_training.RATE,
        lag=card_training.TUNED_AT,
        interval=f"Interval: {found.method}, which covers the true median with chance {found.level:.0%}.",
    )  # fmt: skip


def _missing(trained: pd.DataFrame | None) -> str:
    """Return what the committed table lacks of its experiment."""
    names = card_training.judged()
    done = sum(trained is not None and name in trained.index for name in names)
    own = sum(card_training.OWN_ADVANTAGE not in card_training.arms_of(name) for name in names)
    return (
        f"Trained are {done} of the {len(names)} others, among which the percentiles of a card are;\n  "
        f"{own} of those {len(names)} read rewards in place of advantages and know nothing of "
        f"{card_training.OWN_ADVANTAGE}."
    )


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
    trained = tables.get(TRAINING)
    for arm in arms(trained):
        row[arm] = _interval(trained, name, f"accuracy {arm}")
    if trained is not None and arms(trained):
        row["tuned"] = _interval(trained, name, f"accuracy {TUNED}")
        row["safe lag"] = _interval(trained, name, "safe lag", "g")
        row["collapsed"] = _brief(trained["collapsed"].get(name, np.nan))
    return row


def _interval(trained: pd.DataFrame | None, name: str, column: str, form: str = ".2f") -> str:
    if trained is None or name not in trained.index or np.isnan(trained[column][name]):
        return "–"
    value, low, high = (float(trained[f"{column}{end}"][name]) for end in ("", " low", " high"))
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def _brief(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3g}"
