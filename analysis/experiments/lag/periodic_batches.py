"""Periodic batches, and baselines without a critic: what each recipe keeps, all tuned.

The tasks are the arena's: running sums from periodic batches, guesses from fresh ones.
`python -m analysis.experiments.lag.periodic_batches` chooses rates and knobs, arm by arm.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.lab import Part, Plot
from analysis.worlds.pilots import asks
from analysis.worlds.tuned_training import Family, Way, with_recipe

GUESS = task("guess")
"""Where the greedy response is right as often as a sampled one, on .37 of prompts; on sums it is right on .87
and a sampled one on .003, which no language model is like."""
PERIODIC = replace(task("sums"), staleness="periodic", lag=25, steps=600, log_every=30)
"""Twelve generations of 51 batches each in 600 steps, which is lag 25 in the mean."""
CLIPS, BETAS, CAPS = (0.1, 0.2, 0.5, 0.9, 3.0), (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0), (1, 2, 4, 8, 32)
SLOWER = (5.6e-4, 1e-3, 1.8e-3)
WAYS: Mapping[str, Way] = {
    "remax": Way(with_recipe(GUESS, "remax", "kappa"), (0.0, 1e-4, 1e-3, 1e-2, 0.1), True),
    "reinforce, mean baseline": Way(with_recipe(GUESS, "reinforce")),
    "ppo": Way(with_recipe(GUESS, "ppo", "lam", critic="head"), (0.5, 0.8, 0.95, 0.99, 1.0), True),
    "periodic grpo": Way(
        with_recipe(PERIODIC, "grpo", "eps_low+eps_high"), CLIPS, rates=SLOWER, pilots=8
    ),
    "periodic oapl": Way(with_recipe(PERIODIC, "oapl", "beta2"), BETAS, rates=SLOWER, pilots=8),
    "periodic tis": Way(with_recipe(PERIODIC, "tis", "cap"), CAPS, rates=SLOWER, pilots=8),
}  # fmt: skip
BATCHES = Family(WAYS, Path(__file__).with_suffix(".csv"))
OLD = tuple(name for name in WAYS if name.startswith("periodic"))
SEEDS, FEWER, FRESH, MORE, LESS = 48, 32, 20_000, 0.02, 0.05
"""Seeds of a run, of which periodic arms have fewer, so much higher ones; accuracy that counts as gained, and
as lost. Set before the table was made."""

EXPERIMENT = BATCHES.experiment(
    ("accuracy", "area", "val/entropy", "max actor/grad_norm"),
    SEEDS,
    (((), SEEDS), (OLD, FEWER, FRESH)),
    question="What do recipes keep where weights are sent twelve times in 600 steps, or without a critic?",
    source="OAPL (2026), arXiv:2602.19362, and the sources of the other arms, as each claim says",
    differs=(
        "toy transformers; running sums of sixteen digits where weights are sent every 51 steps, guesses on "
        "fresh data"
    ),
    margins={"accuracy gained": MORE, "accuracy lost": LESS},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers, each arm at its best setting: periodic arms write "
        "sums of sixteen digits with weights sent to the engine every 51 steps, by GRPO, truncated "
        "importance sampling (TIS) or OAPL, which regresses log-ratios on advantages; the others guess from "
        "fresh data, by PPO with a critic or REINFORCE with the greedy response (ReMax) or the group's mean "
        "as baseline.",
    ),
    systems={
        "OAPL": Part(
            "one run length; no lag above 400 steps, no count of generations, no pass@k",
            ("oapl-ends-above-grpo-on-periodic-batches", "oapl-ends-above-tis-on-periodic-batches"),
        ),
        "ReMax": Part("no memory or time is measured", ("remax-ends-as-high-as-ppo",)),
    },
)
SOURCE = "Ritter et al. (2026), OAPL, arXiv:2602.19362"
asks(EXPERIMENT,
    ("oapl-ends-above-grpo-on-periodic-batches",
     "Where weights are sent twelve times in 600 steps, with a mean lag of 25, OAPL ends 0.02 more accurate "
     "than GRPO at its best clip.", "periodic oapl", "periodic grpo", {"by": MORE, "source": SOURCE}),
    ("oapl-ends-above-tis-on-periodic-batches",
     "There OAPL ends 0.02 more accurate than truncated importance sampling at its best cap.",
     "periodic oapl", "periodic tis", {"by": MORE, "source": SOURCE}),
    ("remax-ends-as-high-as-ppo",
     "On fresh data, with the greedy response as baseline, REINFORCE ends less than 0.05 below PPO.",
     "remax", "ppo", {"by": -LESS, "source": "Li et al. (2023), ReMax, arXiv:2310.10505"}),
)  # fmt: skip


if __name__ == "__main__":
    BATCHES.choose()
