"""Predictions by the arena for twelve recipes, scored on later runs of models of a million weights.

Predictions and runs: analysis/arena/foretold_runs.py. Claims on running sums at lag 64 were written before
any run; the others after three seeds of that, before any of their runs was looked at.
"""

import itertools
from functools import partial

import pandas as pd

from analysis.arena import foretold_runs
from analysis.arena.foretold_runs import LAG, MODELS, load
from analysis.arena.halving import FRESH
from analysis.judging.auroc import kendall
from analysis.lab import Experiment, Frame, ask
from analysis.tables.cell_table import value_of, words
from analysis.tables.committed import Table, load_results
from testbed.config.run import cell_id
from testbed.errors import UserError

NAME = "foretold-arms"
SUMS, SPELLING = MODELS
RUNS = ("first", "replication")
MARGIN, HALF = 0.05, 0.5
"""Final accuracy that counts; Kendall's tau at which three of four pairs are in the right order."""
SAID = ("alike", "mean", "none", "product")
"""Predictors: the arena's most similar task, the mean of its tasks, and two naive ones."""
METRICS = {
    "final": "accuracy",
    "rise final": "rise accuracy",
    "collapsed": "collapsed",
    "kl": "mean rollout_corr/kl_mu_pi_k3",
    "clip_share": "mean actor/clip_share",
}
KEYS = ("task", "lag", "recipe", "run", "seed")


def compute() -> Table:
    """Return the final runs of the complete seeds, a row per task, lag, recipe and seed."""
    places = itertools.product(MODELS, foretold_runs.SEEDS, foretold_runs.LAGS)
    rows = [row for place in places for row in rows_of(*place)]
    if not rows:
        raise UserError(f"{foretold_runs.SWEEPS} has no complete seed. Run it first: {EXPERIMENT.command}")
    return Table.of(NAME, pd.DataFrame(rows).sort_values(list(KEYS)), {"tasks": list(MODELS)})


def rows_of(task: str, seed: int, lag: int) -> list[dict[str, object]]:
    """Return the rows of a task's seed at a lag; empty if a run is missing."""
    folder = foretold_runs.folder(task, seed, lag)
    wanted = {cell_id(run): run for run in foretold_runs.runs(task, seed, lag)}
    if len(list(folder.glob("packs/*"))) < len(wanted):
        return []
    frame = load_results(folder)
    cells = dict(list(frame.sort_values("step").groupby("cell")))
    rows = []
    for name, run in wanted.items():
        which = {"task": task, "lag": run.lag, "recipe": run.recipe, "run": RUNS[seed >= FRESH], "seed": seed}
        setting = {"rate": run.learning_rate, "knob": words(run.recipe_args)}
        rows.append(which | setting | {by: value_of(cells[name], metric) for by, metric in METRICS.items()})
    return rows


EXPERIMENT = Experiment(
    question="Does the arena foretell how twelve recipes do on models of a million weights?",
    source="this project",
    differs="models of a million weights, taught running sums of ten digits or to spell six letters "
    "backward; 144 steps of 12 responses; lags 64 and 16; the arena's settings with a tenth of its rates, "
    "nothing tuned on the models; 20 seeds at lag 64, 12 at lag 16",
    compute=compute, keys=KEYS, metrics=("rate", "knob", *METRICS),
    margins={"final accuracy that counts": MARGIN, "tau": HALF},
    command=f"python -m analysis.arena.foretold_runs {SUMS} {SPELLING}",
)  # fmt: skip


def said(task: str = SUMS, lag: int = LAG) -> Frame:
    """Return the committed predictions for a task and lag, by recipe."""
    found = load()
    return found[(found["task"] == task) & (found["lag"] == lag)].set_index("recipe")


def of(table: Frame, task: str, lag: int) -> Frame:
    """Return the rows of a task and a lag."""
    return table[(table["task"] == task) & (table["lag"] == lag)]


def scored(table: Frame, task: str, lag: int) -> Frame:
    """Return a row per predictor: tau, intervals that cover, their width, mean error, Brier score.

    tau ranks the mean shares of fresh data's mean final accuracy (0 for a predictor without a ranking);
    inside counts the recipes whose share lies in the interval; Brier is the mean over runs of (p -
    collapsed)^2.
    """
    stale = of(table, task, lag)
    fresh = of(table, task, 0)
    share = stale.groupby("recipe")["final"].mean() / fresh[fresh["seed"].isin(stale["seed"])]["final"].mean()
    rows = {}
    for name in SAID:
        at = said(task, lag).loc[share.index]
        chance = at[f"{'alike' if name == 'mean' else name} collapses"]
        missed = stale["recipe"].map(chance) - stale["collapsed"]
        rows[name] = {
            "tau": 0.0 if at[name].nunique() == 1 else kendall(at[name], share),
            "inside": int(((at[f"{name} low"] <= share) & (share <= at[f"{name} high"])).sum()),
            "recipes": len(share),
            "width": (at[f"{name} high"] - at[f"{name} low"]).mean(),
            "error": (at[name] - share).abs().mean(),
            "brier": (missed**2).mean(),
        }
    return pd.DataFrame(rows).T


def taus(table: Frame, name: str, task: str = SUMS, lag: int = LAG) -> pd.Series:
    """Return Kendall's tau of a predictor and the final accuracies of the recipes, by seed."""
    foretold = said(task, lag)[name]
    found = {
        seed: kendall(foretold.loc[rows["recipe"]], rows["final"])
        for seed, rows in of(table, task, lag).groupby("seed")
    }
    return pd.Series(found, dtype=float).fillna(0.0)


def better(table: Frame, task: str, lag: int = LAG) -> pd.Series:
    """Return the tau of the arena's most similar task minus the tau of lag times rate, by seed."""
    return taus(table, "alike", task, lag) - taus(table, "product", task, lag)


_ON_SUMS = "the arena's sums at lag 64 orders them on running sums"
_ON_WORDS = "the arena's sorted digits at lag 64 orders them on spelling backward"
for _name, _task, _of, _goal in (
    ("arena-foretells-the-order-of-recipes-at-tau-0", SUMS, _ON_SUMS, 0.0),
    ("arena-foretells-the-order-of-recipes-at-tau-0.5", SUMS, _ON_SUMS, HALF),
    ("arena-foretells-the-order-of-recipes-at-tau-0-on-spelling", SPELLING, _ON_WORDS, 0.0),
    ("arena-foretells-the-order-of-recipes-at-tau-0.5-on-spelling", SPELLING, _ON_WORDS, HALF),
):
    ask(EXPERIMENT, _name, f"What the recipes end at in {_of}, with a model of a million weights, with "
        f"Kendall's tau above {_goal:g}, in the median over seeds.", by=_goal,
        outcome=partial(taus, name="alike", task=_task), typical="median")  # fmt: skip
for _name, _task, _of in (
    ("arena-orders-recipes-better-than-lag-times-rate", SUMS, _ON_SUMS),
    ("arena-orders-recipes-better-than-lag-times-rate-on-spelling", SPELLING, _ON_WORDS),
):
    ask(EXPERIMENT, _name, f"What the recipes end at in {_of} better than the product of lag and the arena's "
        "learning rate does, with a model of a million weights: a larger Kendall's tau, in the median over "
        "seeds.", outcome=partial(better, task=_task), typical="median")  # fmt: skip

for _task, _of, _first, _second in (
    (SUMS, "the arena's sums at lag 16 orders them on running sums",
     "arena-foretells-the-order-of-recipes-at-lag-16",
     "arena-orders-recipes-better-than-lag-times-rate-at-lag-16"),
    (SPELLING, "the arena's sorted digits at lag 16 orders them on spelling backward",
     "arena-foretells-the-order-of-recipes-at-lag-16-on-spelling",
     "arena-orders-recipes-better-than-lag-times-rate-at-lag-16-on-spelling"),
):  # fmt: skip
    ask(EXPERIMENT, _first, f"What the recipes end at in {_of}, with a model of a million weights, with "
        "Kendall's tau above 0, in the median over seeds.",
        outcome=partial(taus, name="alike", task=_task, lag=16), typical="median")  # fmt: skip
    ask(EXPERIMENT, _second, f"What the recipes end at in {_of} better than the product of lag and the "
        "arena's learning rate does, with a model of a million weights: a larger Kendall's tau, in the "
        "median over seeds.", outcome=partial(better, task=_task, lag=16), typical="median")  # fmt: skip

for _name, _task, _upper, _lower, _words in (
    ("vcpo-ends-above-grpo-as-foretold", SUMS, ("vcpo", LAG), ("grpo", LAG), "VCPO ends 0.05 above GRPO"),
    ("lag-64-costs-grpo-as-foretold", SUMS, ("grpo", 0), ("grpo", LAG),
     "GRPO ends 0.05 below GRPO on fresh data"),
    ("topr-ends-above-grpo-on-spelling-as-foretold", SPELLING, ("topr", LAG), ("grpo", LAG),
     "TOPR ends 0.05 above GRPO"),
    ("reinforce-ends-below-grpo-on-spelling-as-foretold", SPELLING, ("grpo", LAG), ("reinforce", LAG),
     "REINFORCE ends 0.05 below GRPO"),
):  # fmt: skip
    ask(EXPERIMENT, _name, f"At the arena's settings {_words} at lag 64 on "
        f"{'running sums' if _task == SUMS else 'spelling'} with a model of a million weights, as in the "
        "arena.", {"task": _task, "recipe": _upper[0], "lag": _upper[1]},
        {"task": _task, "recipe": _lower[0], "lag": _lower[1]}, MARGIN, "final")  # fmt: skip
