"""Ways of learning with help where a base model is seldom right, each tuned over its rate and one knob.

The base model writes running sums of eight digits, right once in 200, or ten digits in order, right once in
fifty. Two experts know more: one is a model that errs at a tenth of the steps, the other is always right but
writes complements in place of sums.
`python -m analysis.worlds.expert_arms` chooses the settings, arm by arm.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.arena.tasks import task
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.aligned_groups import aligned
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe
from testbed.config.run import Run

OWN = replace(
    SMALL, task_args=(("digits", 8),), policy_args=(("heads", 2), ("layers", 1), ("width", 16)), prompts=4,
    steps=300, log_every=30, teacher_noise=0.45, evaluation_prompts=128,
)  # fmt: skip
ERRING: dict[str, Any] = {"teacher": "trained", "teacher_args": (("noise", 0.1), ("steps", 600))}
TAUGHT, LEARNED = replace(OWN, **ERRING), replace(task("sorted"), **ERRING)
STYLED = replace(OWN, task="styled-sum")
OTHER = "other style: "
"""In front of the arms beside the expert that writes complements."""
IN_ORDER = "sorted: "
"""In front of the arms that put ten digits in order, where base models differ less in what they can learn."""
SLOWER = (3e-4, 5.6e-4, 1e-3, 1.8e-3, 3e-3)


def _guided(start: Run, guide: str, knob: str = "count", **fields: Any) -> Callable[[float], Run]:
    return lambda value: replace(start, guide=guide, guide_args=((knob, value),), **fields)


def _gated(value: float) -> Run:
    args = (("peak", value), ("share", 0.0), ("valley", value))
    return replace(TAUGHT, recipe="chord", recipe_args=args, guide="rescue", guide_args=(("count", 8),))


def _amplified(value: float) -> Run:
    return replace(OWN, prefix="retry", recipe="r3l", recipe_args=(("alpha", value),))


GRADED = replace(task("sorted"), verifier="steps")
FALLING = (("peak", 0.9), ("valley", 0.05))
COUNTS, STEPS = (1, 2, 4, 6), (10, 25, 50, 100, 200)
WEIGHTS = (0.03, 0.1, 0.3, 0.6, 0.9)
LOWER = (0.003, 0.01, *WEIGHTS)
WAYS: Mapping[str, Way] = {
    "grpo": Way(_recipe(OWN, "grpo")),
    "sft": Way(_recipe(TAUGHT, "sft")),
    "sft, then grpo": Way(_recipe(TAUGHT, "sft_then_grpo", "step"), STEPS),
    "fixed": Way(_recipe(TAUGHT, "chord", "peak+valley"), WEIGHTS),
    "chord-mu": Way(_recipe(TAUGHT, "chord", "decay", *FALLING), (25, 50, 100, 200, 300), True),
    "anchors": Way(_guided(TAUGHT, "rescue"), COUNTS, True),
    "gate": Way(_gated, (0.05, 0.1, 0.25, 0.5, 0.8)),
    "dypo": Way(_gated, (0.05, 0.1, 0.25, 0.5, 0.8), change=aligned),
    "distillation": Way(_recipe(TAUGHT, "opd")),
    "dgrpo": Way(_recipe(TAUGHT, "dgrpo", "coefficient"), (0.01, 0.03, 0.1, 0.3, 1)),
    "rubrics": Way(_guided(TAUGHT, "rescue", "most", verifier="steps"), (0, 0.25, 0.5, 0.75, 0.99), True),
    "retries": Way(lambda _: replace(OWN, prefix="retry")),
    "amplified retries": Way(_amplified, (1, 1.5, 3, 6, 12)),
    "self-imitation": Way(_recipe(OWN, "spear", "share", ("warm_up", 100)), (0.25, 0.5, 0.75), True),
    f"{OTHER}grpo": Way(_recipe(STYLED, "grpo")),
    f"{OTHER}sft": Way(_recipe(STYLED, "sft")),
    f"{OTHER}sft, then grpo": Way(_recipe(STYLED, "sft_then_grpo", "step"), STEPS),
    f"{OTHER}whole answers": Way(_guided(STYLED, "rescue"), COUNTS, True),
    f"{OTHER}splices": Way(_guided(STYLED, "splice"), COUNTS, True),
    f"{IN_ORDER}grpo": Way(_recipe(LEARNED, "grpo"), rates=SLOWER),
    f"{IN_ORDER}sft": Way(_recipe(LEARNED, "sft"), rates=SLOWER),
    f"{IN_ORDER}sft, then grpo": Way(_recipe(LEARNED, "sft_then_grpo", "step"), STEPS, rates=SLOWER),
    f"{IN_ORDER}fixed": Way(_recipe(LEARNED, "chord", "peak+valley"), LOWER, rates=SLOWER),
    f"{IN_ORDER}chord-phi": Way(
        _recipe(LEARNED, "chord", "peak+valley", ("phi", "on")), LOWER, rates=SLOWER
    ),
    f"{IN_ORDER}graded": Way(lambda _: GRADED, rates=SLOWER),
    f"{IN_ORDER}graded, plain": Way(_guided(GRADED, "insert"), COUNTS, True, rates=SLOWER),
    f"{IN_ORDER}graded, bent": Way(
        _guided(GRADED, "insert", recipe="tempsamp"), COUNTS, True, rates=SLOWER
    ),
}  # fmt: skip
EXPERTS = Family(WAYS, Path(__file__).with_suffix(".csv"))

if __name__ == "__main__":
    EXPERTS.choose()
