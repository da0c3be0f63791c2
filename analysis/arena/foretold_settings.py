"""Rate and knob of every arm of `foretold`, chosen on seeds of their own, and then its final runs.

    python -m analysis.arena.foretold_settings TASK...

goes on where it was stopped, and writes foretold-TASK.csv beside this file: arm, lag, rate, knob, seeds,
final. Models of a million weights want a tenth of the toy's rates. Tuning is cheaper than the arena's: three
rates at the knob's middle value (five rates where there is no knob), then the settings next to the best one,
all on one seed. The finals come a seed at a time for all arms, first runs and replications in turn, up to
SEEDS: whichever seeds are complete when time is up count.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_letters

import pandas as pd

from analysis.arena import table
from analysis.arena.arms import Arm, known
from analysis.arena.foretelling import arms
from analysis.arena.tuning import FRESH, Scores, Setting, beyond, cell, chosen, mean, on_tuning_seeds
from analysis.tables.cell_table import words
from analysis.tables.committed import load_results
from analysis.worlds.hf_bases import Made, make
from testbed.config.run import Run, cell_id

SWEEPS = Path("out/foretold")
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
spelled backward, right on 23 %. In a pilot at one rate fresh data ended at .6 to .75 and still rose.
"""
SIZES = {"steps": 144, "prompts": 3, "group": 4, "log_every": 24, "evaluation_prompts": 64}
"""144 steps of 12 responses: lag 64 is as large a part of a run as on the arena's sums."""
TUNING_SEED = (0,)
SEEDS = tuple(seed for pair in zip(range(8), range(FRESH, FRESH + 8), strict=True) for seed in pair)
"""In the order in which they run; those from FRESH on are the replication."""
SLOWER = 0.1
"""Rates of a million weights as a share of the toy's."""


def base(task: str) -> Run:
    """Return the run that a task gives a recipe, rate, lag and seed."""
    return MODELS[task].run(**SIZES)


def file_of(task: str) -> Path:
    """Return where a task's tuning is kept."""
    return Path(__file__).with_name(f"foretold-{task}.csv")


def first_settings(arm: Arm) -> list[Setting]:
    """Return the rates that are tried first, a tenth of the arena's, at the knob's middle value."""
    rates = arm.rates[:: 1 if len(arm.knob) > 1 else 2]
    return [(float(f"{rate * SLOWER:.2g}"), arm.knob[len(arm.knob) // 2]) for rate in rates]


def tune(task: str, arm: Arm, lag: int) -> Scores:
    """Return the final accuracies on the tuning seed by setting: the first ones, and those next to the best."""
    scores: dict[Setting, list[float]] = {}
    for step in ("screen", "growth"):
        wanted = beyond(scores, arm.knob) if scores else first_settings(arm)
        runs = on_tuning_seeds(base(task), arm, lag, wanted, TUNING_SEED)
        found = run_here(runs, f"{task}/{arm.name}-{lag}-{step}")
        scores |= {(run.learning_rate, run.recipe_args): [found[cell_id(run)]] for run in runs}
    return scores


def run_here(runs: Sequence[Run], name: str) -> dict[str, float]:
    """Run what is missing in this process, and return the final accuracies by cell."""
    from testbed.execution.runner import run_sweep

    if not runs:
        return {}
    run_sweep(runs, SWEEPS / name, workers=0)
    return table.scores(load_results(SWEEPS / name))


def tune_all(task: str) -> None:
    """Tune every arm of a task and write its settings down, one by one."""
    make([MODELS[task]])
    found = pd.read_csv(file_of(task), keep_default_na=False) if file_of(task).exists() else pd.DataFrame()
    for name, lag in arms():
        if len(found) and ((found["arm"] == name) & (found["lag"] == lag)).any():
            continue
        scores = tune(task, known()[name], lag)
        rows = [
            {"arm": name, "lag": lag, "rate": rate, "knob": words(args), "seeds": len(x), "final": mean(x)}
            for (rate, args), x in scores.items()
        ]
        found = pd.concat([found, pd.DataFrame(rows)], ignore_index=True)
        found.to_csv(file_of(task), index=False, float_format="%.4g")
        print(task, name, lag, chosen(scores), flush=True)


def tuned(task: str) -> tuple[Run, ...]:
    """Return the arms of a task at their chosen settings; nothing where they are not all tuned."""
    if not file_of(task).exists():
        return ()
    rows = pd.read_csv(file_of(task), keep_default_na=False)
    found = []
    for name, lag in arms():
        arm, tried = known()[name], rows[(rows["arm"] == name) & (rows["lag"] == lag)]
        if tried.empty:
            return ()
        by_words = {words(replace(base(task), recipe_args=args).recipe_args): args for args in arm.knob}
        scores = {
            (row["rate"], by_words[row["knob"]]): [row["final"]] * int(row["seeds"])
            for row in tried.to_dict("records")
        }
        found.append(cell(base(task), arm, lag, chosen(scores), 0))
    return tuple(found)


def at_seed(run: Run, seed: int) -> Run:
    """Return a tuned arm's run on a seed of the finals."""
    return replace(run, seed=seed)


def run_finals(task: str) -> None:
    """Run the arms at their chosen settings, a seed at a time."""
    for seed in SEEDS:
        found = run_here([at_seed(run, seed) for run in tuned(task)], f"{task}/seed-{seed}")
        print(task, seed, *(f"{final:.2f}" for final in found.values()), flush=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        tune_all(each)
        run_finals(each)
