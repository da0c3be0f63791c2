"""Self-Rewarding PPO in the toy LLM: after few demonstrations, RL on log(SFT/base) at other prompts.

Models of 4,000 weights write six running sums; demonstrations are few, or only of easy prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.kernels.on_use import torch
from analysis.lab import Frame, Part, asks, generator, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.edited_training import Arm, lessons
from analysis.worlds.tuned_training import Family, Way
from testbed.config.run import Run

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Reward, Rollout, Tensor, World


LESSONS, LESSON_RATE = 200, 3e-3
"""Supervised steps, each on all demonstrations."""
BASE = replace(TINY, steps=100, log_every=10, teacher_noise=0.35, recipe="grpo", evaluation_prompts=128)
CRITIC = replace(BASE, recipe="ppo", recipe_args=(("lam", 1.0),), critic="head")


@dataclass(frozen=True)
class Shown:
    """Number of demonstrations, with all digits of a prompt below a limit (0: no limit)."""

    count: int = 32
    below: int = 0

    def __call__(self, world: Any, base_RP: Tensor) -> Tensor:
        """Return the base after lessons on them; arms of one seed share the weights."""
        if (world.seeds, self) not in TAUGHT:
            TAUGHT[world.seeds, self] = self._taught(world, base_RP)
        return TAUGHT[world.seeds, self]

    def _taught(self, world: Any, base_RP: Tensor) -> Tensor:
        prompts, answers = [], []
        for seed in world.seeds:
            stream = generator(seed, "self-rewarded-training/demonstrations")
            prompt_NQ = world.task.prompts(stream, self.count)
            if self.below:
                prompt_NQ[:, :-1] %= self.below
            prompts.append(prompt_NQ)
            answers.append(world.task.teacher(prompt_NQ, stream, 0.0)[0])
        return lessons(world, base_RP, [(np.stack(prompts), np.stack(answers))] * LESSONS, LESSON_RATE)


TAUGHT: dict[tuple[tuple[int, ...], Shown], Tensor] = {}


def self_rewarded(
    shown: Shown, kl: float, *, base: bool = True, own: bool = True
) -> Callable[[World, Tensor], Reward]:
    """Return the maker of the reward log(SFT/base) - kl log(pi/SFT) of a response, summed over its tokens.

    base: False rewards the log-likelihood under SFT alone. own: False rewards it as the response in the same
    place for the prompt before.
    """

    def make(world: World, base_RP: Tensor) -> Reward:
        sft_RP = shown(world, base_RP)

        def reward(rollout: Rollout, logp: Tensor) -> Tensor:
            with torch.no_grad():
                sft_RBT = world.logp(sft_RP, rollout)
                gain_RBT = sft_RBT - base * world.logp(base_RP, rollout)
                gain_RBT = gain_RBT if own else gain_RBT.roll(rollout.group, 1)
                return ((gain_RBT - kl * (logp - sft_RBT)) * rollout.mask_RBT).sum(-1)

        return reward

    return make


def _from(shown: Shown, run: Run = BASE, **more: bool) -> Callable[[float], Arm]:
    return lambda kl: Arm(run, reward=self_rewarded(shown, kl, **more), begin=shown)


FEW, FEWER, EASY = Shown(), Shown(8), Shown(below=4)
KLS, RATES = (0, 0.3, 1, 3, 10, 30), (1e-4, 3e-4, 1e-3, 1.8e-3, 3e-3, 5.6e-3)
"""Coefficients of the KL to SFT, and first rates; rate 0 or a large coefficient stays near SFT."""


def _ways(name: str, shown: Shown, run: Run = BASE) -> dict[str, Way]:
    return {
        name: Way(_from(shown, run), KLS, True, rates=RATES),
        f"{name}, others' rewards": Way(_from(shown, run, own=False), KLS, True, rates=RATES),
    }


WAYS: Mapping[str, Way] = (
    _ways("few", FEW)
    | _ways("easy", EASY)
    | _ways("fewer", FEWER)
    | _ways("few, critic", FEW, CRITIC)
    | {"easy, no base": Way(_from(EASY, base=False), KLS, True, rates=RATES)}
)
SELF = Family(WAYS)


SEEDS, MOST, FRESH, MORE = 64, 320, 20_000, 0.02
"""Seeds of a run, and of an open claim, offset past those of other tables; margin at unseen prompts. Set
before the table."""
OPEN = ("few", "few, others' rewards", "few, critic", "few, critic, others' rewards")
METRICS = ("accuracy", "start", "best", "val/entropy")


EXPERIMENT = SELF.experiment(
    METRICS, MOST, (((), SEEDS), (OPEN, MOST)), FRESH,
    question="Does RL on log(SFT/base) at prompts without demonstrations end above SFT and as much training?",
    source="Self-Rewarding PPO (2025): reward log(pi_SFT/pi_base), on-policy",
    differs="transformers of 4,000 weights on six running sums; whole responses are rewarded; advantages are "
    "GRPO's, and with a critic PPO's at lambda 1; prompts beyond the demonstrations have digits that these "
    "lack",
    margins={"accuracy": MORE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy at unseen prompts of transformers of "
        "4,000 weights on six running sums, after supervised training on 32 demonstrations of any prompts "
        "(few), on eight (fewer) or on 32 of prompts with small digits (easy) and 100 steps of GRPO, or of "
        "PPO with a critic, at fresh prompts; the reward is the log-ratio of the trained model to its base, "
        "minus a tuned multiple of the KL to it; or its log-likelihood without the base; or the log-ratio of "
        "responses to other prompts, with multiple and rate tuned alike."),
    systems={
        "Self-Rewarding PPO": Part(
            "beyond its demonstrations rewards of responses to other prompts do as well",
            ("self-rewarding-*", "self-rewards-*"),
        )
    },
)  # fmt: skip


def gain(table: Frame) -> pd.Series:
    """Return accuracy minus that of SFT."""
    return table["accuracy"] - table["start"]


asks(EXPERIMENT,
    ("self-rewarding-ends-above-sft-at-unseen-prompts", "From SFT on 32 demonstrations, 100 steps on "
     "log(SFT/base) at fresh prompts end 0.02 more accurate at unseen prompts than SFT alone, in the median "
     "over seeds.", "few", None, {"off": {"arm": "few, others' rewards"}}),
    ("self-rewarding-with-a-critic-ends-above-sft-at-unseen-prompts", "From SFT on 32 demonstrations, 100 "
     "steps of PPO with a critic on log(SFT/base) at fresh prompts end 0.02 more accurate at unseen prompts "
     "than SFT alone, in the median over seeds.", "few, critic", None,
     {"off": {"arm": "few, critic, others' rewards"}}),
    ("self-rewarding-ends-above-sft-beyond-its-demonstrations", "From SFT on 32 demonstrations of small "
     "digits, 100 steps on log(SFT/base) at prompts with all digits end 0.02 more accurate there than SFT "
     "alone, in the median over seeds.", "easy", None, {"off": {"arm": "easy, others' rewards"}}),
    outcome=gain, by=MORE, null=0.0, typical="median",
)  # fmt: skip

asks(EXPERIMENT,
    ("self-rewards-beat-others-rewards-at-unseen-prompts", "From SFT on 32 demonstrations, 100 steps on "
     "log(SFT/base) at fresh prompts end 0.02 more accurate at unseen prompts than as many on the log-ratios "
     "of responses to other prompts, tuned alike, for which rate 0 is SFT.", "few",
     "few, others' rewards"),
    ("self-rewards-with-a-critic-beat-others-rewards-at-unseen-prompts", "From SFT on 32 demonstrations, 100 "
     "steps of PPO with a critic on log(SFT/base) at fresh prompts end 0.02 more accurate at unseen prompts "
     "than as many on the log-ratios of responses to other prompts, tuned alike, for which rate 0 is SFT.",
     "few, critic", "few, critic, others' rewards"),
    ("self-rewards-beat-others-rewards-after-eight-demonstrations", "From SFT on eight demonstrations, 100 "
     "steps on log(SFT/base) at fresh prompts end 0.02 more accurate at unseen prompts than as many on the "
     "log-ratios of responses to other prompts, tuned alike, for which rate 0 is SFT.", "fewer",
     "fewer, others' rewards"),
    ("self-rewards-beat-others-rewards-beyond-the-demonstrations", "From SFT on 32 demonstrations of small "
     "digits, 100 steps on log(SFT/base) at prompts with all digits end 0.02 more accurate there than as "
     "many on the log-ratios of responses to other prompts, tuned alike, for which rate 0 is SFT.", "easy",
     "easy, others' rewards"),
    ("the-base-in-the-reward-helps", "Beyond the demonstrations log(SFT/base) as the reward ends 0.02 more "
     "accurate than log SFT.", "easy", "easy, no base"),
    by=MORE,
)  # fmt: skip
