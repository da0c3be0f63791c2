"""A cold start and then RL or preferences on data of a given age: does the reward fall with it?"""

from collections.abc import Iterator

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_keys
from analysis.worlds import cloned_starts as cold_starts
from analysis.worlds.cloned_starts import accuracy, cloned, demonstrations, trained

NAME = "aged-rollouts"
SEEDS, CLONED, STEPS = 24, 10, 400
AGES = (0, 50, 200)
RECIPES = {"grpo": 0.3, "dpo": 1.0}
"""Name: learning rate."""
TITLES = {recipe: recipe.upper() for recipe in RECIPES}
MARGIN = 0.02


def make(key_R: cold_starts.Words) -> Iterator[pd.DataFrame]:
    """Return exact accuracies of the cold start and behind 400 updates on data of each age."""
    start_RSA = cloned(demonstrations(key_R), CLONED)
    for recipe, rate in RECIPES.items():
        for age in AGES:
            end_RSA = trained(start_RSA, key_R, recipe, steps=STEPS, rate=rate, age=age)
            found = {"accuracy": accuracy(end_RSA), "start": accuracy(start_RSA)}
            yield pd.DataFrame({"seed": range(len(key_R)), "recipe": recipe, "age": age, **found})


EXPERIMENT = Experiment(
    NAME,
    question=(
        "Does an off-policy phase behind a cold start lose with the age of its data, and beat the start?"
    ),
    source="ChartSketcher: a cold start, then off-policy RL on sketches",
    differs="tables of 12 prompts with 16 answers, 10 steps of cloning; no charts, no sketches, no model",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "cloned": CLONED}),
    keys=("run", "seed", "recipe", "age"),
    metrics=("accuracy", "start"),
    margins={"accuracy": MARGIN},
    figure=Plot("final by setting", x="age: age (updates)", y="accuracy", arm=("recipe",), names=TITLES),
    systems={"ChartSketcher": Part()},
)


EXPERIMENT.claim(
    "aged-data-still-beat-the-cold-start",
    "At every age both GRPO and DPO end above the cold start by 0.02 of accuracy.",
).compare(
    lambda table: table["accuracy"] - table["start"],
    {"recipe": tuple(RECIPES), "age": AGES},
    by=MARGIN,
    null=0.0,
)


for _name, _recipe in (
    ("grpo-loses-with-the-age-of-its-data-behind-a-cold-start", "grpo"),
    ("dpo-loses-with-the-age-of-its-data-behind-a-cold-start", "dpo"),
):
    EXPERIMENT.claim(
        _name,
        f"Behind a cold start {TITLES[_recipe]} ends 0.02 lower on data 200 updates old than on fresh ones.",
    ).compare("accuracy", {"age": AGES[0]}, {"age": AGES[-1]}, by=MARGIN, over={"recipe": _recipe})
