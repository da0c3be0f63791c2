"""A cold start and then RL or preferences on data of a given age: does the reward fall with it?"""

from __future__ import annotations

import pandas as pd

from analysis import cold_starts
from analysis.claims import Evidence
from analysis.cold_starts import accuracy, cloned, demonstrations, trained
from analysis.comparisons import must_exceed
from analysis.experiment import Experiment, Part
from analysis.load import Table
from analysis.plot import Plot
from analysis.replication import difference, level, made_twice

NAME = "aged-rollouts"
SEEDS, CLONED, STEPS = 24, 10, 400
AGES = (0, 50, 200)
RECIPES = {"grpo": 0.3, "dpo": 1.0}
"""Name: learning rate."""
MARGIN = 0.02
"""Accuracy. Set before the table was made."""


def make(key_R: cold_starts.Words) -> pd.DataFrame:
    """Return exact accuracies of the cold start and behind 400 updates on data of each age."""
    start_RSA = cloned(demonstrations(key_R), CLONED)
    frames = []
    for recipe, rate in RECIPES.items():
        for age in AGES:
            end_RSA = trained(start_RSA, key_R, recipe, steps=STEPS, rate=rate, age=age)
            found = {"accuracy": accuracy(end_RSA), "start": accuracy(start_RSA)}
            frames.append(pd.DataFrame({"seed": range(len(key_R)), "recipe": recipe, "age": age, **found}))
    return pd.concat(frames)


def table() -> Table:
    """Return a row per run, seed, recipe and age of the data."""
    return made_twice(NAME, make, SEEDS, {"steps": STEPS, "cloned": CLONED})


EXPERIMENT = Experiment(
    NAME,
    question=(
        "Does an off-policy phase behind a cold start lose with the age of its data, and beat the start?"
    ),
    source="ChartSketcher: a cold start, then off-policy RL on sketches",
    differs="tables of 12 prompts with 16 answers, 10 steps of cloning; no charts, no sketches, no model",
    compute=table,
    keys=("run", "seed", "recipe", "age"),
    metrics=("accuracy", "start"),
    margins={"accuracy": MARGIN},
    figure=Plot("final by dial", x="age", y="accuracy", arm=("recipe",), x_label="age (updates)"),
    systems={"ChartSketcher": Part()},
)


@EXPERIMENT.claim(
    "aged-data-still-beat-the-cold-start",
    statement="At every age both GRPO and DPO end above the cold start by 0.02 of accuracy.",
)
def beats(table: pd.DataFrame) -> Evidence:
    """Return the evidence of every recipe and age, in both runs."""
    found = {
        f"{recipe}, age {age}, {run}": x_R - level(table, "start", {"recipe": recipe, "age": age})[run]
        for recipe in RECIPES
        for age in AGES
        for run, x_R in level(table, "accuracy", {"recipe": recipe, "age": age}).items()
    }
    return must_exceed(found, MARGIN, "gain over the start less 0.02")


def _lost(table: pd.DataFrame, recipe: str) -> Evidence:
    sides = [{"recipe": recipe, "age": age} for age in (AGES[0], AGES[-1])]
    return must_exceed(difference(table, "accuracy", *sides), MARGIN, "accuracy lost to age less 0.02")


@EXPERIMENT.claim(
    "grpo-loses-with-the-age-of-its-data-behind-a-cold-start",
    statement="Behind a cold start GRPO ends 0.02 lower on data 200 updates old than on fresh ones.",
)
def grpo_loses(table: pd.DataFrame) -> Evidence:
    """Return the evidence about age 0 less age 200."""
    return _lost(table, "grpo")


@EXPERIMENT.claim(
    "dpo-loses-with-the-age-of-its-data-behind-a-cold-start",
    statement="Behind a cold start DPO ends 0.02 lower on data 200 updates old than on fresh ones.",
)
def dpo_loses(table: pd.DataFrame) -> Evidence:
    """Return the evidence about age 0 less age 200."""
    return _lost(table, "dpo")
