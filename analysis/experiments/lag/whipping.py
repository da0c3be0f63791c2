"""The whipping effect: do stale data shorten answers where the reward does not care about their length?"""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, Stop, median_stays_below, paired
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run, grid

SOURCE = "ReMix (2025), arXiv:2507.06892: the whipping effect, off-policy drift prefers shorter responses"
LAGS = (4, 16, 64)
LENGTH = "val/response_length"
BASE = replace(SMALL, task="length", task_args=(), teacher_noise=0.2, steps=200)
RECIPES = {
    "grpo": "GRPO's answers",
    "vcpo": "answers under truncated sequence weights (VCPO), whose size falls with length,",
    "remix": "ReMix's answers",
}


def cells() -> tuple[Run, ...]:
    """Three recipes on the length task, on-policy and at three lags."""
    return grid(BASE, recipe=list(RECIPES), lag=[0, *LAGS], seed=[0])


EXPERIMENT = Experiment(
    "whipping",
    question="Do stale data shorten answers where the reward does not care about their length?",
    source=SOURCE,
    differs=(
        "a task whose reward is length-neutral, so that nothing but the objective can move the length; one "
        "learning rate; lag in place of replay, but for ReMix, which has both"
    ),
    cells=cells,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=("recipe", "lag", "seed"),
    metrics=("accuracy", "start", "length_collapsed", LENGTH, f"first {LENGTH}", "val/entropy"),
    figure=Plot(
        "final by setting",
        x="lag: lag (optimizer steps)",
        y=f"{LENGTH}: length of answers (tokens)",
        arm=("recipe",),
    ),
    systems={
        "ReMix (Squeeze the Soaked Sponge)": Part(
            "the whipping effect of lag in a language model, not on the token tree; rollouts saved: see arena"
        )
    },
)


def _shorter(table: pd.DataFrame, recipe: str, lags: tuple[int, ...]) -> Evidence:
    """Return the evidence about the change in final length, paired by seed, a group per lag."""
    here = {"recipe": recipe}
    change = {f"lag {lag}": paired(table, LENGTH, {**here, "lag": lag}, {**here, "lag": 0}) for lag in lags}
    middle = table[table["recipe"] == recipe].groupby("lag")[LENGTH].median()
    lengths = ", ".join(f"{length:.2f} at lag {lag}" for lag, length in middle.items())
    return median_stays_below(change, 0.0, f"tokens by which answers are shorter; median lengths {lengths}")


for _recipe, _whose in RECIPES.items():
    for _name, _lags, _where in (
        ("every-lag", LAGS, "lags 4, 16 and 64"),
        ("lag-64", LAGS[-1:], "lag 64"),
    ):
        EXPERIMENT.claim(
            f"{_name}-shortens-the-answers-of-{_recipe}",
            statement=(
                f"Under a length-neutral reward {_whose} are shorter at {_where} than on-policy, on most "
                "seeds."
            ),
        )(partial(_shorter, recipe=_recipe, lags=_lags))
