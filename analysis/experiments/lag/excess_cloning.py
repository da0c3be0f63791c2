"""How long to clone before RL: the accuracy that later training reaches, by reward and by recipe."""

from collections.abc import Iterator

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_keys
from analysis.worlds import cloned_starts as cold_starts
from analysis.worlds.cloned_starts import accuracy, cloned, demonstrations, trained

NAME = "excess-cloning"
SEEDS, STEPS = 24, 200
CLONED = (0, 10, 100, 1000)
ARMS = ("cloning alone", "GRPO", "GRPO, fine rewards", "DPO")
MARGIN = 0.05


def make(key_R: cold_starts.Words) -> Iterator[pd.DataFrame]:
    """Return exact accuracies after training from every length of cloning; DPO's pairs are the start's."""
    shown_RSA = demonstrations(key_R)
    for steps in CLONED:
        start_RSA = cloned(shown_RSA, steps)
        ends = (
            start_RSA,
            trained(start_RSA, key_R, "grpo", steps=STEPS, rate=0.3),
            trained(start_RSA, key_R, "grpo", steps=STEPS, rate=0.3, reward_A=cold_starts.fine()),
            trained(start_RSA, key_R, "dpo", steps=STEPS, rate=1.0, age=STEPS),
        )
        for name, end_RSA in zip(ARMS, ends, strict=True):
            found = {"seed": range(len(key_R)), "cloned": steps, "arm": name, "accuracy": accuracy(end_RSA)}
            yield pd.DataFrame(found)


EXPERIMENT = Experiment(
    question="Does cloning for longer leave less for RL to explore?",
    source="SFT to RL for vulnerability detection: a study of SFT, preferences and GRPO in one pipeline",
    differs=(
        "tables of 12 prompts with 16 answers, 3 demonstrations each of which 3 in 10 are right; 200 "
        "updates at one rate for all lengths, set by hand; DPO on the start's own pairs; no ORPO"
    ),
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS}),
    keys=("run", "seed", "cloned", "arm"),
    metrics=("accuracy",),
    margins={"accuracy": MARGIN},
    figure=Plot(
        "final by setting",
        x="cloned: steps of cloning",
        y="accuracy",
        arm=("arm",),
        says="Shows exact accuracy in tables of 12 prompts with 16 answers after so many steps of cloning "
        "demonstrations, 3 in 10 of them right: as cloned (cloning alone), or after 200 more updates of "
        "GRPO with a reward for the right answer alone, of GRPO with one that grows towards it (fine "
        "rewards), or of DPO on pairs that the clone wrote.",
    ),
    systems={
        "SFT→RL for vulnerability detection": Part(
            "rates set by hand; GRPO against DPO behind little cloning"
        )
    },
)

EXPERIMENT.claim(
    "excess-cloning-lowers-what-grpo-reaches",
    "After 1000 steps of cloning GRPO ends 0.05 lower than after 10.",
).compare("accuracy", {"cloned": 10}, {"cloned": 1000}, by=MARGIN, over={"arm": "GRPO"})

EXPERIMENT.claim(
    "grpo-ends-above-offline-dpo-behind-little-cloning",
    "After 10 steps of cloning GRPO ends 0.05 above DPO on the cloned policy's own pairs.",
).compare("accuracy", {"arm": "GRPO"}, {"arm": "DPO"}, by=MARGIN, over={"cloned": 10})
