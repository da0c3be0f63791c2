"""Self-distillation in the toy LLM: what a student who sees the solution teaches, and in how many tokens."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.pilots import inside
from analysis.worlds.teacher_ways import RESPONSES, TAUGHT
from analysis.worlds.tuned_training import PILOTS

NAME = "teacher-training"
SEEDS, LEVEL, FEWER, MORE, NEARLY = 32, 0.5, 4.0, 0.02, 0.9
"""Seeds of a run; accuracy to be reached; the least factor of tokens that the source promises; accuracy that
counts as higher; share of an arm's runs that are to get there. Set before the table was made."""
REACHED = f"rollouts_to {LEVEL:g}"
METRICS = ("accuracy", "start", "area", "best", REACHED)
ARMS = ("grpo", "opsd", "opsd, nothing shown")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds.

    A run that never gets there is taken to get there with its last response.
    """
    found = TAUGHT.table(METRICS, seeds, ARMS)
    found["arrives"] = found[REACHED].notna().astype(int)
    found[REACHED] = found[REACHED].fillna(RESPONSES)
    return found


def arriving(table: pd.DataFrame) -> str:
    """Return which of the compared arms has too many runs that never get there; "" for none."""
    share = table[table["arm"].isin(ARMS[:2])].groupby("arm")["arrives"].mean()
    return "; ".join(f"{x:.2f} of {arm} arrive" for arm, x in share.items() if x < NEARLY)


EXPERIMENT = Experiment(
    question="How many tokens does a toy LLM save that learns from itself with the solution in view?",
    source="Self-Distilled Reasoner (OPSD, 2026)",
    differs=(
        "transformers of 4,000 weights; six sums modulo 4, of six tokens whoever writes them; the teacher is "
        "the model at the start, and the loss the reverse KL over all tokens"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS, "responses": RESPONSES}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", "arrives", *METRICS),
    margins={"accuracy to be reached": LEVEL, "factor of tokens": FEWER, "accuracy": MORE},
    figure=Plot(
        "strips",
        x=f"{REACHED}: responses to an accuracy of {LEVEL:g}",
        y="arm",
        says="Shows the responses, of six tokens each, after which transformers of 4,000 weights are right "
        "on half of the held-out sums: by GRPO in groups of 8, or by distillation of one response a prompt "
        "from the model at the start that sees the solution (OPSD) or does not; rates and prompts a step are "
        "each arm's best on pilot seeds, and 1,600 stands for runs that never get there.",
    ),
    systems={
        "OPSD (Self-Distilled Reasoner)": Part(
            "responses of equal length, so that none is saved by shorter ones",
            ("self-distillation-needs-a-quarter-of-the-tokens",),
        )
    },
)


EXPERIMENT.claim(
    "self-distillation-needs-a-quarter-of-the-tokens",
    "From itself with the solution in view, by one response a prompt, a model reaches an accuracy of 0.5 in "
    "at most a quarter of the tokens that GRPO takes, in the median over seeds.",
    gates={"tuned": inside(arm=ARMS[:2]), "headroom": arriving},
).compare(
    REACHED,
    {"arm": "opsd"},
    {"arm": "grpo"},
    times=1 / FEWER,
    below=True,
    typical="median",
    off={"arm": "opsd, nothing shown"},
)

EXPERIMENT.claim(
    "self-distillation-ends-above-grpo",
    "After 1,600 responses it ends 0.02 more accurate than GRPO.",
    gates={"tuned": inside(arm=ARMS[:2])},
).compare("accuracy", {"arm": "opsd"}, {"arm": "grpo"}, by=MORE, off={"arm": "opsd, nothing shown"})
