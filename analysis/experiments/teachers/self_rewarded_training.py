"""Self-Rewarding PPO in the toy LLM: after few demonstrations, RL on log(SFT/base) at prompts without any."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.pilots import ask, inside
from analysis.worlds.self_rewards import LESSONS, SELF
from analysis.worlds.tuned_training import PILOTS

NAME = "self-rewarded-training"
SEEDS, MORE = 32, 0.02
"""The margin is accuracy at unseen prompts. Set before the table was made."""
METRICS = ("accuracy", "start", "best", "val/entropy")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    return SELF.table(METRICS, seeds)


EXPERIMENT = Experiment(
    question="Does RL on log(SFT/base) at prompts without demonstrations end above SFT at unseen prompts?",
    source="Self-Rewarding PPO (2025): reward log(pi_SFT/pi_base), on-policy",
    differs=(
        "transformers of 4,000 weights on six running sums; GRPO's advantage of a whole response's reward "
        "in place of the critic; beyond the demonstrations are prompts with digits that these never had"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"lessons": LESSONS, "pilots": PILOTS}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={"accuracy": MORE},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy at unseen prompts of transformers of 4,000 weights on six running sums, "
        "after supervised training on 32 demonstrations of any prompts (few) or of prompts with small digits "
        "alone (easy) and 100 steps of GRPO at fresh prompts: the reward is the log-ratio of the model so "
        "trained to its base, less a tuned multiple of the KL to it; or its log-likelihood without the base; "
        "or the log-ratio of responses to other prompts.",
    ),
    systems={"Self-Rewarding PPO": Part(claims=("self-rewarding-*",))},
)


def gain(table: pd.DataFrame) -> pd.Series:
    """Return accuracy less that of SFT."""
    return table["accuracy"] - table["start"]


for _name, _statement, _arm in (
    ("self-rewarding-ends-above-sft-at-unseen-prompts",
     "From SFT on 32 demonstrations, 100 steps on log(SFT/base) at fresh prompts end 0.02 more accurate at "
     "unseen prompts than SFT alone, in the median over seeds.", "few"),
    ("self-rewarding-ends-above-sft-beyond-its-demonstrations",
     "From SFT on 32 demonstrations of small digits, 100 steps on log(SFT/base) at prompts with all digits "
     "end 0.02 more accurate there than SFT alone, in the median over seeds.", "easy"),
):  # fmt: skip
    EXPERIMENT.claim(_name, _statement, gates={"tuned": inside(arm=_arm)}).compare(
        gain, {"arm": _arm}, by=MORE, null=0.0, off={"arm": f"{_arm}, others' rewards"}
    )

ask(
    EXPERIMENT, "the-base-in-the-reward-helps",
    "Beyond the demonstrations log(SFT/base) as the reward ends 0.02 more accurate than log SFT.",
    "easy", "easy, no base", MORE,
)  # fmt: skip
