"""DYPO in the toy LLM: imitation where a whole group fails, RL with an alignment loss where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.experiments.experts.group_alignment import BETA, alignment
from analysis.lab import Experiment, Part, Plot
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, gained, swept

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

NAME = "gated-imitation"
SEEDS, RATES, MORE, WEIGHT = 32, (3e-3, 1e-2), 0.048, 1.0
"""The margin is final accuracy, the source's gain; the weight is that of the alignment loss beside the
policy's. Set before the table was made."""
TEACHER: dict[str, Any] = {"teacher": "trained", "teacher_args": (("noise", 0.1), ("steps", 600))}
HALF = (("peak", 0.5), ("valley", 0.5))
BASE = replace(
    SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)), steps=150, log_every=15,
    teacher_noise=0.4, recipe="grpo",
)  # fmt: skip
FIXED = replace(BASE, recipe="chord", recipe_args=HALF, **TEACHER)
GATED = replace(
    FIXED, recipe_args=(*HALF, ("share", 0.0)), guide="rescue", guide_args=(("count", BASE.group),)
)
POOR = 0.5
"""Chance that a lesson of the poorer base errs at a step."""


def aligned(_world: Any, _theta_RP: Tensor) -> Any:
    """Return what adds the alignment loss to the advantages of groups that the policy wrote itself.

    Loss = policy loss + WEIGHT times its mean over groups, at the weights that wrote the group: a response
    gets `alignment` times the tokens of its batch over the batch's groups, since the policy loss is a mean
    over tokens. log pi is of the whole response, without a reference, as in the release.
    """
    from testbed.data.batch import EXPERT

    def change(batch: Batch, rollout: Rollout, logp: Tensor, _step: int) -> Batch:
        own_RB = batch.mask_BT.any(-1)
        if rollout.origin_RB is not None:
            own_RB = own_RB & (rollout.origin_RB != EXPERT)
        groups = (-1, rollout.group)
        logp_RNG = (logp * batch.mask_BT).sum(-1).unflatten(1, groups)
        added_RB = alignment(logp_RNG, batch.reward_B.unflatten(1, groups), BETA).flatten(1) * own_RB
        scale_R1 = batch.mask_BT.sum((-1, -2))[:, None] / logp_RNG.shape[1]
        return replace(batch, adv_BT=batch.adv_BT + (WEIGHT * scale_R1 * added_RB)[..., None])

    return change


ARMS: Mapping[str, Arm] = {
    "grpo": Arm(BASE, rates=RATES),
    "fixed": Arm(FIXED, rates=RATES),
    "sequential": Arm(replace(BASE, recipe="sft_then_grpo", **TEACHER), rates=RATES),
    "gate": Arm(GATED, rates=RATES),
    "dypo": Arm(GATED, aligned, rates=RATES),
    "poor grpo": Arm(replace(BASE, teacher_noise=POOR), rates=RATES),
    "poor dypo": Arm(replace(GATED, teacher_noise=POOR), aligned, rates=RATES),
}
METRICS = ("accuracy", "start", "best", "area", "mean actor/grad_norm")

EXPERIMENT = Experiment(
    NAME,
    question="Does imitation where a whole group fails end above RL alone, and above other mixtures?",
    source="Zhu et al. (2026), DYPO, arXiv:2604.08926; its code, Tocci-Zhu/DYPO 061e581",
    differs=(
        "a transformer of 4,000 weights; one teacher that errs at a tenth of steps, not several of the "
        "release's data, which are not public; GRPO's ratio, not GSPO's; the alignment loss has weight 1, "
        "not the released 0.001; prompts of one kind, so none out of distribution"
    ),
    compute=swept(NAME, ARMS, METRICS, SEEDS, {"rates": "of 2 on 2 tuning seeds", "weight": WEIGHT}),
    keys=("run", "arm", "seed"),
    metrics=("rate", *METRICS),
    margins={"accuracy": MORE},
    figure=Plot("strips", x="accuracy", y="arm", x_label="final accuracy"),
    systems={"DYPO": Part()},
)

for _name, _first, _second, _says in (
    ("dypo-ends-above-grpo", "dypo", "grpo", "GRPO alone"),
    ("dypo-ends-above-grpo-from-a-poor-base", "poor dypo", "poor grpo", "GRPO alone, from a poorer base"),
    ("dypo-ends-above-a-fixed-mixture", "dypo", "fixed", "a mixture of fixed weights on the same teacher"),
    ("dypo-ends-above-imitation-then-rl", "dypo", "sequential", "imitation that is followed by GRPO"),
    ("group-alignment-adds-to-the-gate", "dypo", "gate", "its gate without the alignment loss"),
):
    EXPERIMENT.claim(
        _name,
        statement=f"DYPO ends with an accuracy 0.048 higher than {_says}, in the median over seeds.",
    )(partial(gained, value="accuracy", pairs=((_first, _second),), margin=MORE))
