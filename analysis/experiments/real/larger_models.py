"""Does the tuned toy LLM foretell what stale data do to Hugging Face models of a million weights?

As in `toy-vs-real` a seed has one of three tasks, drawn by its number. Here every recipe has its own learning
rate, chosen at lag 32 on tuning seeds, on the toy too, and the safe lag of each recipe is forecast.
"""

from functools import partial

import numpy as np
import pandas as pd

from analysis.auroc import auroc
from analysis.claims import Evidence
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.lag.safe_lag_fit import ALLOWED, SAFE, SIGNS, fitted, largest_safe
from analysis.experiments.real.larger_rates import BY, MODELS
from analysis.experiments.real.larger_rates import NAME as RATES
from analysis.experiments.real.larger_toy import EARLY, KEYS, LAGS, METRICS, SHORTER, arms, with_signs
from analysis.experiments.real.larger_toy import NAME as TOY_NAME
from analysis.experiments.real.toy_vs_real import ARM, GOAL, TOY, taus
from analysis.lab_rates import tuned
from analysis.load import Table, load_committed
from analysis.made_models import make
from analysis.sequential import median_exceeds, median_stays_below
from testbed import rng
from testbed.config.run import Run

HALF = 0.5
"""Kendall's tau at which three of four pairs stand in the right order."""
OCTAVE = 1.0
"""Mean error of log2(1 + safe lag) over recipes that counts as foretelling. All were set before the runs."""
KEPT, TOY_KEPT = "kept", "toy kept"
PILOT, USUAL, CONSTANT = "foretold by a pilot", "foretold by the toy", "foretold by one number"
ESS = "log10 ess"


def cells() -> tuple[Run, ...]:
    """Eight recipes at lags 8 and 64, and GRPO on-policy, at tuned rates, on three models."""
    return tuned((cell for model in MODELS for cell in arms(model.run(**SHORTER))), RATES, BY)


def drawn(run: Run) -> bool:
    """Return whether a run is on its seed's task: one of the three, at random."""
    return MODELS[rng.key(run.seed, "larger-models/task") % len(MODELS)].task == run.task


def kept(frame: pd.DataFrame) -> pd.Series:
    """Return the share of its best accuracy that an arm ends with; it collapsed below a half."""
    return frame["accuracy"] / frame["best"].clip(lower=1e-9)


def pilots(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the cells at the smallest stale lag, with log2(1 + safe lag) of their recipe and seed.

    A lag is safe when it and all smaller ones end at most 0.1 below GRPO on-policy of the same seed.
    """
    final = frame.set_index(list(KEYS))["accuracy"].to_dict()

    def octaves(task: str, recipe: str, seed: int) -> float:
        old = {lag: final[task, recipe, lag, seed] for lag in LAGS}
        return float(np.log2(1 + largest_safe({0: final[task, "grpo", 0, seed], **old})))

    found = frame[frame["lag"] == LAGS[0]]
    arms_N = zip(found["task"], found["recipe"], found["seed"], strict=True)
    return found.assign(**{SAFE: [octaves(*arm) for arm in arms_N]})


def from_rows(rows: pd.DataFrame) -> Table:
    """Return one row per cell with its signs, what the toy's median says of it, and three forecasts.

    Those of the safe lag: ridge regression on the signs of a pilot at lag 8, fitted on the toy; the toy's
    median for the same task and recipe; and the toy's median of all.
    """
    table = with_signs("larger-models", rows, KEYS)
    toy = load_committed([TOY_NAME])[TOY_NAME].frame
    real, toy = (frame.assign(**{KEPT: kept(frame)}) for frame in (table.frame, toy))
    known, new = pilots(toy), pilots(real)
    new[PILOT] = np.minimum(fitted(known, new), np.log2(1 + max(LAGS)))
    new[CONSTANT] = known[SAFE].median()
    usual = known.groupby(list(BY))[SAFE].median().rename(USUAL)
    medians = toy.groupby(["task", *ARM])[["accuracy", KEPT]].median()
    medians.columns = [TOY, TOY_KEPT]
    new = new.join(usual, on=list(BY)).set_index(["recipe", "seed"])[[SAFE, PILOT, USUAL, CONSTANT]]
    joined = real.join(medians, on=["task", *ARM]).join(new, on=["recipe", "seed"])
    return Table.of(table.name, joined, table.about)


EXPERIMENT = Experiment(
    "larger-models",
    question="Does the tuned toy LLM foretell what stale data do to models of a million weights?",
    source="this project",
    differs="models of a million weights, trained here; 64 steps of 32 responses; rates chosen from three",
    prepare=partial(make, MODELS),
    cells=cells,
    drawn=drawn,
    from_rows=from_rows,
    stop=Stop(block=13, cap=13),
    keys=KEYS,
    metrics=(*METRICS, *SIGNS, KEPT, TOY, TOY_KEPT, SAFE, PILOT, USUAL, CONSTANT),
    margins={"tau, AUROC to foretell": GOAL, "tau": HALF, "octaves": OCTAVE, "accuracy lost": ALLOWED},
    figure="larger-models",
    systems={
        "VCPO (Stable Asynchrony)": Part(
            "ESS before a collapse, on Hugging Face models at tuned rates",
            claims=("early-ess-ranks-collapses-of-larger-models",),
        ),
    },
)


def ceiling(table: pd.DataFrame) -> float:
    """Return the median tau of real medians over the other seeds of a task: what no forecast need exceed."""
    found = []
    for _, rows in table.groupby("task"):
        for seed in rows["seed"].unique():
            others = rows[rows["seed"] != seed].groupby(ARM)["accuracy"].median().rename(USUAL)
            mine = rows[rows["seed"] == seed].drop(columns=USUAL).join(others, on=ARM)
            found += list(taus(mine, lambda each: each[USUAL], LAGS))
    return float(np.median(found))


def toy_taus(table: pd.DataFrame, lags: tuple[int, ...] = LAGS) -> pd.Series:
    """Return per seed Kendall's tau-b of the toy's and the real final accuracies."""
    return taus(table, lambda rows: rows[TOY], lags)


def _toy_ranks(table: pd.DataFrame, goal: float) -> Evidence:
    note = f"median tau over seeds, less {goal:g}; medians of the other real seeds have {ceiling(table):.2f}"
    return median_exceeds(toy_taus(table), goal, note)


for _goal in (GOAL, HALF):
    EXPERIMENT.claim(
        f"toy-ranks-larger-models-at-tau-{_goal}",
        statement=(
            "At tuned rates the toy LLM's final accuracies rank 16 arms of models of a million weights (8 "
            f"recipes at lags 8 and 64) with Kendall's tau above {_goal:g}, in the median over seeds on "
            "three tasks."
        ),
    )(partial(_toy_ranks, goal=_goal))


@EXPERIMENT.claim()
def toy_ranks_larger_models_better_than_their_lag_does(table: pd.DataFrame) -> Evidence:
    """The tuned toy LLM's final accuracies rank those 16 arms better (Kendall's tau-b) than their lag alone
    does, on most seeds of three tasks.
    """
    toy, lag = toy_taus(table), taus(table, lambda rows: -rows["lag"], LAGS)
    note = f"median gain in tau; medians {toy.median():.2f} of the toy and {lag.median():.2f} of the lag"
    return median_exceeds(toy - lag, 0.0, note)


@EXPERIMENT.claim()
def toy_ranks_recipes_of_larger_models_at_lag_64(table: pd.DataFrame) -> Evidence:
    """At lag 64 the tuned toy LLM's final accuracies rank the eight recipes on models of a million weights
    better than chance (Kendall's tau above 0), on most seeds of three tasks.
    """
    return median_exceeds(toy_taus(table, LAGS[-1:]), 0.0, "median tau over seeds")


@EXPERIMENT.claim()
def toy_ranks_what_larger_models_keep(table: pd.DataFrame) -> Evidence:
    """The share of its best accuracy that an arm ends with on the tuned toy LLM ranks those 16 arms by what
    they keep on models of a million weights (Kendall's tau above 0), on most seeds of three tasks.
    """
    shares = taus(table.assign(accuracy=table[KEPT]), lambda rows: rows[TOY_KEPT], LAGS)
    fell = table[table["lag"] > 0]["collapsed"].mean()
    return median_exceeds(shares, 0.0, f"median tau over seeds; {fell:.0%} of the arms collapsed")


def _ess_ranks(stale: pd.DataFrame, event: pd.Series, what: str) -> Evidence:
    found = {seed: auroc(-rows[ESS], event[rows.index]) for seed, rows in stale.groupby("seed")}
    known = pd.Series(found, dtype=float).dropna()
    return median_exceeds(known, GOAL, f"median AUROC over seeds, less {GOAL:g}; {event.mean():.0%} {what}")


@EXPERIMENT.claim(source="VCPO (2026), arXiv:2602.17616: a falling ESS precedes collapse")
def early_ess_ranks_collapses_of_larger_models(table: pd.DataFrame) -> Evidence:
    """On models of a million weights a small ESS in the first 40 steps ranks 16 stale arms by whether they
    collapse later with an AUROC above 0.8, in the median over seeds of three tasks.
    """
    stale = table[(table["lag"] > 0) & ~(table["collapse_step"] <= EARLY)]
    return _ess_ranks(stale, stale["collapsed"], "of the arms collapsed later")


@EXPERIMENT.claim()
def early_ess_ranks_losses_of_larger_models(table: pd.DataFrame) -> Evidence:
    """There it ranks them by whether they end more than 0.1 below GRPO on-policy of the same seed with an
    AUROC above 0.8, in the median over seeds.
    """
    fresh = table[table["lag"] == 0].set_index("seed")["accuracy"]
    stale = table[table["lag"] > 0]
    lost = stale["accuracy"] < stale["seed"].map(fresh) - ALLOWED
    return _ess_ranks(stale, lost, "of the arms lost so much")


def off(table: pd.DataFrame, forecast: str) -> pd.Series:
    """Return per seed the mean over recipes of how many octaves a forecast of the safe lag is off."""
    known = table[table["lag"] == LAGS[0]]
    return (known[forecast] - known[SAFE]).abs().groupby(known["seed"]).mean()


@EXPERIMENT.claim()
def a_toys_pilots_foretell_the_safe_lag_of_larger_models(table: pd.DataFrame) -> Evidence:
    """Fitted on the toy LLM, 40 steps of a pilot at lag 8 foretell the largest safe lag of eight recipes on
    models of a million weights, as log2(1 + lag), with a mean error below 1, in the median over seeds.
    """
    errors = {name: off(table, name) for name in (PILOT, USUAL, CONSTANT)}
    middle = ", ".join(f"{error.median():.2f} {name}" for name, error in errors.items())
    return median_stays_below(errors[PILOT], OCTAVE, f"1 less the median error in octaves; medians {middle}")


for _name, _title, _how in (
    ("a-pilot", PILOT, "a pilot read so"),
    ("the-toy", USUAL, "the toy's own median"),
):

    def _better(table: pd.DataFrame, forecast: str = _title) -> Evidence:
        gain = off(table, CONSTANT) - off(table, forecast)
        return median_exceeds(gain, 0.0, "median of the octaves by which it is closer")

    EXPERIMENT.claim(
        f"{_name}-foretells-the-safe-lag-of-larger-models-better-than-one-number",
        statement=(
            f"On models of a million weights {_how} for a task and recipe is less wrong about the safe lag "
            "than the toy's median over all of them, on most seeds."
        ),
    )(_better)
