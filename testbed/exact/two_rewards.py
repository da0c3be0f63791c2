"""Groups of a bandit with several rewards per answer: advantages of their sum, or of each separately."""

import numpy as np
import torch

from envs.arrays import Floats, Ints
from testbed.advantages import advantage
from testbed.data.signals import Signals
from testbed.errors import unknown
from testbed.exact.group import multisets

HOW = ("joint", "decoupled")


def group_advantages(reward_NRG: Floats, how: str) -> Floats:
    """Advantages of R groups of G answers with N rewards, [R, G]: standardized sum, or sum of standardized
    rewards.

    Source: LightningRL (2026), per-reward normalization, and GDPO, arXiv:2601.05242. Raises UserError for an
    unknown kind.
    """
    if how not in HOW:
        raise unknown("normalization of several rewards", how, HOW)
    parts = reward_NRG.sum(0, keepdims=True) if how == "joint" else reward_NRG
    rewards = torch.from_numpy(np.ascontiguousarray(parts))
    groups = torch.zeros(rewards.shape, dtype=torch.int64)
    adv: Floats = advantage["group_std"].bind(eps=0.0)(Signals(rewards, groups)).numpy()
    return np.asarray(np.nan_to_num(adv).sum(0))


def pulls(reward_NA: Floats, group: int, how: str) -> tuple[Ints, Floats, Floats]:
    """Groups of G answers as multisets [R, G], their orderings [R], and their means of A onehot, [R, A]."""
    answers = reward_NA.shape[-1]
    index_RG, orders_R = multisets(answers, group)
    adv_RG = group_advantages(reward_NA[:, index_RG], how)
    pulled_RA = (adv_RG[..., None] * np.eye(answers)[index_RG]).mean(1)
    return index_RG, orders_R, np.asarray(pulled_RA)
