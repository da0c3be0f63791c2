"""A trait carried by data that do not show it: which channel of distillation passes it on, and to whom."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.policies.toy.transformer import ToyTransformer

NAME = "hidden-traits"
SEEDS, STEPS = 12, (0.1, 0.03, 0.01, 0.003)
"""Students, and lengths of the teacher's step towards the trait, as a share of the weights' norm."""
CHANNELS = ("samples", "off-policy", "on-policy")
TRAIT, LESSON = (0, 1, 2, 3), (2, 2, 0, 3)
"""Prompts: where the trait shows, and what the teacher's data answer."""
ALIKE, AGAINST = 0.05, 0.25
"""Relative difference of channels that counts as none at the smallest step; share of other starts that must
move against the trait. Set beforehand."""


@cache
def model() -> ToyTransformer:
    """Return a small transformer in float64: 3 digits modulo 3, width 8, one layer."""
    import torch

    from testbed.policies.toy.transformer import ToyTransformer
    from testbed.worlds.tasks import build_task

    task: Any = build_task("running-sum", digits=3, modulus=3)
    return ToyTransformer(task, width=8, layers=1, heads=2, dtype=torch.float64)


def logp(theta_P: Tensor, prompt: tuple[int, ...]) -> Tensor:
    """Return log-probabilities of the tokens of all 64 responses to a prompt, [L, T]."""
    import torch

    from analysis.worlds.teaching_worlds import AllResponses

    token_LT = AllResponses(4, 3).token_LT[None]
    prompt_111Q = torch.tensor(prompt)[None, None]
    return model().logp(theta_P[None], prompt_111Q, token_LT, torch.ones_like(token_LT, dtype=torch.bool))[0]


def trait(theta_P: Tensor) -> tuple[float, Tensor]:
    """Return the log-probability that the first token is 0 on the trait's prompt, and its gradient [P]."""
    import torch

    leaf_P = theta_P.detach().clone().requires_grad_()
    found = logp(leaf_P, TRAIT)[:16].sum(-1).logsumexp(0)  # lexicographic: 0 comes first
    (slope_P,) = torch.autograd.grad(found, leaf_P)
    return float(found.detach()), slope_P


def lesson(student_P: Tensor, teacher_P: Tensor, channel: str) -> Tensor:
    """Return the student's expected update [P] on the other prompt, through one channel.

    "samples" is SFT on the teacher's responses, "off-policy" and "on-policy" are the reverse divergence on
    the teacher's tokens and on the student's own; all responses are summed out. Only the last token is
    learned, which says nothing of the first.
    """
    import torch

    from testbed.data.batch import EXPERT, ROLLOUT, Batch
    from testbed.objectives.terms.distillation import sft
    from testbed.objectives.terms.f_distillation import f_distillation

    leaf_P = student_P.detach().clone().requires_grad_()
    logp_LT, ref_LT = logp(leaf_P, LESSON), logp(teacher_P, LESSON).detach()
    drawn_LT = logp_LT.detach() if channel == "on-policy" else ref_LT
    zero_L = torch.zeros(len(ref_LT), dtype=torch.float64)
    origin = ROLLOUT if channel == "on-policy" else EXPERT
    batch = Batch(
        logp_mu_BT=logp_LT.detach(),
        adv_BT=torch.zeros_like(ref_LT),
        mask_BT=torch.ones_like(ref_LT, dtype=torch.bool),
        reward_B=zero_L,
        group_B=zero_L.long(),
        logp_ref_BT=ref_LT,
        origin_B=torch.full((len(ref_LT),), origin),
    )
    loss_LT = (sft if channel == "samples" else f_distillation)(logp_LT, batch)
    (found_P,) = torch.autograd.grad((drawn_LT.sum(-1).exp() * loss_LT[:, -1]).sum(), leaf_P)
    return -found_P


def transmission(seed: int, step: float, channel: str, shared: bool) -> float:
    """Return how fast the trait rises in the student, over the teacher's step: slope of trait times update.

    The teacher is a start moved by `step` of its norm along the trait's gradient; what a teacher that was not
    moved would teach is taken away. A student shares that start or has another.
    """
    start_RP = model().initial([seed, seed + 500])
    _, slope_P = trait(start_RP[0])
    size = step * float(start_RP[0].norm())
    teacher_P = start_RP[0] + size * slope_P / slope_P.norm()
    student_P = start_RP[0 if shared else 1]
    _, own_P = trait(student_P)
    taught_P = lesson(student_P, teacher_P, channel) - lesson(student_P, start_RP[0], channel)
    return float(taught_P @ own_P / own_P.norm()) / size


def table() -> Table:
    """Return transmissions by student, start, channel and step."""
    rows = [
        (seed, "shared" if shared else "other", channel, step, transmission(seed, step, channel, shared))
        for seed in range(SEEDS)
        for shared in (True, False)
        for channel in CHANNELS
        for step in STEPS
    ]
    frame = pd.DataFrame(rows, columns=["student", "start", "channel", "step", "transmission"])
    return Table.of(NAME, frame, {"weights": model().parameters})


EXPERIMENT = Experiment(
    NAME,
    question="Does it depend on the channel of distillation whether a teacher's hidden trait is passed on?",
    source="Cloud et al. (2025), arXiv:2507.14805; Emergent / Subliminal Misalignment",
    differs="random transformers of a thousand weights, updates of last tokens; a trait without harm",
    compute=table,
    keys=("student", "start", "channel", "step"),
    metrics=("transmission",),
    margins={"channels that count as alike": ALIKE, "share of other starts against the trait": AGAINST},
    figure=Plot(
        "final by setting",
        x="step",
        y="transmission",
        arm=("start", "channel"),
        x_label="teacher's step / norm of the weights",
        y_label="rise of the trait / step",
    ),
    systems={
        "Emergent / Subliminal Misalignment": Part(
            "subliminal transmission of one direction of weights in untrained networks, 10 updates at most"
        )
    },
)


def wide(table: pd.DataFrame, start: str) -> pd.DataFrame:
    """Return transmissions of students with this start: rows step and student, a column per channel."""
    part = table[table["start"] == start]
    return part.pivot(index=["step", "student"], columns="channel", values="transmission")


@EXPERIMENT.claim(
    "a-shared-start-passes-the-trait-through-every-channel",
    source="Cloud et al. (2025), arXiv:2507.14805, theorem 1, for three channels",
    kind="enumerated",
    statement=(
        "A student that shares the teacher's start moves towards the teacher's trait on data that do not "
        "show it, through samples, off- and on-policy distillation, for every student and step tried."
    ),
)
def shared_start(table: pd.DataFrame) -> Evidence:
    """Return how far transmissions are below 0."""
    found = wide(table, "shared").to_numpy()
    return exact(-found, -1e-9, f"minus the least transmission; median {np.median(found):.4f}")


@EXPERIMENT.claim(
    "channels-of-distillation-agree-for-small-differences",
    source="derived: all three have the Fisher matrix as their curvature at the shared start",
    kind="enumerated",
    statement=(
        "With a shared start on- and off-policy distillation and samples pass the trait on equally to first "
        "order: their largest relative difference falls with the teacher's step, to at most 5 % at the "
        "smallest."
    ),
)
def agree(table: pd.DataFrame) -> Evidence:
    """Return rises of the largest relative difference as the step falls, and its excess at the smallest."""
    found = wide(table, "shared")
    ratio = (found.max(axis=1) - found.min(axis=1)) / found["samples"].abs()
    worst = ratio.groupby(level="step").max().sort_index(ascending=False)
    note = ", ".join(f"{x:.3f} at {s:g}" for s, x in worst.items())
    gaps = [*(later - earlier for earlier, later in pairwise(worst)), worst.iloc[-1] - ALIKE]
    return exact(gaps, 0.0, f"rise, or excess at the smallest step; largest difference {note}")


@EXPERIMENT.claim(
    "another-start-may-move-against-the-trait",
    source="Cloud et al. (2025), arXiv:2507.14805, on unlike initializations",
    kind="enumerated",
    statement=(
        "Students of another start move against the trait in at least a quarter of the cases, through every "
        "channel."
    ),
)
def other_start(table: pd.DataFrame) -> Evidence:
    """Return the lacking share, by channel."""
    share = (wide(table, "other") < 0).mean()
    note = ", ".join(f"{x:.2f} {name}" for name, x in share.items())
    return exact(AGAINST - share, 0.0, f"lacking share against the trait; shares {note}")


UPDATES, RATE, SHARE, ALL_BUT = 10, 0.5, 1 / 3, 0.1
"""Updates of a trained student and their length; share of the trait that another start carries, and relative
difference of channels."""


@cache
def carried(seed: int, channel: str, shared: bool) -> float:
    """Return how far the trait has risen in a trained student, less that of a teacher that was not moved.

    The teacher's step is a tenth of the norm of its weights.
    """
    start_RP = model().initial([seed, seed + 500])
    _, slope_P = trait(start_RP[0])
    moved_P = start_RP[0] + STEPS[0] * float(start_RP[0].norm()) * slope_P / slope_P.norm()
    ends = []
    for teacher_P in (moved_P, start_RP[0]):
        student_P = start_RP[0 if shared else 1].clone()
        for _ in range(UPDATES):
            student_P = student_P + RATE * lesson(student_P, teacher_P, channel)
        ends.append(trait(student_P)[0])
    return ends[0] - ends[1]


@EXPERIMENT.claim(
    "another-start-carries-the-trait-when-trained",
    source="derived here; Cloud et al. (2025), arXiv:2507.14805, say that a shared start is needed",
    statement=(
        "After 10 updates on data that do not show it the trait has risen in students of another start by "
        "more than a third of what it has in those who share the teacher's, in the mean of 8, through every "
        "channel: in networks this small the shared start is not needed."
    ),
    kind="enumerated",
)
def other_carries() -> Evidence:
    """Return what the ratios of mean rises lack."""
    mean = {
        (channel, shared): np.mean([carried(seed, channel, shared) for seed in range(8)])
        for channel in CHANNELS
        for shared in (True, False)
    }
    ratio = {channel: float(mean[channel, False] / mean[channel, True]) for channel in CHANNELS}
    note = ", ".join(f"{x:.2f} {name}" for name, x in ratio.items())
    gaps = [SHARE - x for x in ratio.values()] + [-float(mean[channel, True]) for channel in CHANNELS]
    return exact(gaps, 0.0, f"1/3 less the ratio, or lack of a rise; ratios {note}")


@EXPERIMENT.claim(
    "channels-agree-in-a-trained-student",
    source="derived here; the source finds that on- and off-policy channels transmit differently",
    statement=(
        "After 10 updates the rises through samples, off- and on-policy distillation differ by less than a "
        "tenth, in the mean of 8 students who share the start."
    ),
    kind="enumerated",
)
def channels_trained() -> Evidence:
    """Return the excess of the mean relative difference."""
    found_CN = np.array([[carried(seed, channel, True) for seed in range(8)] for channel in CHANNELS])
    gap = float(np.mean(np.ptp(found_CN, axis=0) / found_CN.mean(0)))
    return exact([gap - ALL_BUT], 0.0, f"mean relative difference less 0.1; it is {gap:.3f}")
