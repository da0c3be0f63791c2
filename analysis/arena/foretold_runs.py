"""The arena's predictions for twelve recipes on models of a million weights, and the runs that score them.

foretold.csv was written from the arena's table before any of these runs. Do not write it again: the table has
more seeds since. A final accuracy is predicted as a share of that of fresh data with GRPO at its best
setting, per task, lag and recipe, with an interval of 90 %:

- alike: the share on the arena's task most alike, which orders the recipes, `-+ z s sqrt(2 / 16)`, s the
  spread between fresh seeds as a share; its collapses are a probability, (collapses + 1/2) / (seeds + 1);
- mean: the mean share over the arena's tasks, `-+ t s sqrt(1 + 1/T)`, s the spread between tasks at lag 64;
- none: age does nothing, 1, with the interval of alike;
- product: 1 - a (lag x rate) by least squares, `-+ z s` with what the fit leaves; its collapses likewise.

    python -m analysis.arena.foretold_runs TASK...

resumes where it stopped. Tuning every arm on such a model would take days, so nothing is tuned. Settings
are the arena's of that day at the same lag on the most similar task, with a tenth of the rate. TOPR does
not run on running sums at lag 64: the arena chose its smallest rate there, and a tenth of it would learn
nothing. Runs of one seed come for all arms of a lag, first runs and replications in turn; the seeds that
are complete when time is up count.
"""

import sys
from pathlib import Path
from string import ascii_letters

import pandas as pd

from analysis.arena.arms import known
from analysis.arena.halving import FRESH, cell
from analysis.tables.cell_table import words
from analysis.tables.committed import load_committed
from analysis.worlds.hf_bases import Made, make
from testbed.config.run import Run

FILE = Path(__file__).with_name("foretold.csv")
TABLE = "foretold-arms"
"""Committed results; they keep the settings, as the arena's have changed since."""
SWEEPS = Path("out/foretold")
LAG = 64
LAGS = (LAG, 16)
"""In the order in which they run."""
RECIPES = (
    "grpo", "reinforce", "tis", "mis", "gspo", "cispo", "m2po", "vcpo", "minpro", "topr", "asymre", "r2vpo",
)  # fmt: skip
"""Recipes that the arena has on sums and on sorting at lags 16 and 64."""
REVERSED = (
    ("dataset", "spell_backward"),
    ("dataset_args", "min_word_len=6 max_word_len=6"),
    ("prompt", "{word}"),
    ("alphabet", ascii_letters),
)
MODELS = {
    "running-sum": Made("qwen2-1m-running-sum-10", "running-sum", (("digits", 10),), "qwen2", 0.3, 300, 224),
    "reasoning-gym": Made("llama-1m-spell6", "reasoning-gym", REVERSED, "llama", 0.2, 600, 224),
}
"""Bases of a million weights: running sums of ten digits, right on 4 %, and words of six letters to be
spelled backward, right on 23 %. In a pilot at one rate, fresh data ended at .6 to .75 and were still rising.
"""
SIZES = {"steps": 144, "prompts": 3, "group": 4, "log_every": 24, "evaluation_prompts": 64}
"""144 steps of 12 responses: lag 64 is as large a share of a run as on the arena's sums."""
SEEDS = tuple(seed for pair in zip(range(16), range(FRESH, FRESH + 16), strict=True) for seed in pair)
"""In the order in which they run; those from FRESH on are the replication."""


def load() -> pd.DataFrame:
    """Return the predictions."""
    return pd.read_csv(FILE)


def arms(task: str, lag: int) -> tuple[tuple[str, int], ...]:
    """Return recipes with their lags: those claimed at a lag, and GRPO on fresh data at 64."""
    left_out = {"topr"} if (task, lag) == ("running-sum", LAG) else set()
    return (*[("grpo", 0)] * (lag == LAG), *((recipe, lag) for recipe in RECIPES if recipe not in left_out))


def folder(task: str, seed: int, lag: int) -> Path:
    """Return the folder of the runs of a task, seed and lag."""
    return SWEEPS / task / (f"seed-{seed}" if lag == LAG else f"seed-{seed}-lag-{lag}")


def runs(task: str, seed: int, lag: int) -> tuple[Run, ...]:
    """Return the runs of `arms` on a seed, at the settings that the committed results have."""
    rows = load_committed([TABLE])[TABLE].frame.query("task == @task").to_dict("records")
    settings = {(row["recipe"], row["lag"]): (float(row["rate"]), row["knob"]) for row in rows}
    base, found = MODELS[task].run(**SIZES), []
    for name, age in arms(task, lag):
        rate, knob = settings[name, age]
        tried = [cell(base, known()[name], age, (rate, args), seed) for args in known()[name].knob]
        found.append(next(run for run in tried if words(run.recipe_args) == knob))
    return tuple(found)


def run_all(task: str) -> None:
    """Run the arms, a lag and a seed at a time."""
    from testbed.execution.runner import run_sweep

    make([MODELS[task]])
    for lag in LAGS:
        for seed in SEEDS:
            run_sweep(runs(task, seed, lag), folder(task, seed, lag), workers=0)


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        run_all(each)
