"""Training a solver and a checker: one transformer for both roles, or one for each."""

from dataclasses import replace

from analysis.lab import Evidence, Experiment, Frame, Part, Plot, Stop, arms, ask, happens_more_often
from analysis.sweeps.base_runs import TINY
from testbed.config.run import Run, grid

ROLES = "policy_args.roles"
CLIFF = 0.1
"""Loss of accuracy from the peak to the end that counts as a cliff. Set before the table was made."""
SAME = 0.02
"""Accuracy by which a peak counts as higher. Set before the table was made."""
FAST, SLOW = 1e-2, 3e-3


def cells() -> tuple[Run, ...]:
    """GRPO with shared and separate weights at a usual rate and at three times that rate."""
    task_args = (("digits", 5), ("modulus", 6))
    start = replace(TINY, task="solver-checker", task_args=task_args, steps=160, log_every=16)
    shapes = [(*TINY.policy_args, ("roles", roles)) for roles in ("shared", "separate")]
    return grid(start, policy_args=shapes, learning_rate=[SLOW, FAST], seed=[0])


EXPERIMENT = Experiment(
    question="Do roles with weights of their own peak higher and fall deeper than roles that share them?",
    source="Multi-agent RL for LLM workflows (2026): isolated roles peak higher, with more terminal cliffs",
    differs="transformers of 4,000 weights, running sums of five digits, GRPO on-policy; two rates",
    cells=cells, stop=Stop(cap=32, begun_with=16), keys=(ROLES, "learning_rate", "seed"),
    metrics=("accuracy", "best", "start", "collapsed"),
    margins={"accuracy from peak to end": CLIFF, "accuracy of a peak": SAME},
    figure=Plot(
        "distribution", x="learning_rate: learning rate", y="accuracy: final accuracy",
        arm=(f"{ROLES}: weights of the roles",),
        says="Shows final accuracy of on-policy GRPO at two learning rates, where a solver writes running "
        "sums of five digits and a checker after it the total, which alone is rewarded; both are one "
        "transformer of 4,000 weights (shared), or each has its own (separate).",
    ),
    systems={"Multi-agent RL for LLM workflows": Part()},
)  # fmt: skip

ask(EXPERIMENT, "separate-roles-peak-higher", "At both rates separate weights reach a best accuracy higher "
    "by 0.02, in the median over seeds.", {ROLES: "separate"}, {ROLES: "shared"}, SAME, "best",
    over={"learning_rate": (SLOW, FAST)})  # fmt: skip


@EXPERIMENT.claim("separate-roles-fall-from-their-peak-more-often")
def falls(table: Frame) -> Evidence:
    """At the larger rate separate weights end 0.1 below their peak on more seeds than shared ones."""
    # Not in the table: the gate "acts" would take a rare event, equal on most seeds, for arms without effect.
    where = {roles: {ROLES: roles, "learning_rate": FAST} for roles in ("separate", "shared")}
    fell = arms(table, "best", where) - arms(table, "accuracy", where) > CLIFF
    note = f"; fell: separate {fell['separate'].mean():.2f}, shared {fell['shared'].mean():.2f}"
    return happens_more_often(fell["separate"], fell["shared"], f"share of discordant seeds, less 1/2{note}")
