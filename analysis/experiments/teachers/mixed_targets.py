"""MixSD's targets, token by token: what mixing a model's own tokens into an expert's changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.lab import Evidence, Experiment, Part, exact
from analysis.worlds.teaching_worlds import AllResponses, place_gradients

if TYPE_CHECKING:
    from torch import Tensor

EXPERIMENT = Experiment(
    "mixed-targets",
    question="Is supervision mixed from expert and naive conditionals more than slower fine-tuning?",
    source="MixSD (2026), arXiv:2605.16865",
    differs="tables, where nothing generalizes: what sharing of weights adds to forgetting is not seen",
    systems={
        "MixSD": Part(
            "the expected gradient, surprisal and fixed point of mixed targets, token by token, in tables"
        )
    },
)
SHARES, SEEDS = (0.0, 0.1, 0.5, 0.9, 1.0), 6


def mixture(naive: Tensor, expert: Tensor, share: float) -> Tensor:
    """Return the logits of the token-wise mixture (1 - share) naive + share expert."""
    return ((1 - share) * naive.softmax(-1) + share * expert.softmax(-1)).log()


def gradient(student: Tensor, target: Tensor) -> Tensor:
    """Return the expected gradient of the SFT loss on the target's tokens, at every prefix alike."""
    from testbed.objectives.terms.distillation import sft

    return place_gradients(sft, student, target, target)


@EXPERIMENT.claim(source="derived: a policy's own tokens have expected score 0")
def mixed_targets_are_a_smaller_step_per_prefix() -> Evidence:
    """With the student itself as naive conditional, the expected gradient on mixed targets is the expert's
    share times that of plain fine-tuning, at every prefix: mixing changes which prefixes come by, and the
    size of the step, nothing else.

    Return distances over 6 pairs and 5 shares, and how little a frozen naive one differs.
    """
    world, gaps, frozen = AllResponses(4, 3), [], []
    for seed in range(SEEDS):
        student, expert, base = (world.random(3 * seed + i) for i in range(3))
        plain = gradient(student, expert)
        for share in SHARES:
            mixed = gradient(student, mixture(student, expert, share))
            gaps.append(float((mixed - share * plain).abs().max()))
            if share == 0.5:
                frozen.append(
                    float((gradient(student, mixture(base, expert, share)) - share * plain).abs().max())
                )
    gaps.append(0.01 - min(frozen))  # a naive conditional that does not move with the student pulls back
    return exact(gaps, 1e-12, "distance from the share times SFT's gradient, or a frozen base's lack of one")


@EXPERIMENT.claim(source="derived")
def mixed_targets_from_a_frozen_base_end_at_the_mixture() -> Evidence:
    """With frozen naive conditionals the only stationary student is the mixture itself: an answer that the
    expert is sure of and the base gives chance b is remembered with chance share + (1 - share) b per token,
    and surprisal under the base falls linearly in 1 - share.
    """
    import torch

    world, gaps = AllResponses(4, 3), []
    for seed in range(SEEDS):
        base, expert = world.random(2 * seed), world.random(2 * seed + 1)
        sure = torch.full_like(expert, -40.0)
        sure[:, 0] = 40.0
        base_SV = base.softmax(-1)
        own = -(base_SV * base_SV.log()).sum(-1)
        for share in SHARES[1:]:
            target = mixture(base, expert, share)
            gaps.append(float(gradient(target, target).abs().max()))
            memory = mixture(base, sure, share).exp()[:, 0]
            gaps.append(float((memory - share - (1 - share) * base_SV[:, 0]).abs().max()))
            surprise = -(target.softmax(-1) * base_SV.log()).sum(-1)
            line = share * -(expert.softmax(-1) * base_SV.log()).sum(-1) + (1 - share) * own
            gaps.append(float((surprise - line).abs().max()))
        gaps.append(1e-3 - float(gradient(base, mixture(base, expert, 0.5)).abs().max()))
    return exact(gaps, 1e-12, "gradient at the mixture, or distance of memory or surprisal from its line")
