"""DaGRPO on easy and hard prompts: a mask of indistinct pairs, experts' answers to hard prompts, and both.

Running sums of eight digits; in easy prompts half of the digits, those behind the first, are zeros. The base
solves three in five easy prompts and no hard one. GRPO learns no hard prompt; imitation of the right expert
learns all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.lab import Frame, arm, asks, generator, inside, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.edited_training import Arm, lessons
from analysis.worlds.tuned_training import Family, Way
from envs.tokens.graded_sum import GradedSum

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Batch, Change, Rollout, Tensor

MIXED = replace(
    TINY, task="graded-sum", task_args=(("digits", 8), ("easy", 1)), teacher_noise=0.5, prompts=8, steps=300,
    log_every=5,
)  # fmt: skip
LESSONS, LESSON, LESSON_RATE, ANCHORS = 20, 32, 1e-2, 2
"""Supervised steps that make easy prompts routine, prompts per step, their rate; experts' answers in a group
without a success, the best of 1, 2, 4 and 6 on pilots."""


def routine(world: Any, base_RP: Tensor) -> Tensor:
    """Return weights that know easy prompts: the base after lessons on them alone."""
    easy, streams = GradedSum(digits=8, easy=1, share=1.0), [generator(s, "routine") for s in world.seeds]
    drawn = (np.stack([easy.prompts(rng, LESSON) for rng in streams]) for _ in range(LESSONS))
    return lessons(world, base_RP, ((x, np.cumsum(x[..., :-1], -1) % 8) for x in drawn), LESSON_RATE)


def rectified(reward_XG: Tensor, score_XG: Tensor, least: float) -> Tensor:
    """Return GRPO's advantages without pairs whose scores differ by less than `least`, [..., G].

    A_i = sum over j of (R_i - R_j) / (G std R) over the kept pairs; with all pairs it is GRPO's.
    """
    kept_XGG = (score_XG[..., :, None] - score_XG[..., None, :]).abs() >= least
    gap_XGG = (reward_XG[..., :, None] - reward_XG[..., None, :]) * kept_XGG
    return gap_XGG.mean(-1) / (reward_XG.std(-1, keepdim=True) + 1e-6)


def _masked(least: float, world: Any, _base: Tensor) -> Change:
    """Return the change of advantages after `rectified`; a response's score is its share of right tokens."""

    def change(batch: Batch, rollout: Rollout, _logp: Tensor, _step: int) -> Batch:
        token_RNGT = rollout.token_RBT.unflatten(1, (-1, rollout.group))
        answer_RNT = np.stack([world.task.answer(x[:, :-1]) for x in rollout.prompt_RNQ.numpy()])
        right_RNGT = token_RNGT == token_RNGT.new_tensor(answer_RNT)[:, :, None]
        reward_RNG = rollout.reward_RB.unflatten(1, (-1, rollout.group))
        adv_RNG = rectified(reward_RNG, right_RNGT.to(reward_RNG.dtype).mean(-1), least)
        return replace(batch, adv_BT=adv_RNG.flatten(1)[..., None] * batch.mask_BT)

    return change


def _arm(least: float = 0.0, anchors: float = 0, recipe: str = "grpo") -> Arm:
    run = replace(MIXED, recipe=recipe)
    if anchors:
        run = replace(run, guide="rescue", guide_args=(("count", anchors),))
    return Arm(run, partial(_masked, least) if least else None, begin=routine)


LEASTS, COUNTS = (0.25, 0.375, 0.5, 0.625, 0.75), (1, 2, 4, 6)
"""Least distances of scores, from none up by one step, and experts' answers in a group."""
at: Callable[..., Way] = lambda make, *ladder: Way(make, ladder or (0,), True, pilots=4)  # noqa: E731
WAYS: Mapping[str, Way] = {
    "grpo": at(lambda _: _arm()),
    "sft": at(lambda _: _arm(recipe="sft")),
    "mask": at(lambda least: _arm(least), *LEASTS),
    "anchors": at(lambda count: _arm(anchors=count), *COUNTS),
    "dagrpo": at(lambda least: _arm(least, ANCHORS), *LEASTS),
}
DISTINCT = Family(WAYS, by="accuracy")
SEEDS, DECIDED, GAIN, SAME = 64, 32, 0.047, 0.02
"""Seeds of a run, and of arms that needed fewer; margins of accuracy: the source's gain, and a single part's.
Margins were set before the table."""
HARD, LARGEST = "val/accuracy_difficulty_8", "max actor/grad_norm"


def premise(table: Frame) -> str:
    """Return "" if GRPO solves under a fifth of the hard prompts and imitation most of them."""
    hard, imitated = (arm(table, x, {"arm": y}).median() for x, y in ((HARD, "grpo"), ("accuracy", "sft")))
    return (
        "" if hard < 0.2 and imitated > 0.9 else f"GRPO {hard:.2f} on hard prompts, imitation {imitated:.2f}"
    )


EXPERIMENT = DISTINCT.experiment(
    ("accuracy", "rise accuracy", "start", HARD, LARGEST), SEEDS, ((("grpo", "mask"), SEEDS), ((), DECIDED)),
    question="What do a mask of indistinct pairs and experts' answers add where some prompts are too hard?",
    source="Xie et al. (2025), DaGRPO, arXiv:2512.06337",
    differs="transformers of 4,000 weights; a response's score is its share of right tokens, whereas in the "
    "source a language model gives it by an unpublished rule; pairs of a success and a failure closer than "
    "a tuned distance leave the sum in GRPO's advantage; experts' answers, always right, join groups "
    "without a success",
    margins={"accuracy": GAIN, "accuracy that a part adds": SAME},
    figure=strips("accuracy: final accuracy", "Shows final accuracy on running sums of which half are easy, "
        "each arm at its best setting: GRPO, imitation of a right expert (sft), GRPO without pairs of "
        "similar scores (mask), with an expert's answers in groups without a success (anchors), and with "
        "both (dagrpo)."),
    systems={"DaGRPO": "the rule of distinctness is this project's; answers of eight tokens, no other tests"},
)  # fmt: skip
BELOW = {"below": True}
asks(EXPERIMENT,
    ("dagrpo-ends-above-grpo", "On easy and hard prompts the mask and experts' answers end 0.047 more "
     "accurate than GRPO.", "dagrpo", "grpo", GAIN, {"off": {"arm": "mask"}}),
    ("dagrpo-has-a-smaller-largest-gradient-than-grpo", "With mask and experts' answers the largest norm of "
     "a gradient along the run is smaller than GRPO's.", "dagrpo", "grpo", 0.0, LARGEST, BELOW),
    ("the-mask-ends-above-grpo", "On easy and hard prompts the mask alone ends 0.02 more accurate than GRPO.",
     "mask", "grpo", SAME),
    ("the-mask-has-a-smaller-largest-gradient", "With the mask alone the largest norm of a gradient along "
     "the run is smaller than GRPO's.", "mask", "grpo", 0.0, LARGEST, BELOW),
    ("the-mask-adds-to-anchors", "Experts' answers end 0.02 more accurate with the mask than without.",
     "dagrpo", "anchors", SAME),
    ("the-mask-tames-gradients-of-anchors", "With mask and experts' answers the largest norm of a gradient "
     "along the run is smaller than with experts' answers alone.", "dagrpo", "anchors", 0.0, LARGEST, BELOW),
    gates={"tuned": inside(arm=("grpo", "mask", "anchors", "dagrpo")), "headroom": premise},
)  # fmt: skip
