"""DCPO: right answers weighted towards a hotter or colder policy, against GRPO and an entropy bonus."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.lab import asks, strips
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm
from analysis.worlds.tuned_training import Family, Way, with_recipe

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Batch, Rollout, Tensor

SKILLS = replace(SMALL, task="three-skills", prompts=4, steps=1000, log_every=200, evaluation_prompts=256)
DCPO = "Li et al. (2026), arXiv:2601.12730, and 597358816/DCPO"
SEEDS, LATER, MORE = 128, 60_000_000, 0.02
"""Seeds of a run, offset past those of other tables; gain that counts, as before."""


def targeted(aim: float, world: Any, theta_RP: Tensor, batch: Batch, rollout: Rollout) -> Batch:
    """Return fresh data's batch with advantages (1 - a) A + a r rho, a = w / (w + share of right answers).

    rho = pi^T / pi of a token, with temperature T = 1.2 where the batch's entropy is at most `aim` nats per
    token and 0.8 where it is higher; w: the distance to the aim, at most 0.1; r: 1 for right answers, else
    0. Source: Li et al. (2026), arXiv:2601.12730, as in 597358816/DCPO, ray_trainer.py.
    """
    import torch

    mask_RBT, logp_RBT = rollout.mask_RBT, rollout.logp_mu_RBT
    right_RB = (rollout.reward_RB > 0.5).to(logp_RBT.dtype)
    entropy_R = -(logp_RBT * mask_RBT).sum((1, 2)) / mask_RBT.sum((1, 2))
    # A copy leaves the temperature at which the world generates as it is.
    policy = copy(world.policy)
    policy.temperature = torch.where(entropy_R <= aim, 1.2, 0.8)[:, None, None].to(logp_RBT.dtype)
    with torch.no_grad():
        target_RBT = policy.logp(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, mask_RBT)
    weight_R = (entropy_R - aim).abs().clamp(1e-6, 0.1)
    a_R11 = (weight_R / (weight_R + right_RB.mean(1)))[:, None, None]
    rho_RBT = (target_RBT - logp_RBT).exp() * mask_RBT
    return replace(batch, adv_BT=(1 - a_R11) * batch.adv_BT + a_R11 * right_RB[..., None] * rho_RBT)


def _dcpo(aim: float) -> Arm:
    return Arm(replace(SKILLS, recipe="grpo"), read=partial(targeted, aim))


way = partial(Way, rates=(5.6e-4, 1e-3, 1.8e-3), pilots=32)
AIMS, BONUSES = (0.1, 0.2, 0.4, 0.8, 1.6), (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
TARGETS = Family({
    "grpo": way(with_recipe(SKILLS, "grpo")),
    "bonus": way(with_recipe(SKILLS, "grpo", "entropy"), BONUSES),
    "dcpo": way(_dcpo, AIMS),
})  # fmt: skip

EXPERIMENT = TARGETS.experiment(
    ("accuracy", "val/entropy", "area", "start", "rise accuracy", "mean actor/clip_share"),
    SEEDS, first=LATER,
    question="Does DCPO's pull towards a target entropy end above GRPO and above an entropy bonus?",
    source=DCPO,
    differs="toy transformers; sums, copies and sorts of six digits, right once in 35 answers; the "
    "entropy that is compared with its aim is the batch's, in the source the last batch's",
    margins={"accuracy gained": MORE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of toy transformers that add, copy or "
        "sort six digits, after 1,000 steps by GRPO, with an entropy bonus, and by DCPO, which pulls right "
        "answers towards a hotter or colder policy, each arm at its best setting."),
    systems={"DCPO (distribution-centric)": "a small model; a tuned bonus gains nothing there"},
)  # fmt: skip

BASE = (
    "On three skills of which GRPO learns one or two, DCPO at its best target entropy ends 0.02 more accurate"
)
asks(EXPERIMENT,
    ("dcpo-ends-above-grpo", f"{BASE} than GRPO.", "dcpo", "grpo"),
    ("dcpo-ends-above-an-entropy-bonus", f"{BASE} than GRPO with the best entropy bonus.", "dcpo", "bonus"),
    by=MORE,
)  # fmt: skip
