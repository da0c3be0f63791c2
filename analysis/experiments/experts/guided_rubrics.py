"""RGR-GRPO within a short budget, where GRPO's pass@4 has room left: rewards for right steps, and an expert's
answer in groups that fail.
"""

from dataclasses import replace
from functools import partial

from analysis.arena.tasks import task
from analysis.experiments.experts.expert_help import COUNTS, ERRING, MORE, guided
from analysis.lab import Part, asks, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe

SHORT = replace(task("sorted"), steps=60, log_every=6, **ERRING)
"""Ten digits in order from a base right once in 35; afterwards GRPO is right .3 of the time on pilots."""
SEEDS, LATER = 256, 3_000_000
"""Seeds of a run, offset past those of other tables of this task."""
PASSED, ENTROPY = "last val/pass@4", "val/entropy"

RIGHT = (0, 0.25, 0.5, 0.75, 0.99)
"""Shares of right steps up to which a group fails, so that the expert helps."""

way = partial(Way, rates=(1.8e-3, 3e-3, 5.6e-3), pilots=32)
ARMS = Family({
    "grpo": way(with_recipe(SHORT, "grpo")),
    "guidance": way(guided(SHORT, "rescue"), COUNTS, True),
    "rubrics": way(lambda _: replace(SHORT, verifier="steps")),
    "guided rubrics": way(guided(SHORT, "rescue", "most", verifier="steps"), RIGHT, True),
})  # fmt: skip

EXPERIMENT = ARMS.experiment(
    ("accuracy", "area", "start", PASSED, ENTROPY), SEEDS, first=LATER,
    question="Within a short budget, do rubrics with an expert's guidance end above GRPO and above either?",
    source="RGR-GRPO (2025)",
    differs="toy transformers that sort ten digits; rubrics are the right steps, not words; the expert errs "
    "at a tenth of its steps",
    budget="60 steps, for which settings were chosen",
    margins={"accuracy and pass@4": MORE},
    figure=strips(f"{PASSED}: final pass@4", "Shows the share of unseen prompts that one of four answers "
        "solves after 60 steps on ten digits in order, by GRPO on right answers, with an expert's answers in "
        "groups that fail (guidance), with rewards for right steps (rubrics), and with both, each arm at "
        "its best rate and knob; the expert errs at a tenth of its steps."),
    systems={"RGR-GRPO": Part("within 60 steps, on ten digits in order; no rubrics in words")},
)  # fmt: skip

SAID = (
    "After 60 updates on ten digits in order, {} is 0.02 higher with rewards for right steps and the expert "
    "in failing groups than with {}."
)
ALONE, STEPS = "the expert in failing groups alone", "rewards for right steps alone"
AT_4, RIGHT_OF_ALL = {"outcome": PASSED}, {"outcome": "accuracy"}
asks(EXPERIMENT,
    ("guided-rubrics-end-60-steps-with-more-pass-at-4-than-grpo", SAID.format("pass@4", "GRPO"),
     "guided rubrics", "grpo", AT_4),
    ("guided-rubrics-end-60-steps-with-more-pass-at-4-than-guidance", SAID.format("pass@4", ALONE),
     "guided rubrics", "guidance", AT_4),
    ("guided-rubrics-end-60-steps-with-more-pass-at-4-than-rubrics", SAID.format("pass@4", STEPS),
     "guided rubrics", "rubrics", AT_4),
    ("guided-rubrics-end-60-steps-with-more-accuracy-than-grpo", SAID.format("accuracy", "GRPO"),
     "guided rubrics", "grpo", RIGHT_OF_ALL),
    ("guided-rubrics-end-60-steps-with-more-accuracy-than-guidance", SAID.format("accuracy", ALONE),
     "guided rubrics", "guidance", RIGHT_OF_ALL),
    ("guided-rubrics-end-60-steps-with-more-accuracy-than-rubrics", SAID.format("accuracy", STEPS),
     "guided rubrics", "rubrics", RIGHT_OF_ALL),
    by=MORE,
)  # fmt: skip
