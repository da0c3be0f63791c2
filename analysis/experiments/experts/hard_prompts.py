"""Easy and hard prompts in one toy LLM: exploration, guidance, retries and stages, and what mixing costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Stop,
    arm,
    happens_mostly,
    median_exceeds,
    median_stays_below,
    paired,
)
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import arms_of
from testbed.config.run import Arguments, Run

SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
MARGIN = 0.1
"""Accuracy on hard prompts without a prefix that counts. Set before the table was made."""
HARD, EASY, PASS = "val/accuracy_difficulty_6", "val/accuracy_difficulty_3", "last val/pass@4"
ALONE, MIXED = (("digits", 6), ("easy", 3), ("share", 0)), (("digits", 6), ("easy", 3), ("share", 0.5))
GUIDED: dict[str, Any] = {"prefix": "teacher", "prefix_args": (("share", 0.5), ("tokens", 5))}
STAGED: dict[str, Any] = {"prefix": "teacher", "prefix_args": (("law", "staged"), ("tokens", 5))}
ARMS: Mapping[str, dict[str, Any]] = {
    "alone": {},
    "mixed": {"task_args": MIXED},
    "entropy": {"recipe_args": (("entropy", 0.01),)},
    "wide": {"recipe_args": (("eps_high", 0.9),)},
    "pass@k": {"recipe": "max_at_k", "recipe_args": (("k", 4),)},
    "guided": GUIDED,
    "guided mixed": {"task_args": MIXED, **GUIDED},
    "stages": {"recipe": "grpo", **STAGED},
    "tree": {"recipe": "tree_opo", **STAGED},
    "retry": {"prefix": "retry"},
    "amplified": {"prefix": "retry", "recipe": "r3l"},
    "amplified, whole": {"prefix": "retry", "prefix_args": (("credit", "whole"),), "recipe": "r3l"},
}


def cells() -> tuple[Run, ...]:
    """Hard prompts alone and with easy ones, under every remedy."""
    start = replace(
        SMALL, task="graded-sum", task_args=ALONE, policy_args=SHAPE, steps=100, log_every=10,
        teacher_noise=0.5, seed=0,
    )  # fmt: skip
    return tuple(replace(start, **fields) for fields in ARMS.values())


EXPERIMENT = Experiment(
    "hard-prompts",
    question="What teaches a toy LLM prompts that it hardly ever gets right, and do easy ones interfere?",
    source="Qu et al. (2026), POPE, arXiv:2601.18779; and the sources of the other arms, as each claim says",
    differs=(
        "a transformer of 4,000 weights; running sums of six digits, easy ones of three; retries begin at "
        "the checker's first error; all arms have the same number of rollouts, 64 a step"
    ),
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("task_args.share", "recipe", "recipe_args", "prefix", "prefix_args", "seed"),
    metrics=(HARD, EASY, f"first {HARD}", PASS, "accuracy", "start", "rollouts", "mean actor/grad_norm",
             "first reward/mean", "reward/mean"),
    margins={"accuracy on hard prompts": MARGIN},
    figure="hard-prompts",
    systems={
        "POPE": Part(
            claims=(
                "exploration-does-not-solve-hard-prompts",
                "easy-prompts-interfere-with-hard-ones",
                "prefixes-lift-interference",
            )
        ),
        "R³L": Part(claims=("suffix-credit-is-calmer-than-whole",)),
        "Tree-OPO": Part(
            "stages in a toy LLM, against the mean of the group; the sibling constraints are not known to us",
            ("tree-baseline-ends-above-the-mean", "staged-training-saturates"),
        ),
    },
)  # fmt: skip
WHERE = arms_of(ARMS, cells(), EXPERIMENT.keys)


def _over(table: pd.DataFrame, value: str, first: str, others: tuple[str, ...], margin: float) -> Evidence:
    """Return the evidence that an arm exceeds each of the others by a margin, in the median over seeds."""
    gains = {name: paired(table, value, WHERE[first], WHERE[name]) for name in others}
    middle = arm(table, value, WHERE[first]).median()
    note = f"median over seeds of the gain in {value} of {first} ({middle:.3f}), less {margin:g}"
    return median_exceeds(gains, margin, note)


@EXPERIMENT.claim()
def exploration_does_not_solve_hard_prompts(table: pd.DataFrame) -> Evidence:
    """An entropy bonus, an upper clip of 0.9 and pass@4 as the objective each end less than 0.1 above GRPO on
    hard prompts, in the median over seeds.
    """
    gains = {name: paired(table, HARD, WHERE[name], WHERE["alone"]) for name in ("entropy", "wide", "pass@k")}
    return median_stays_below(gains, MARGIN, "0.1 less the median over seeds of the accuracy gained")


@EXPERIMENT.claim()
def easy_prompts_interfere_with_hard_ones(table: pd.DataFrame) -> Evidence:
    """With every second prompt easy GRPO ends 0.1 less accurate on hard prompts than on hard ones alone, at
    equal numbers of rollouts, in the median over seeds.
    """
    return _over(table, HARD, "alone", ("mixed",), MARGIN)


@EXPERIMENT.claim()
def prefixes_lift_interference(table: pd.DataFrame) -> Evidence:
    """In that mix prefixes end 0.1 more accurate on hard prompts than none, in the median."""
    return _over(table, HARD, "guided mixed", ("mixed",), MARGIN)


@EXPERIMENT.claim(source="R3L; shiweijiezero/R3L d503f6c, docs")
def suffix_credit_is_calmer_than_whole(table: pd.DataFrame) -> Evidence:
    """Amplified retries have smaller gradients where what they kept is left out, on most seeds."""
    return _over(table, "mean actor/grad_norm", "amplified, whole", ("amplified",), 0.0)


@EXPERIMENT.claim(source="Huang et al. (2025), Tree-OPO, arXiv:2509.09284")
def tree_baseline_ends_above_the_mean(table: pd.DataFrame) -> Evidence:
    """From staged prefixes the tree's advantages end more accurate on hard prompts than the mean of the
    group, in the median over seeds.
    """
    return _over(table, HARD, "tree", ("stages",), 0.0)


@EXPERIMENT.claim(source="Huang et al. (2025), Tree-OPO, arXiv:2509.09284")
def staged_training_saturates(table: pd.DataFrame) -> Evidence:
    """From staged prefixes the reward of the batch ends above 0.8, so that most groups have little left to
    tell, while hard prompts without a prefix stay below 0.5, on most seeds.
    """
    reward, hard = (arm(table, value, WHERE["tree"]) for value in ("reward/mean", HARD))
    note = f"share of seeds; medians {reward.median():.3f} and {hard.median():.3f}"
    return happens_mostly((reward > 0.8) & (hard < 0.5), note)
