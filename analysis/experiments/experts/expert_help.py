"""Where right answers are rare: experts' answers, retries and teachers beside GRPO, every arm tuned.

The base model solves running sums of eight digits once in 200 answers, or sorts ten digits once in 35.
There are two experts: a model that errs at a tenth of the steps, and one that is always right but writes
complements in place of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from analysis.arena.tasks import task
from analysis.lab import Frame, Part, arm, ask, asks, inside, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.tuned_training import Family, Way, with_recipe
from testbed.config.run import Run

OWN = replace(
    TINY, task_args=(("digits", 8),), prompts=4, steps=300, log_every=30, teacher_noise=0.45,
    evaluation_prompts=128,
)  # fmt: skip
ERRING: dict[str, Any] = {"teacher": "trained", "teacher_args": (("noise", 0.1), ("steps", 600))}
LONGER = replace(task("sorted"), steps=900, log_every=45)
TAUGHT, LEARNED = replace(OWN, **ERRING), replace(LONGER, **ERRING)
STYLED = replace(OWN, task="styled-sum")
MISJUDGED = replace(STYLED, task_args=(*OWN.task_args, ("misjudged", 0.1)))
"""The checker that locates a first error misjudges a tenth of the tokens."""
OTHER = "other style: "
"""Prefix of arms beside the expert that writes complements."""
IN_ORDER = "sorted: "
"""Prefix of arms that sort ten digits, where base models differ less in what they can learn."""
SLOWER, RATES = (5.6e-4, 1e-3, 1.8e-3), (3e-3, 5.6e-3, 1e-2)
"""First rates of slower arms, and of those that are tuned by `well`."""
well = partial(Way, rates=RATES, pilots=32)
"""Arms of which a third of the runs fails, so that few pilots mislead."""


def guided(start: Run, guide: str, knob: str = "count", **fields: Any) -> Callable[[float], Run]:
    """Return the run with this guide as a function of its knob."""
    return lambda value: replace(start, guide=guide, guide_args=((knob, value),), **fields)


GRADED = replace(LONGER, verifier="steps")
COUNTS, STEPS = (1, 2, 4, 6), (10, 25, 50, 100, 200)
WEIGHTS = (0.03, 0.1, 0.3, 0.6, 0.9)
LOWER = (0.003, 0.01, *WEIGHTS)
slower_way = partial(Way, rates=SLOWER, pilots=4)
WAYS: Mapping[str, Way] = {
    "grpo": well(with_recipe(OWN, "grpo")),
    "sft": well(with_recipe(TAUGHT, "sft")),
    "anchors": well(guided(TAUGHT, "rescue"), COUNTS, True),
    "dgrpo": well(with_recipe(TAUGHT, "dgrpo", "coefficient"), (0.01, 0.03, 0.1, 0.3, 1)),
    "rubrics": well(guided(TAUGHT, "rescue", "most", verifier="steps"), (0, 0.25, 0.5, 0.75, 0.99), True),
    "retries": well(lambda _: replace(OWN, prefix="retry")),
    "amplified retries": well(with_recipe(OWN, "r3l", "alpha", prefix="retry"), (1, 1.5, 3, 6, 12)),
    f"{OTHER}grpo": well(with_recipe(STYLED, "grpo")),
    f"{OTHER}sft": well(with_recipe(STYLED, "sft")),
    f"{OTHER}sft, then grpo": well(with_recipe(STYLED, "sft_then_grpo", "step"), STEPS),
    f"{OTHER}whole answers": well(guided(STYLED, "rescue"), COUNTS, True),
    f"{OTHER}splices": well(guided(STYLED, "splice"), COUNTS, True),
    f"{OTHER}erring splices": well(guided(MISJUDGED, "splice"), COUNTS, True),
    f"{IN_ORDER}grpo": slower_way(with_recipe(LEARNED, "grpo")),
    f"{IN_ORDER}sft": slower_way(with_recipe(LEARNED, "sft")),
    f"{IN_ORDER}sft, then grpo": slower_way(with_recipe(LEARNED, "sft_then_grpo", "step"), STEPS),
    f"{IN_ORDER}fixed": slower_way(with_recipe(LEARNED, "chord", "peak+valley"), LOWER),
    f"{IN_ORDER}chord-phi": slower_way(with_recipe(LEARNED, "chord", "peak+valley", ("phi", "on")), LOWER),
    f"{IN_ORDER}graded": slower_way(lambda _: GRADED),
    f"{IN_ORDER}graded, plain": slower_way(guided(GRADED, "insert"), COUNTS, True),
    f"{IN_ORDER}graded, bent": slower_way(guided(GRADED, "insert", recipe="tempsamp"), COUNTS, True),
}  # fmt: skip
EXPERTS = Family(WAYS)


SEEDS, FIRST, FRESH, MORE, DIVERSE = 128, 32, 20_000, 0.02, 1.135
"""Seeds of a run, and of CHORD's arms; first seed on graded rewards; margin of accuracy or pass@4; SCOPE's
factor of diversity. Margins were set before the table was made."""
FREE = "val/accuracy_difficulty_0"
"""Accuracy when both styles count as right."""
METRICS = ("accuracy", "start", "best", "area", FREE, "last val/pass@4", "val/entropy", "val/kl_start_k3")


SORTED = [name for name in EXPERTS.ways if name.startswith(IN_ORDER)]
MIXED, GRADES, AGAIN = SORTED[:-3], SORTED[-3:], 30_000
"""Seeds of CHORD's arms, tuned again on more pilots and run on unused seeds; seeds on graded rewards."""
OPEN, MORE_SEEDS = ("grpo", "dgrpo", "rubrics"), 512
STYLES, MOST_SEEDS = ("other style: whole answers", "other style: erring splices"), 640
"""Arms of claims that 128 + 128 seeds left open, and their seeds of a run."""


EXPERIMENT = EXPERTS.experiment(
    METRICS, MOST_SEEDS, (
        ((), SEEDS), (OPEN, MORE_SEEDS), (STYLES, MOST_SEEDS), (MIXED, FIRST, AGAIN), (GRADES, SEEDS, FRESH),
    ),
    question="What does an expert's help add where a base model is seldom right, every arm at its best?",
    source="CHORD (2025), arXiv:2508.11408, and the sources of the other arms, as each claim says",
    differs="a transformer of 4,000 weights on running sums of eight digits, right once in 200, or of 7,000 "
    "that sorts ten digits, right once in 35; 32 rollouts a step; the expert errs at a tenth of its "
    "steps, or is right where the source has ground truth; rubrics are right steps; a checker finds the "
    "first error; one kind of prompt; the number of right answers in a group is tuned, the knee of bent "
    "rewards is not",
    margins={"accuracy, pass@4 or area": MORE, "factor of entropy": DIVERSE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of a transformer of 4,000 weights on "
        "running sums of eight digits; beside GRPO and retries from the first error stand arms with an "
        "expert that errs at a tenth of its steps: imitated (SFT), shown in failing groups (anchors) or "
        "followed token by token (dGRPO), and rewards by right steps (rubrics); a colon "
        "marks arms with a right expert of another style, who replaces failures by whole answers or from "
        "their first error on (splices; erring: by a checker that misjudges a tenth of the tokens), and arms "
        "that sort ten digits, with CHORD's mixture, or rewards by right steps (graded) and right answers in "
        "all groups (plain, bent)."),
    systems={
        "CHORD": Part(
            "an expert that is right on a third of the prompts where GRPO ends at .94", ("chord-beats-*",)
        ),
        "RGR-GRPO": Part(
            "graded rewards and the expert in failing groups; no rubrics in words; the gain over GRPO comes "
            "from failed runs, 14 % below 0.1 against 20 %: the median over seeds gains 0.006, and half of "
            "the runs end with a pass@4 near 1",
            ("rubrics-*",),
        ),
        "TempSamp-R1": Part("GRPO ends at .92, which leaves little to gain", ("bent-*",)),
        "SCOPE (Recycling Failures)": Part(
            "a checker without error, or one that misjudges a tenth of the tokens; entropy of all answers, "
            "not only of right ones; GRPO without any help ends above splices and whole answers",
            ("splices-end-above-*", "splices-stay-*", "erring-splices-*"),
        ),
        "SOPHIA": Part(claims=("splices-end-above-imitation-and-grpo",)),
        "R³L": Part(
            "retries from the checker's first error, without reflection in words; 15 % of runs end below "
            "0.1 (GRPO: 20 %); the median over seeds gains 0.04",
            ("amplif*",),
        ),
        "dGRPO (long-context)": Part(
            "answers of eight tokens, no long contexts; 10 % of runs end below 0.1 (GRPO: 20 %), and the "
            "median over seeds gains 0.009",
            ("a-teachers-term-*",),
        ),
    },
)  # fmt: skip

CHORD = "Zhang et al. (2025), CHORD, arXiv:2508.11408"
asks(EXPERIMENT,
    ("chord-beats-grpo", "On ten digits in order CHORD-phi ends 900 steps 0.02 more accurate than GRPO.",
     f"{IN_ORDER}chord-phi", IN_ORDER + "grpo"),
    ("chord-beats-imitation", "On ten digits in order CHORD-phi ends 900 steps 0.02 more accurate than "
     "imitation.", f"{IN_ORDER}chord-phi", IN_ORDER + "sft"),
    ("chord-beats-imitation-then-rl", "On ten digits in order CHORD-phi ends 900 steps 0.02 more accurate "
     "than imitation that is followed by GRPO.", f"{IN_ORDER}chord-phi", IN_ORDER + "sft, then grpo"),
    ("chord-beats-a-constant-mixture", "On ten digits in order CHORD-phi ends 900 steps 0.02 more accurate "
     "than a mixture of constant weight.",
     f"{IN_ORDER}chord-phi", IN_ORDER + "fixed"),
    source=CHORD, by=MORE,
)  # fmt: skip
WHOLE, SPLICES = f"{OTHER}whole answers", f"{OTHER}splices"
WRONG_SPLICES = f"{OTHER}erring splices"
ERRING_CHECKER = "With a checker of steps that misjudges a tenth of the tokens,"
TEMPSAMP = "TempSamp-R1 (2025), arXiv:2509.18056"
SCOPE = "SCOPE (2026), Recycling Failures, arXiv:2602.24110"
R3L = "R3L; shiweijiezero/R3L d503f6c, docs"
DGRPO = "dGRPO (2026), arXiv:2605.12227, abstract only"
ACCURACY = "accuracy"
asks(EXPERIMENT,
    ("rubrics-with-guidance-end-above-grpo", "Rewards for right steps with the expert in failing groups end "
     "0.02 more accurate than GRPO.", "rubrics", "grpo", MORE, ACCURACY, "RGR-GRPO (2025)"),
    ("rubrics-with-guidance-raise-pass-at-4-over-guidance", "Rewards for right steps with the expert in "
     "failing groups end with a pass@4 0.02 higher than the expert in failing groups alone.",
     "rubrics", "anchors", MORE, "last val/pass@4",
     "RGR-GRPO (2025)"),
    ("bent-advantages-end-above-grpo", "On ten digits in order with graded rewards, bent advantages end 900 "
     "steps 0.02 more accurate than GRPO, at the number of right answers in every group that is best for "
     "them.", f"{IN_ORDER}graded, bent", f"{IN_ORDER}graded", MORE, ACCURACY, TEMPSAMP),
    ("bent-advantages-end-above-plain-ones", "On ten digits in order with graded rewards, bent advantages "
     "end 900 steps 0.02 more accurate than plain ones, each with the number of right answers in every group "
     "that is best for it.", f"{IN_ORDER}graded, bent", f"{IN_ORDER}graded, plain", MORE, ACCURACY,
     TEMPSAMP),
    ("splices-end-above-whole-answers", "Beside an expert of another style, repairs of failures from their "
     "first error on end 0.02 more accurate, where either style is right, than the expert's whole answers in "
     "their place.", SPLICES, WHOLE, MORE, FREE, SCOPE),
    ("splices-end-above-whole-answers-on-all-prompts", "Over all prompts, half of which ask for the own "
     "style, splices end 0.02 more accurate than whole answers; both have the settings that are best there.",
     SPLICES, WHOLE, MORE, ACCURACY, SCOPE),
    ("erring-splices-end-above-whole-answers", f"{ERRING_CHECKER} splices end 0.02 more accurate, where "
     "either style is right, than the expert's whole answers.", WRONG_SPLICES, WHOLE, MORE, FREE, SCOPE),
    ("erring-splices-end-above-whole-answers-on-all-prompts", f"{ERRING_CHECKER} splices end 0.02 more "
     "accurate over all prompts than whole answers; both have the settings that are best there.",
     WRONG_SPLICES, WHOLE, MORE, ACCURACY, SCOPE),
    ("splices-end-above-imitation-and-grpo", "Failures that keep their first part and get a right second "
     "part end 0.02 more accurate over both kinds of prompts than supervised learning on the expert's "
     "answers, and than GRPO.", SPLICES,
     (f"{OTHER}sft", f"{OTHER}grpo"), MORE, ACCURACY, "SOPHIA (2025)"),
    ("amplified-retries-end-above-grpo", "Retries from the first error with amplified successes end 0.02 "
     "more accurate than GRPO.", "amplified retries", "grpo", MORE, ACCURACY, R3L),
    ("amplification-adds-to-retries", "Retries from the first error with amplified successes end 0.02 more "
     "accurate than retries in GRPO.",
     "amplified retries", "retries", MORE, ACCURACY, R3L),
    ("a-teachers-term-ends-above-sparse-grpo", "GRPO with an on-policy distillation term ends 0.02 more "
     "accurate than GRPO.", "dgrpo", "grpo", MORE, ACCURACY, DGRPO),
    ("splices-stay-nearer", "Splices end with a smaller KL to the start than whole answers of the expert.",
     SPLICES, WHOLE, 0.0, "val/kl_start_k3", SCOPE, {"below": True}),
)  # fmt: skip


def strayed(table: Frame) -> pd.Series:
    """Return the distance of a run's final accuracy from the median of its arm."""
    return (table["accuracy"] - table.groupby("arm")["accuracy"].transform("median")).abs()


ask(EXPERIMENT, "a-teachers-term-brings-seeds-together", "Final accuracies of GRPO with an on-policy "
    "distillation term lie 0.02 nearer to their median over seeds than without.", "grpo", "dgrpo", MORE,
    strayed, DGRPO, typical="median")  # fmt: skip


def working(table: Frame) -> str:
    """Return "" where both arms are right on most prompts: a wrong model's entropy is not diversity."""
    middle = {name: arm(table, FREE, {"arm": name}).median() for name in (SPLICES, WHOLE)}
    poor = [f"{name} at {x:.2f}" for name, x in middle.items() if x < 0.5]
    return f"wrong on most prompts: {', '.join(poor)}" if poor else ""


ask(EXPERIMENT, "splices-stay-more-diverse", "Splices end with 13.5 % more entropy, of right and wrong "
    "answers, than whole answers of the expert.", SPLICES, WHOLE, outcome="val/entropy", source=SCOPE,
    times=DIVERSE, gates={"tuned": inside(arm=(SPLICES, WHOLE)), "headroom": working})  # fmt: skip
