"""What the arena foretold of eleven recipes, scored on models of a million weights that ran afterwards.

Predictions and runs: analysis/arena/foretold_runs.py. This file was written before any of its runs.
"""

import pandas as pd

from analysis.arena import foretold_runs
from analysis.arena import table as finals
from analysis.arena.foretold_runs import load
from analysis.arena.tuning import FRESH
from analysis.judging.auroc import kendall
from analysis.lab import Experiment
from analysis.tables.cell_table import words
from analysis.tables.committed import Table, load_results
from testbed.config.run import cell_id
from testbed.errors import UserError

NAME, TASK, LAG = "foretold-arms", "running-sum", foretold_runs.LAG
RUNS = ("first", "replication")
MARGIN, HALF = 0.05, 0.5
"""Final accuracy that counts; Kendall's tau at which three of four pairs stand in the right order."""
SAID = ("alike", "mean", "none", "product")
"""The arena by its task most alike, by the mean of its tasks; the dumb predictors."""


def compute() -> Table:
    """Return the final runs of the seeds that are complete, a row per lag, recipe and seed."""
    rows: list[dict[str, object]] = []
    for seed in foretold_runs.SEEDS:
        folder = foretold_runs.SWEEPS / TASK / f"seed-{seed}"
        wanted = {cell_id(run): run for run in foretold_runs.runs(TASK, seed)}
        frame = load_results(folder) if folder.exists() else pd.DataFrame({"cell": []})
        if not set(wanted) <= set(frame["cell"]):
            continue
        found = {by: finals.scores(frame, by) for by in ("final", "collapsed")}
        for name, run in wanted.items():
            setting = {"rate": run.learning_rate, "knob": words(run.recipe_args)}
            which = {"lag": run.lag, "recipe": run.recipe, "run": RUNS[seed >= FRESH], "seed": seed}
            rows.append(which | setting | {by: scores[name] for by, scores in found.items()})
    if not rows:
        raise UserError(f"{foretold_runs.SWEEPS} has no complete seed. Run it first: {EXPERIMENT.command}")
    return Table.of(NAME, pd.DataFrame(rows).sort_values(["lag", "recipe", "run", "seed"]), {"task": TASK})


EXPERIMENT = Experiment(
    question="Does the arena foretell how eleven recipes do on models of a million weights?",
    source="this project",
    differs=(
        "a Qwen2-shaped model of a million weights taught running sums of ten digits; 144 steps of 12 "
        "responses; lag 64 alone; the arena's settings, rates a tenth, nothing tuned on it; as many seeds as "
        "the time allowed"
    ),
    compute=compute,
    keys=("lag", "recipe", "run", "seed"),
    metrics=("rate", "knob", "final", "collapsed"),
    margins={"final accuracy that counts": MARGIN, "tau": HALF},
    command=f"python -m analysis.arena.foretold_runs {TASK}",
)


def said() -> pd.DataFrame:
    """Return what was foretold of the task and the lag, by recipe."""
    found = load()
    return found[(found["task"] == TASK) & (found["lag"] == LAG)].set_index("recipe")


def scored(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per predictor: tau, intervals that hold, their width, mean error, Brier score.

    tau is that of the mean shares of fresh data's mean final (0 for a predictor without an order), inside
    counts the recipes whose share the interval holds, Brier is the mean over runs of (p - collapsed)^2.
    """
    stale, fresh = table[table["lag"] == LAG], table[table["lag"] == 0]["final"].mean()
    share = stale.groupby("recipe")["final"].mean() / fresh
    rows = {}
    for name in SAID:
        at = said().loc[share.index]
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


def taus(table: pd.DataFrame, name: str) -> pd.Series:
    """Return Kendall's tau of a predictor and the final accuracies of the recipes, by seed."""
    found = {
        seed: kendall(said()[name].loc[rows["recipe"]], rows["final"])
        for seed, rows in table[table["lag"] == LAG].groupby("seed")
    }
    return pd.Series(found, dtype=float).fillna(0.0)


for _name, _goal in (
    ("arena-foretells-the-order-of-recipes-at-tau-0", 0.0),
    ("arena-foretells-the-order-of-recipes-at-tau-0.5", HALF),
):
    EXPERIMENT.claim(
        _name,
        "What eleven recipes end at in the arena's sums at lag 64 orders them on running sums, with a model "
        f"of a million weights, with Kendall's tau above {_goal:g}, in the median over seeds.",
    ).compare(lambda table: taus(table, "alike"), by=_goal, typical="median")
EXPERIMENT.claim(
    "arena-orders-recipes-better-than-lag-times-rate",
    "The arena's order of eleven recipes at lag 64 agrees with a model of a million weights better than the "
    "product of lag and the arena's learning rate: a larger Kendall's tau, in the median over seeds.",
).compare(lambda table: taus(table, "alike") - taus(table, "product"), typical="median")
