"""The greedy response as a baseline in place of a critic, on the task `guess` with fresh data, tuned.

`python -m analysis.experiments.lag.greedy_baselines` tunes rates and knobs, arm by arm.
"""

from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.lab import Part, Plot
from analysis.worlds.pilots import ask
from analysis.worlds.tuned_training import Family, Way, with_recipe

GUESS = replace(task("guess"), steps=1200)
"""Twice the arena's steps, as both arms still rise after 600. The greedy response is right as often as a
sampled one, on .37 of prompts. On sums it is right on .87 and a sampled one on .003, which is unlike any
language model."""
BASELINES = Family(
    {
        "remax": Way(with_recipe(GUESS, "remax", "kappa"), (0.0, 1e-4, 1e-3, 1e-2, 0.1), True),
        "ppo": Way(with_recipe(GUESS, "ppo", "lam", critic="head"), (0.5, 0.8, 0.95, 0.99, 1.0), True),
    },
    Path(__file__).with_suffix(".csv"),
)
SEEDS, LATER, LESS = 48, 110_000, 0.05
"""Seeds of a run, offset past those of a table of 600 steps; accuracy that counts as lost, set before it."""

EXPERIMENT = BASELINES.experiment(
    ("accuracy", "rise accuracy", "area", "val/entropy", "max actor/grad_norm"), SEEDS, first=LATER,
    question="How much of PPO's accuracy does a baseline without a critic keep on fresh data?",
    source="Li et al. (2023), ReMax, arXiv:2310.10505", differs="toy transformers that guess",
    margins={"accuracy lost": LESS},
    figure=Plot(
        "strips", x="accuracy: final accuracy", y="arm",
        says="Shows final accuracy of toy transformers that guess on fresh data, each arm at its best "
        "setting: PPO with a critic, and REINFORCE with the greedy response as baseline (ReMax).",
    ),
    systems={"ReMax": Part("no memory or time is measured")},
)  # fmt: skip
ask(
    EXPERIMENT, "remax-ends-as-high-as-ppo",
    "On fresh data, with the greedy response as baseline, REINFORCE ends less than 0.05 below PPO.",
    "remax", "ppo", -LESS,
)  # fmt: skip

if __name__ == "__main__":
    BASELINES.choose()
