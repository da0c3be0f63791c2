"""Periodic batches, and baselines without a critic: what each recipe keeps, all tuned."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.batch_arms import BATCHES
from analysis.worlds.pilots import inside
from analysis.worlds.tuned_training import PILOTS

NAME = "periodic-batches"
SEEDS, MORE, LESS = 48, 0.02, 0.05
"""Accuracy that counts as gained, and as lost. Set before the table was made."""
METRICS = ("accuracy", "area", "val/entropy", "max actor/grad_norm")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    return BATCHES.table(METRICS, seeds)


EXPERIMENT = Experiment(
    question="What do recipes keep where weights are sent eight times in 400 steps, or without a critic?",
    source="OAPL (2026), arXiv:2602.19362, and the sources of the other arms, as each claim says",
    differs=(
        "toy transformers; running sums of sixteen digits where weights are sent every 51 steps, guesses on "
        "fresh data"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    old=BATCHES.old,
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
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


def _ask(name: str, statement: str, first: str, second: str, by: float, source: str) -> None:
    """Declare that an arm ends above another by a margin, in the mean."""
    EXPERIMENT.claim(name, statement, source=source, gates={"tuned": inside(arm=(first, second))}).compare(
        "accuracy", {"arm": first}, {"arm": second}, by=by
    )


OAPL = "Ritter et al. (2026), OAPL, arXiv:2602.19362"
for _name, _statement, _first, _second, _by, _source in (
    ("oapl-ends-above-grpo-on-periodic-batches",
     "Where weights are sent eight times in 400 steps, with a mean lag of 25, OAPL ends 0.02 more accurate "
     "than GRPO at its best clip.",
     "periodic oapl", "periodic grpo", MORE, OAPL),
    ("oapl-ends-above-tis-on-periodic-batches",
     "There OAPL ends 0.02 more accurate than truncated importance sampling at its best cap.",
     "periodic oapl", "periodic tis", MORE, OAPL),
    ("remax-ends-as-high-as-ppo",
     "On fresh data, with the greedy response as baseline, REINFORCE ends less than 0.05 below PPO.",
     "remax", "ppo", -LESS, "Li et al. (2023), ReMax, arXiv:2310.10505"),
):  # fmt: skip
    _ask(_name, _statement, _first, _second, _by, _source)
