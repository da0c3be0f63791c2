"""Baselines without a critic on the task `guess` with fresh data, beside PPO; all arms tuned."""

from analysis.arena.tasks import task
from analysis.lab import Part, Plot
from analysis.worlds.pilots import ask
from analysis.worlds.tuned_training import Family, Way, with_recipe

GUESS = task("guess")
"""On this task the greedy response is right as often as a sampled one, on .37 of prompts. On sums it is right
on .87 and a sampled one on .003, which is unlike any language model."""
BASELINES = Family(
    {
        "remax": Way(with_recipe(GUESS, "remax", "kappa"), (0.0, 1e-4, 1e-3, 1e-2, 0.1), True),
        "reinforce, mean baseline": Way(with_recipe(GUESS, "reinforce")),
        "ppo": Way(with_recipe(GUESS, "ppo", "lam", critic="head"), (0.5, 0.8, 0.95, 0.99, 1.0), True),
    },
)
LESS = 0.05  # accuracy that counts as lost; set before the table was made

EXPERIMENT = BASELINES.experiment(
    ("accuracy", "area", "val/entropy", "max actor/grad_norm"), 48,
    question="How much of PPO's accuracy do baselines without a critic keep on fresh data?",
    source="Li et al. (2023), ReMax, arXiv:2310.10505", differs="toy transformers that guess",
    margins={"accuracy lost": LESS},
    figure=Plot(
        "strips", x="accuracy: final accuracy", y="arm",
        says="Shows final accuracy of toy transformers that guess on fresh data, each arm at its best "
        "setting: PPO with a critic, and REINFORCE with the greedy response (ReMax) or the group's mean as "
        "baseline.",
    ),
    systems={"ReMax": Part("no memory or time is measured")},
)  # fmt: skip
ask(
    EXPERIMENT, "remax-ends-as-high-as-ppo",
    "On fresh data, with the greedy response as baseline, REINFORCE ends less than 0.05 below PPO.",
    "remax", "ppo", -LESS,
)  # fmt: skip
