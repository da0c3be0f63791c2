"""Seldom right: own successes replayed, begun from, or imitated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, arm, happens_mostly, median_exceeds
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, Maker, gained, swept

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.base import World

NAME = "success-replay"
SEEDS, RATES, MORE = 16, (1e-3, 3e-3, 1e-2), 0.02
"""The margin is accuracy or area. Set before the table was made."""
TWICE, THRICE = 2.0, 3.0
"""PrefixRL: by which factor sooner, and higher at the end."""
CUT = 0.1
"""Share of the replayed tokens that the clip drops."""
SPARSE = replace(
    SMALL,
    policy_args=(("heads", 2), ("layers", 1), ("width", 16)),
    steps=200,
    log_every=20,
    teacher_noise=0.48,
)
STORE = (("ask", 256), ("attempts", 32), ("tokens", 5))


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


def imitated_first(batch: Batch, rollout: Rollout, logp: Tensor, step: int) -> Batch:
    """Learn from the start's successes alone, as supervised, in the first half; then as the recipe does."""
    if step >= IMITATED:
        return batch
    adv_BT = rollout.reward_RB[..., None] * batch.mask_BT
    return replace(batch, adv_BT=adv_BT, logp_mu_BT=logp, logp_anchor_BT=logp)


IMITATED = 100
SPEAR = replace(SPARSE, recipe="spear", recipe_args=(("warm_up", 100),))
ARMS: Mapping[str, Arm] = {
    "grpo": Arm(SPARSE),
    "own, stored": Arm(SPEAR, _per(as_stored)),
    "own, recalibrated": Arm(SPEAR),
    "own, clipped": Arm(SPEAR, _per(clipped_by_covariance)),
    "falling prefixes": Arm(replace(SPARSE, prefix="stored", prefix_args=(*STORE, ("law", "falling")))),
    "replayed": Arm(replace(SPARSE, staleness="replay", staleness_args=(("share", 0.5),))),
    "imitated, then grpo": Arm(SPARSE, _per(imitated_first), early=IMITATED),
}
METRICS = (
    *("accuracy", "best", "start", "area", "collapsed", "steps_to 0.3", "rollouts_to 0.3", "rollouts"),
    "val/entropy",
)
TUNED = {name: replace(arm, rates=RATES) for name, arm in ARMS.items()}
ABOUT = {"base success": "1 in 100", "rates": "of 3 on 2 tuning seeds"}

EXPERIMENT = Experiment(
    NAME,
    question="What do own successes give a toy LLM that is seldom right?",
    source="SPEAR (2025), arXiv:2509.22601; PrefixRL (2026), arXiv:2601.18795; and others, as claims say",
    differs=(
        "a transformer of 4,000 weights on six running sums; SPEAR's clip drops the largest covariances, no "
        "random share of those above 1"
    ),
    compute=swept(NAME, TUNED, METRICS, SEEDS, ABOUT),
    keys=("run", "arm", "seed"),
    metrics=("rate", *METRICS),
    margins={"accuracy or area": MORE, "PrefixRL sooner by": TWICE, "PrefixRL higher by": THRICE},
    figure=Plot("strips", x="accuracy: final accuracy", y="arm"),
    systems={
        "SPEAR": Part(claims=("own-successes-rise-sooner", "recalibration-keeps-entropy-that-stored-loses",
                              "covariance-clip-keeps-entropy", "recalibrated-successes-do-not-collapse")),
        "PrefixRL (Reuse your FLOPs)": Part(
            claims=("prefixes-take-half-the-rollouts", "prefixes-end-three-times-as-high",
                    "prefixes-end-above-imitation-and-replay")
        ),
    },
)  # fmt: skip


SPEAR_SAYS = "Qin et al. (2025), SPEAR, arXiv:2509.22601"
PREFIX_SAYS = "Setlur et al. (2026), PrefixRL, arXiv:2601.18795"
OWN = "own, recalibrated"
for _name, _value, _pairs, _margin, _source, _statement in (
    ("own-successes-rise-sooner", "area", ((OWN, "grpo"),), MORE, SPEAR_SAYS,
     "Replayed successes with recalibrated advantages have 0.02 more accuracy over training than GRPO."),
    ("recalibration-keeps-entropy-that-stored-loses", "val/entropy", ((OWN, "own, stored"),), 0.0, SPEAR_SAYS,
     "With recalibrated advantages replay ends with more entropy than with stored ones, in the median."),
    ("covariance-clip-keeps-entropy", "val/entropy", (("own, clipped", OWN),), 0.0, SPEAR_SAYS,
     "Without the tenth of replayed tokens of largest covariance it ends with more entropy, in the median."),
    ("prefixes-end-above-imitation-and-replay", "accuracy",
     (("falling prefixes", "imitated, then grpo"), ("falling prefixes", "replayed")), MORE, PREFIX_SAYS,
     "Falling prefixes of own successes end 0.02 more accurate than 100 steps of imitation of such before "
     "GRPO, and than GRPO with half of every batch replayed."),
):  # fmt: skip
    EXPERIMENT.claim(_name, source=_source, statement=_statement)(
        partial(gained, value=_value, pairs=_pairs, margin=_margin)
    )


@EXPERIMENT.claim(
    "recalibrated-successes-do-not-collapse",
    source=SPEAR_SAYS,
    statement="With recalibrated advantages replay does not collapse and keeps 0.02 nats, on most seeds.",
)
def stays(table: pd.DataFrame) -> Evidence:
    """Return the evidence of seeds."""
    well = (arm(table, "collapsed", {"arm": OWN}) < 0.5) & (arm(table, "val/entropy", {"arm": OWN}) > 0.02)
    return happens_mostly(well, "share of seeds")


@EXPERIMENT.claim(
    "prefixes-take-half-the-rollouts",
    source=PREFIX_SAYS,
    statement=(
        "Counting the 8,192 responses that filled the store, falling prefixes of own successes reach an "
        "accuracy of 0.3 without a prefix in half of GRPO's rollouts, on most seeds."
    ),
)
def half(table: pd.DataFrame) -> Evidence:
    """Return the evidence of seeds; never counts as more than any."""
    with_, plain = (
        arm(table, "rollouts_to 0.3", {"arm": name}).fillna(np.inf) for name in ("falling prefixes", "grpo")
    )
    note = f"share of seeds; medians {with_.median():g} and {plain.median():g}"
    return happens_mostly(np.isfinite(with_) & (TWICE * with_ <= plain), note)


@EXPERIMENT.claim(
    "prefixes-end-three-times-as-high",
    source=PREFIX_SAYS,
    statement="After as many steps falling prefixes end with three times GRPO's accuracy, in the median.",
)
def thrice(table: pd.DataFrame) -> Evidence:
    """Return the evidence about accuracy less three times GRPO's."""
    with_, plain = (arm(table, "accuracy", {"arm": name}) for name in ("falling prefixes", "grpo"))
    return median_exceeds(with_ - THRICE * plain, 0.0, "median of the accuracy less three times GRPO's")
