"""Ways of learning where right answers are rare or old: own prefixes, max@k, and PPO over turns.

Running sums of six digits, which the base model gets right once in a hundred, with 3,840 responses in all;
and guesses in two turns from data 64 steps old. `python -m analysis.worlds.sparse_ways` chooses the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.arena.tasks import task
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, Maker
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe
from testbed.config.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.world import World

RARE = replace(
    SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)), teacher_noise=0.48, prompts=8, steps=60,
    log_every=6, evaluation_prompts=128,
)  # fmt: skip
"""GRPO ends at .4 on pilots."""
STORE = (("ask", 48), ("attempts", 8), ("distribution", "falling"), ("tokens", 5), ("empty", "plain"))
"""Tries of the base model that take a tenth of the budget."""
OLD = replace(task("guess"), lag=64, critic="head")
CUT = 0.1
"""Share of the replayed tokens that SPEAR's clip drops."""
CLIPS = (0.05, 0.1, 0.2, 0.5, 0.9, 3.0)


def _prefixed(share: float) -> Run:
    """Return GRPO with a share of prompts begun from falling prefixes of the base's successes."""
    return replace(RARE, prefix="stored", prefix_args=(*STORE, ("share", share)), steps=54)


def _per(change: Any) -> Maker:
    """Return a change that needs neither the world nor the start."""

    def make(_world: World, _start_RP: Tensor) -> Any:
        return change

    return make


def as_stored(batch: Batch, rollout: Rollout, _logp: Tensor, _step: int) -> Batch:
    """Give replayed successes the advantage that they had in their own group, not the recalibrated one."""
    import torch

    from testbed.advantages.grouped import group_std
    from testbed.data.batch import REPLAY
    from testbed.data.signals import Signals

    stored_RB = group_std(Signals(rollout.reward_RB, rollout.groups())).clamp(min=0)
    replayed_RB1 = batch.require("origin_B", "replay").eq(REPLAY)[..., None]
    return replace(batch, adv_BT=torch.where(replayed_RB1, stored_RB[..., None], batch.adv_BT))


def clipped_by_covariance(batch: Batch, _rollout: Rollout, logp: Tensor, _step: int) -> Batch:
    """Drop the tenth of the replayed tokens whose (A - mean A)(log pi - mean log pi) is largest."""
    import torch

    from testbed.data.batch import REPLAY

    on_RBT = batch.require("origin_B", "replay").eq(REPLAY)[..., None] & batch.mask_BT
    count_R = on_RBT.sum((1, 2)).clamp(min=1)
    off = [x - ((x * on_RBT).sum((1, 2)) / count_R)[:, None, None] for x in (batch.adv_BT, logp)]
    cov_RX = (off[0] * off[1]).masked_fill(~on_RBT, -torch.inf).flatten(1)
    rank_RX = cov_RX.argsort(-1, descending=True).argsort(-1)
    drop_RX = (rank_RX < (CUT * count_R)[:, None]) & (cov_RX > 0)
    return replace(batch, adv_BT=batch.adv_BT.masked_fill(drop_RX.view_as(on_RBT), 0.0))


def _imitated(steps: float) -> Arm:
    """Return imitation of the base's successes, as supervised, for some steps, and GRPO after them."""

    def change(batch: Batch, rollout: Rollout, logp: Tensor, step: int) -> Batch:
        if step >= steps:
            return batch
        adv_BT = rollout.reward_RB[..., None] * batch.mask_BT
        return replace(batch, adv_BT=adv_BT, logp_mu_BT=logp, logp_anchor_BT=logp)

    return Arm(RARE, _per(change), early=int(steps))


STAGED = replace(
    RARE, prefix="teacher", prefix_args=(("distribution", "staged"), ("share", 0.5), ("tokens", 5))
)  # fmt: skip
"""Half of the groups hold a right answer's prefixes of growing length, each the child of the one before."""


def _below(alpha: float) -> Arm:
    """Return GRPO with R - alpha V less its mean, V the mean reward of a member and of those below it."""

    def change(batch: Batch, rollout: Rollout, _logp: Tensor, _step: int) -> Batch:
        group = STAGED.group
        reward_RNG = rollout.reward_RB.unflatten(1, (-1, group))
        left_G = reward_RNG.new_tensor(range(group, 0, -1))
        value_RNG = reward_RNG.flip(-1).cumsum(-1).flip(-1) / left_G
        parent_RB = rollout.parents()
        assert parent_RB is not None
        guided_RN1 = (parent_RB.unflatten(1, (-1, group)) >= 0).any(-1, True)
        raw_RNG = reward_RNG - alpha * value_RNG
        adv_RNG = (raw_RNG - raw_RNG.mean(-1, keepdim=True)).where(guided_RN1, 0.0)
        plain_RNG = batch.adv_BT[..., 0].unflatten(1, (-1, group))
        adv_RB = adv_RNG.where(guided_RN1, plain_RNG).flatten(1)
        return replace(batch, adv_BT=adv_RB[..., None] * batch.mask_BT)

    return Arm(replace(STAGED, recipe="tree_opo"), _per(change))


def _spear(change: Any = None) -> Way:
    at = _recipe(RARE, "spear", "share", ("warm_up", 30))
    return Way(at, (0.25, 0.5, 0.75), True, change and _per(change))


def _turns(loss: str) -> Callable[[float], Run]:
    return _recipe(OLD, "ppo", "eps", ("loss", loss))


WAYS: Mapping[str, Way] = {
    "grpo": Way(_recipe(RARE, "grpo")),
    "own prefixes": Way(_prefixed, (0.125, 0.25, 0.5, 0.75, 1.0), True),
    "imitated, then grpo": Way(_imitated, (6, 12, 24, 36, 48), True),
    "replayed": Way(lambda share: replace(RARE, staleness="replay", staleness_args=(("share", share),)),
                    (0.25, 0.5, 0.75), True),
    "spear": _spear(),
    "spear, stored advantages": _spear(as_stored),
    "spear, clipped": _spear(clipped_by_covariance),
    "best of k": Way(_recipe(RARE, "max_at_k", "k"), (2, 4, 8), True, by="last val/pass@8"),
    "grpo for pass@8": Way(_recipe(RARE, "grpo"), by="last val/pass@8"),
    "staged, flat": Way(_recipe(STAGED, "grpo")),
    "staged, tree": Way(_recipe(STAGED, "tree_opo")),
    "staged, subtrees": Way(_below, (0.1, 0.25, 0.5, 0.75, 1.0), True),
    "token ppo": Way(_turns("ppo_clip"), CLIPS),
    "turn ppo": Way(_turns("turn_ppo"), CLIPS),
    "st-ppo": Way(_turns("st_ppo"), CLIPS),
}  # fmt: skip
SPARSE = Family(WAYS, Path(__file__).with_suffix(".csv"), by="accuracy")

if __name__ == "__main__":
    SPARSE.choose()
