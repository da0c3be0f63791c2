"""A toy LLM that states its confidence under a reward that likes confidence: PPO, PPO-M and PPO-C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot, Seeds, of_seeds
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import value_of
from analysis.worlds.edited_training import Arm, Maker, gained, trained
from envs.arrays import Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.base import World

NAME = "confidence-training"
LEARNERS = ("PPO", "PPO-M", "PPO-C")
SEEDS, TOKENS, COUNTED = 16, 9, 20
"""Confidences are 0 to 8 of 8; answers of the last steps are counted."""
BIAS, PRICE, WEIGHT, DECAY = 0.2, 0.5, 2.0, 0.9
"""Reward per unit of confidence; PPO-M's for right answers, its cost for wrong; PPO-C's weight and decay."""
ERROR, SAME = 0.05, 0.05
"""Calibration error that counts as lower, accuracy that counts as equal. Set before the table was made."""
EASY, LUCK = 3, 0.3
"""Digits of easy prompts; the others are ambiguous: their sums count as right with this chance."""
START = replace(
    SMALL, task="stated-sum", task_args=(("digits", 6), ("easy", EASY)),
    policy_args=(("heads", 2), ("layers", 1), ("width", 16)), steps=250, log_every=50, teacher_noise=0.05,
    learning_rate=3e-3, recipe="grpo", recipe_args=(("entropy", 0.03),),
)  # fmt: skip


@dataclass
class Tally:
    """Answers of the last steps by stated confidence: how many, and how many right, [R, 9] each."""

    said_RK: Floats = field(default_factory=lambda: np.zeros((0, TOKENS)))
    right_RK: Floats = field(default_factory=lambda: np.zeros((0, TOKENS)))

    def add(self, token_RB: Ints, right_RB: Floats) -> None:
        """Count a batch."""
        here_RBK = token_RB[..., None] == np.arange(TOKENS)
        said_RK, right_RK = here_RBK.sum(1), (here_RBK * right_RB[..., None]).sum(1)
        self.said_RK = self.said_RK + said_RK if len(self.said_RK) else said_RK
        self.right_RK = self.right_RK + right_RK if len(self.right_RK) else right_RK

    def error(self) -> Floats:
        """Expected calibration error, sum_k P(k) |P(right | k) - k/8|, [R]."""
        gap_RK = self.right_RK - self.said_RK * np.arange(TOKENS) / (TOKENS - 1)
        return np.asarray(np.abs(gap_RK).sum(-1) / self.said_RK.sum(-1))

    def confidence(self) -> Floats:
        """Mean stated confidence, [R]."""
        return np.asarray(self.said_RK @ np.arange(TOKENS) / (TOKENS - 1) / self.said_RK.sum(-1))


def rewarded(learner: str, tally: Tally) -> Maker:
    """Return what learns from the learner's reward, less its group's mean; Leng et al., equation 5."""

    def make(_: World, start_RP: Tensor) -> Any:
        import torch

        from testbed.advantages import advantage
        from testbed.data.signals import Signals

        level_R = start_RP.new_zeros(len(start_RP))

        def change(batch: Batch, rollout: Rollout, _: Tensor, step: int) -> Batch:
            token_RB, hard_RB = rollout.token_RBT[..., -1], (rollout.prompt_RNQ[..., EASY:-1] != 0).any(-1)
            lucky_RB = torch.from_numpy(np.random.default_rng(step).random(rollout.reward_RB.shape)) < LUCK
            ambiguous_RB = hard_RB.repeat_interleave(rollout.group, 1) & ~lucky_RB
            right_RB = rollout.reward_RB * ~ambiguous_RB
            said_RB = token_RB / (TOKENS - 1)
            if learner == "PPO-M":
                reward_RB = right_RB + PRICE * (2 * right_RB - 1) * (said_RB - 0.5)
            else:
                reward_RB = right_RB + BIAS * said_RB
            if learner == "PPO-C":
                kept = DECAY if step else 0.0
                level_R.copy_(kept * level_R + (1 - kept) * reward_RB.mean(-1))
                reward_RB = reward_RB + WEIGHT * (reward_RB - level_R[:, None]) * (said_RB - 0.5)
            if step >= START.steps - COUNTED:
                tally.add(token_RB.numpy(), right_RB.double().numpy())
            adv_RB = advantage["group_mean"].bind()(Signals(reward_RB, rollout.groups()))
            adv_RB1 = (adv_RB / adv_RB.std(-1, keepdim=True))[..., None]
            return replace(batch, adv_BT=adv_RB1.expand_as(batch.adv_BT))

        return change

    return make


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return calibration error, accuracy and mean confidence at the end, by learner."""
    for learner in LEARNERS:
        tally = Tally()
        found = trained(
            Arm(START, rewarded(learner, tally)), tuple(replace(START, seed=int(s)) for s in seeds)
        )
        accuracy = [value_of(cell, "accuracy") for _, cell in found.groupby("cell", sort=False)]
        yield pd.DataFrame(
            {"seed": seeds, "learner": learner, "error": tally.error(), "accuracy": accuracy}
            | {"confidence": tally.confidence()}
        )


EXPERIMENT = Experiment(
    NAME,
    question="Do PPO-M and PPO-C lower the calibration error of a toy LLM at equal accuracy?",
    source="Leng et al. (2024), Taming overconfidence in LLMs, arXiv:2410.09724",
    differs=(
        "a transformer of 4,000 weights; running sums, half of them ambiguous, and a token of confidence; "
        "GRPO's baseline in place of a critic; made rewards; an entropy bonus, no KL term"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"bias": BIAS, "weight": WEIGHT, "steps": START.steps}),
    keys=("run", "seed", "learner"),
    metrics=("error", "accuracy", "confidence"),
    margins={"calibration error": ERROR, "accuracy": SAME},
    figure=Plot("distribution", x="learner", y="error", y_label="calibration error"),
    systems=("PPO-M / PPO-C",),
)

for _learner in LEARNERS[1:]:
    EXPERIMENT.claim(
        f"{_learner.lower()}-calibrates-a-toy-llm",
        statement=f"{_learner}'s calibration error ends 0.05 below PPO's in a toy LLM, in the median.",
    )(partial(gained, by="learner", value="error", pairs=(("PPO", _learner),), margin=ERROR))
    EXPERIMENT.claim(
        f"{_learner.lower()}-keeps-a-toy-llms-accuracy",
        statement=f"{_learner} ends at most 0.05 less accurate than PPO in a toy LLM, in the median.",
    )(partial(gained, by="learner", value="accuracy", pairs=((_learner, "PPO"),), margin=-SAME))
