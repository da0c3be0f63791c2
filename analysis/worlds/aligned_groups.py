"""DYPO's group alignment loss, as what it adds to advantages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

BETA, WEIGHT = 0.1, 1.0
"""Inverse temperature, and weight beside the policy's loss; the release has 0.001."""


def alignment(logp_XG: Tensor, reward_XG: Tensor, beta: float = BETA) -> Tensor:
    """Return what the group alignment loss gives a response in place of an advantage, [..., G], per group.

    The loss is the mean over pairs of a success s and a failure f of -log sigmoid(beta (log pi(s) -
    log pi(f))); this is minus its slope in log pi, and 0 in a group without both. Sources: Zhu et al.
    (2026), DYPO, arXiv:2604.08926; its code, Tocci-Zhu/DYPO 061e581.
    """
    won_XG = (reward_XG > 0).to(logp_XG.dtype)
    pair_XGG = won_XG[..., :, None] * (1 - won_XG[..., None, :])  # success in rows, failure in columns
    gap_XGG = logp_XG[..., :, None] - logp_XG[..., None, :]
    pull_XGG = pair_XGG * (-beta * gap_XGG).sigmoid() * beta
    count_X1 = pair_XGG.sum((-1, -2)).clamp(min=1)[..., None]
    return (pull_XGG.sum(-1) - pull_XGG.sum(-2)) / count_X1


def aligned(_world: Any, _theta_RP: Tensor) -> Any:
    """Return what adds DYPO's alignment loss to the advantages of groups that the policy wrote itself.

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
