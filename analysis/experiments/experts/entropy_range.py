"""SPEAR in a task of several turns where entropy can collapse, every arm tuned.

The model guesses a number of nine in four turns, bisecting by the answers of a tool; the base succeeds two
times in five. A player that always wins can still choose among winning guesses, with an entropy of .46 nats
per token; the base has 1.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.lab import asks, generator, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.tuned_training import Family, Way, with_recipe

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Batch, Change, Rollout, Tensor

GUESS = replace(
    TINY, task="guess", task_args=(), teacher_noise=0.6, prompts=4, steps=1500, log_every=30,
    evaluation_prompts=128,
)  # fmt: skip
EARLY = 300
"""Steps over which the reward of tool calls fades and replay grows; 100 to 300 in the source."""
CALL, CUT, LEAST = 0.1, 0.02, 1.0
"""Initial reward of a call, share of tokens that the clip drops, and their least covariance. The source drops
as many replayed tokens, but .0002 of the fresh ones."""


def standardized(rollout: Rollout, fade: float) -> Tensor:
    """Return group-standardized rewards; each complete guess adds CALL times `fade`, [R, B]."""
    from testbed.advantages.grouped import group_std
    from testbed.data.signals import Signals

    calls_RB = (rollout.mask_RBT & (rollout.token_RBT < 3))[..., 1::3].sum(-1)
    return group_std(Signals(rollout.reward_RB + CALL * fade * calls_RB, rollout.groups()))


def covarying(adv_RBT: Tensor, logp_RBT: Tensor, on_RBT: Tensor, key_RBT: Tensor) -> Tensor:
    """Return the tokens that the covariance clip drops: a random share CUT of all, among those above LEAST.

    Covariance of a token is (A - mean A)(log pi - mean log pi), means over the tokens in `on`. key: uniform
    numbers. Source: Cui et al. (2025), arXiv:2505.22617, as in TencentYoutuResearch/SPEAR's scripts.
    """
    count_R11 = on_RBT.sum((1, 2), keepdim=True).clamp(min=1)
    off_RBT, other_RBT = (x - (x * on_RBT).sum((1, 2), keepdim=True) / count_R11 for x in (adv_RBT, logp_RBT))
    high_RBT = on_RBT & (off_RBT * other_RBT >= LEAST)
    # Keys are below 1, so that tokens below LEAST, at 2, rank last, the others at random.
    rank_RX = key_RBT.masked_fill(~high_RBT, 2.0).flatten(1).argsort(-1).argsort(-1)
    return high_RBT & (rank_RX.view_as(on_RBT) < CUT * count_R11)


def _changed(whole: bool, world: Any, _base: Tensor) -> Change:
    """Return replay's change to a batch: only stored advantages, of rewards above their group's mean.

    whole: recalibrate stored advantages, clip covariances of fresh and replayed tokens, and reward tool
    calls, less and less.
    """

    def change(batch: Batch, rollout: Rollout, logp: Tensor, step: int) -> Batch:
        import torch

        from testbed.data.batch import REPLAY

        replayed_RB1 = batch.require("origin_B", "replay").eq(REPLAY)[..., None]
        fade = whole * (1 + math.cos(math.pi * min(step, EARLY) / EARLY)) / 2
        old_RBT = batch.adv_BT if whole else standardized(rollout, 0.0).clamp(min=0)[..., None]
        adv_RBT = torch.where(replayed_RB1, old_RBT, standardized(rollout, fade)[..., None])
        adv_RBT = adv_RBT.expand_as(batch.adv_BT)
        if whole:
            streams = [generator(seed, "covariance clip", step) for seed in world.seeds]
            key_RBT = adv_RBT.new_tensor(np.stack([x.random(adv_RBT.shape[1:]) for x in streams]))
            parts = (replayed_RB1 & batch.mask_BT, ~replayed_RB1 & batch.mask_BT)
            dropped = [covarying(adv_RBT, logp, on_RBT, key_RBT) for on_RBT in parts]
            adv_RBT = adv_RBT.masked_fill(dropped[0] | dropped[1], 0.0)
        return replace(batch, adv_BT=adv_RBT)

    return change


def _replaying(whole: bool) -> Way:
    at = with_recipe(GUESS, "spear", "share", ("warm_up", EARLY if whole else 1))
    return Way(at, (0.25, 0.5, 0.75), True, partial(_changed, whole), pilots=4)


PLAIN = "self-imitation"
WAYS: Mapping[str, Way] = {
    "grpo": Way(with_recipe(GUESS, "grpo"), pilots=4),
    PLAIN: _replaying(False),
    "spear": _replaying(True),
}
ENTROPY = Family(WAYS, by="accuracy")
SEEDS, LATER, MORE, TIMES = 64, 30_000, 0.05, 1.25
"""Seeds of a run, offset past those of shorter runs; accuracy gain that counts, as in the arena; factor of
entropy that counts as kept. Set before the table."""


EXPERIMENT = ENTROPY.experiment(
    ("accuracy", "rise accuracy", "start", *(f"{end} val/entropy" for end in ("min", "max", "first"))),
    SEEDS,
    first=LATER,
    question="Does SPEAR keep the entropy that GRPO and plain self-imitation lose, and end higher?",
    source="Qin et al. (2025), SPEAR, arXiv:2509.22601; TencentYoutuResearch/SPEAR",
    differs="transformers of 4,000 weights; guesses in four turns, every answer a call of the tool; 48,000 "
    "responses; advantages standardized as in GRPO; replay fills a share of the batch from the last ten; "
    "bad groups are not filtered; shares of replay are tuned; the clip drops up to a fiftieth of the tokens, "
    "as the scripts do of replayed ones, where they drop one in 5,000 fresh ones",
    margins={"accuracy gained": MORE, "times the lowest entropy": TIMES},
    figure=strips("min val/entropy: lowest entropy, nats a token", "Shows the lowest entropy (base: 1.1) "
        "along 1,500 steps of guesses in four turns, each arm at its best rate for final accuracy: GRPO, "
        "replay of stored successes (self-imitation), and SPEAR: replay that grows, a reward of tool calls "
        "that fades, recalibrated advantages and a clip of covariances."),
    systems={"SPEAR": "one task; entropy only falls there; the least share of replay is best"},
)  # fmt: skip
LOWEST = {"outcome": "min val/entropy", "times": TIMES}
asks(EXPERIMENT,
    ("spear-ends-above-grpo", "SPEAR ends 0.05 more accurate than GRPO.", "spear", "grpo", MORE),
    ("spear-ends-above-plain-self-imitation", "SPEAR ends 0.05 more accurate than plain self-imitation.",
     "spear", PLAIN, MORE),
    ("spear-keeps-more-entropy-than-grpo", "SPEAR's lowest entropy along the run is 1.25 times GRPO's.",
     "spear", "grpo", {**LOWEST, "off": {"arm": PLAIN}}),
    ("spear-keeps-more-entropy-than-plain-self-imitation", "SPEAR's lowest entropy along the run is 1.25 "
     "times that of plain self-imitation.", "spear", PLAIN, LOWEST),
)  # fmt: skip
