"""Teachers in the toy LLM: the student who sees the solution, and a better model on long chains."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, Stop, arm, happens_mostly, median_exceeds, paired
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import arms_of
from testbed.config.run import Arguments, Run

SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
LEVEL, FEWER = 0.3, 4.0
"""Accuracy to be reached, and the least factor of rollouts that the source promises."""
HIGHER = 0.05
"""Accuracy that counts as higher. Set before the table was made."""
ROLLOUTS = f"rollouts_to {LEVEL:g}"
HINTED: dict[str, Any] = {
    "task": "hinted-sum", "task_args": (("digits", 5), ("modulus", 5)), "teacher_noise": 0.35,
    "warm_start_steps": 1000, "steps": 120, "log_every": 4,
}  # fmt: skip
LONG: dict[str, Any] = {
    "task_args": (("digits", 24), ("modulus", 2)), "teacher_noise": 0.1, "warm_start_steps": 300,
    "steps": 120, "log_every": 12,
}  # fmt: skip
BETTER: dict[str, Any] = {"teacher": "trained", "teacher_args": (("noise", 0.02), ("steps", 600))}
ARMS: Mapping[str, dict[str, Any]] = {
    "grpo": HINTED,
    "opsd": {**HINTED, "recipe": "opd", "teacher": "solution", "teacher_args": (("weights", "present"),)},
    "off-policy": {**HINTED, "recipe": "opd", "recipe_args": (("share", 1),), "teacher": "solution"},
    "long grpo": LONG,
    "long dgrpo": {**LONG, "recipe": "dgrpo", **BETTER},
    "long opd": {**LONG, "recipe": "opd", **BETTER},
    "long sft": {**LONG, "recipe": "sft"},
}


def cells() -> tuple[Run, ...]:
    """Sums with room for the solution, and chains of 24 steps with a better trained teacher."""
    start = replace(SMALL, policy_args=SHAPE, seed=0)
    return tuple(replace(start, **fields) for fields in ARMS.values())


EXPERIMENT = Experiment(
    "teacher-training",
    question="How much sooner, and how much higher, does a toy LLM get with a teacher's opinion?",
    source="Self-Distilled Reasoner (OPSD, 2026); dGRPO (2026), arXiv:2605.12227",
    differs=(
        "a transformer of 4,000 weights; five sums modulo 5 with the solution in the teacher's prompt; 24 "
        "sums modulo 2 with a teacher of the same shape that saw fewer errors"
    ),
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("task", "recipe", "teacher_args", "seed"),
    metrics=("accuracy", "best", "start", "area", ROLLOUTS, "mean actor/grad_norm"),
    margins={"accuracy to be reached": LEVEL, "factor of rollouts": FEWER, "accuracy that counts": HIGHER},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="recipe",
        arm=("teacher_args",),
        panel="task",
        names={"hinted-sum": "five sums, the solution shown", "running-sum": "24 sums, a better teacher"},
        says="Shows final accuracy of a transformer of 4,000 weights by recipe, a row holding all its runs, "
        "on five sums with the solution in the teacher's prompt and on 24 sums with a better "
        "trained teacher: GRPO has the reward alone, OPD the teacher's distribution, on the student's "
        "tokens or, for some runs of the five sums, on the teacher's, dGRPO both (24 sums alone), and SFT "
        "imitates right solutions (24 sums alone).",
    ),
    systems={
        "OPSD (Self-Distilled Reasoner)": Part(
            claims=(
                "self-distillation-needs-a-quarter-of-the-tokens",
                "own-tokens-teach-sooner-than-a-teachers",
            )
        ),
        "dGRPO (long-context)": Part(
            claims=(
                "a-teachers-term-ends-above-grpo-on-long-chains",
                "dgrpo-ends-above-imitation-on-long-chains",
            )
        ),
    },
)
WHERE = arms_of(ARMS, cells(), EXPERIMENT.keys)


def _sooner(table: pd.DataFrame, first: str, second: str, factor: float) -> Evidence:
    """Return the evidence that an arm reaches the level in a share of another's rollouts."""
    found = pd.DataFrame({name: arm(table, ROLLOUTS, WHERE[name]).fillna(np.inf) for name in (first, second)})
    note = f"share of seeds; medians {found[first].median():g} and {found[second].median():g}"
    won = np.isfinite(found[first]) & (factor * found[first] <= found[second])
    return happens_mostly(won, note)


@EXPERIMENT.claim(
    "self-distillation-needs-a-quarter-of-the-tokens", source="Self-Distilled Reasoner (OPSD, 2026)"
)
def self_distillation_needs_a_quarter_of_the_tokens(table: pd.DataFrame) -> Evidence:
    """The student that is its own teacher, with the solution before it, reaches an accuracy of 0.3 in at most
    a quarter of the tokens that GRPO takes, on most seeds.

    Return the evidence of seeds: all responses have five tokens.
    """
    return _sooner(table, "opsd", "grpo", FEWER)


@EXPERIMENT.claim("own-tokens-teach-sooner-than-a-teachers", source="Self-Distilled Reasoner (OPSD, 2026)")
def own_tokens_teach_sooner_than_a_teachers(table: pd.DataFrame) -> Evidence:
    """It gets there in fewer tokens than from the responses of the weights at the start that saw the
    solution, on most seeds.

    Return the evidence of seeds; ties do not count.
    """
    found = {name: arm(table, ROLLOUTS, WHERE[name]).fillna(np.inf) for name in ("opsd", "off-policy")}
    note = "share of seeds; medians " + " and ".join(f"{x.median():g}" for x in found.values())
    return happens_mostly(found["opsd"] < found["off-policy"], note)


EXPERIMENT.claim(
    "a-teachers-term-ends-above-grpo-on-long-chains",
    "On chains of 24 steps a teacher's term ends 0.05 more accurate than GRPO, in the median.",
    source="dGRPO (2026), arXiv:2605.12227 (abstract)",
).compare("accuracy", WHERE["long dgrpo"], WHERE["long grpo"], by=HIGHER)


@EXPERIMENT.claim(
    "dgrpo-ends-above-imitation-on-long-chains", source="dGRPO (2026), arXiv:2605.12227 (abstract)"
)
def dgrpo_ends_above_imitation_on_long_chains(table: pd.DataFrame) -> Evidence:
    """There it ends 0.05 more accurate than on-policy distillation alone, and than supervised learning on
    solutions, in the median over seeds.
    """
    gains = {
        name: paired(table, "accuracy", WHERE["long dgrpo"], WHERE[name]) for name in ("long opd", "long sft")
    }
    return median_exceeds(gains, HIGHER, "median over seeds of the accuracy gained, less 0.05")
