"""Periodic batches of an engine that is as far away as FP8: OAPL, as KARL repeats it, beside GRPO, tuned."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.batch_arms import BATCHES, ON_SORTED
from analysis.worlds.pilots import ask, inside
from analysis.worlds.tuned_training import PILOTS

NAME = "noisy-batches"
SEEDS, FRESH, MORE, LESS = 32, 20_000, 0.02, 0.05
"""Seeds of a run, which begin so far beyond those of other tables; accuracy that counts as gained, and as
lost. Set before the table was made."""
METRICS = ("accuracy", "area", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    return BATCHES.table(METRICS, [seed + FRESH for seed in seeds], ON_SORTED)


EXPERIMENT = Experiment(
    question="Does OAPL end above GRPO where both learn from old batches of an engine as far away as FP8?",
    source="KARL (2026): OAPL on large batches, several times over, without correction of the engine",
    differs=(
        "toy transformers that sort ten digits; weights are sent every 51 of 300 steps; noise of 0.3 on the "
        "engine's logits, 0.024 nats a token at the start, where FP8 in blocks is 0.022 from SmolLM2"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={"accuracy gained": MORE, "accuracy lost": LESS},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers that sort ten digits, each arm at its best rate and "
        "knob: weights are sent to the engine every 51 steps; in noisy arms its logits have noise of 0.3. "
        "OAPL regresses log-ratios on advantages.",
    ),
    systems={
        "KARL": Part(
            "one task, one pass a batch; no agents, no search, no prompts of another kind",
            ("oapl-ends-above-grpo-on-noisy-batches", "oapl-bears-the-noise-of-fp8"),
        )
    },
)

ask(
    EXPERIMENT, "oapl-ends-above-grpo-on-noisy-batches",
    "Where weights are sent every 51 steps to an engine whose logits have noise of 0.3, OAPL ends 0.02 more "
    "accurate than GRPO at its best clip.",
    "noisy oapl", "noisy grpo", MORE,
)  # fmt: skip


def kept(table: pd.DataFrame) -> pd.Series:
    """Return final accuracy less that of the same recipe and seed without noise."""
    calm = table["arm"].str.replace("noisy", "sorted")
    final = table.set_index(["arm", "seed"])["accuracy"]
    return table["accuracy"] - final[pd.MultiIndex.from_arrays([calm, table["seed"]])].to_numpy()


EXPERIMENT.claim(
    "oapl-bears-the-noise-of-fp8",
    "That noise costs OAPL less than 0.05 of final accuracy.",
    gates={"tuned": inside(arm=("noisy oapl", "sorted oapl"))},
).compare(kept, {"arm": "noisy oapl"}, by=-LESS, null=0.0, off={"arm": "noisy grpo"})
