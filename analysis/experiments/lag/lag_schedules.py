"""Schedules of equal mean lag in training: effects of the spread of ages around the mean."""

from dataclasses import replace

import pandas as pd

from analysis.lab import Experiment, Frame, Plot, arm
from testbed.config.run import Run, grid

PRESET, LATER = range(16), range(16, 32)
"""Seeds of the claims set before the sweep was run; the later claim is judged on the other seeds."""
MIXED = ("uniform", "periodic")
"""The same ages, either mixed in every batch or equal within a batch."""

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, log_every=5)
"""A token tree that synchronous training solves in 200 steps; every ratio's distribution is known exactly."""
SCHEDULES = ("exact", "periodic", "uniform", "two-point", "geometric")


def cells() -> tuple[Run, ...]:
    """Five age distributions of the same mean, two recipes, two lags and 32 seeds."""
    return tuple(
        cell
        for recipe in ("reinforce", "grpo")
        for cell in grid(replace(TREE, recipe=recipe), staleness=SCHEDULES, lag=[4, 16], seed=range(32))
    )


EXPERIMENT = Experiment(
    question="Does it matter how ages are spread around the same mean?",
    source="this project", cells=cells, fresh=range(1000, 1032), keys=("recipe", "staleness", "lag", "seed"),
    metrics=(
        *("exact/value", "mean exact/value", "mean exact/ess_kish_sequence", "min exact/ess_kish_sequence"),
        *("mean staleness/age_mean_token", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    ),
    figure=Plot(
        "distribution", x="staleness: schedule of ages", y="mean exact/value: mean exact value over the run",
        arm=("recipe", "lag"),
    ),
)  # fmt: skip


AT = {"recipe": "grpo", "lag": 16}
EVEN, SPREAD = {"staleness": "exact"}, {"staleness": "geometric"}


def gain_by_spread(table: Frame) -> pd.Series:
    """Return GRPO's mean value at lag 16 with geometric ages minus that at equal ages, preset seeds."""
    preset, metric = table[~table["seed"].isin(LATER)], "mean exact/value"
    return arm(preset, metric, {**AT, **SPREAD}) - arm(preset, metric, {**AT, **EVEN})


def loss_by_periods(table: Frame) -> pd.Series:
    """Return how much more GRPO loses than REINFORCE when a batch has one age, on the later seeds."""
    later, metric = table[~table["seed"].isin(PRESET)], "mean exact/value"

    def lost(recipe: str) -> pd.Series:
        mixed, equal = (arm(later, metric, {**AT, "recipe": recipe, "staleness": name}) for name in MIXED)
        return mixed - equal

    return lost("grpo") - lost("reinforce")


EXPERIMENT.claim(
    "spread-ages-learn-faster",
    "GRPO on a token tree learns faster with geometric ages than with every sample exactly as old as their "
    "mean, 16 steps: the value averaged over the run is higher.",
    source="this project; set before the sweep was run",
).compare(gain_by_spread, typical="mean")
EXPERIMENT.claim(
    "periodic-ages-hold-the-clip-back",
    "At mean lag 16, ages that are equal within a batch and count up over a period slow GRPO, whose clip "
    "then keeps its center for the period, by more than REINFORCE, against the same ages mixed in every "
    "batch.",
    source="this project, after a look at seeds 0 to 15; judged on seeds 16 to 31",
).compare(loss_by_periods, typical="mean")
