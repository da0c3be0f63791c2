"""Self-Rewarding PPO in the toy LLM: after few demonstrations, RL on log(SFT/base) at prompts without any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Part, Plot
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, swept
from testbed.rng import generator

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.world import World

NAME = "self-rewarded-training"
SEEDS, RATES, MORE = 64, (1e-4, 3e-4, 1e-3), 0.02
"""The margin is accuracy at unseen prompts. Set before the table was made."""
FEW, MANY, LESSONS, LESSON_RATE = 32, 128, 200, 3e-3
"""Demonstrations, and supervised steps on all of them at once."""
HELD = 0.5
"""Coefficient of the KL to the policy after SFT."""
BASE = replace(
    SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)), steps=100, log_every=10,
    teacher_noise=0.35, recipe="grpo", evaluation_prompts=128,
)  # fmt: skip


@cache
def _taught(seeds: tuple[int, ...], demonstrations: int) -> list[Tensor]:
    """Return a place for the weights after SFT, which arms of the same seeds share."""
    del seeds, demonstrations
    return []


def taught(demonstrations: int) -> Any:
    """Return what trains the base on so many demonstrations."""

    def begin(world: Any, base_RP: Tensor) -> Tensor:
        import torch

        from testbed.policies.optimizers import Adam

        held = _taught(world.seeds, demonstrations)
        if held:
            return held[0]
        lessons = []
        for seed in world.seeds:
            stream = generator(seed, f"{NAME}/demonstrations")
            prompt_NQ = world.task.prompts(stream, demonstrations)
            lessons.append((prompt_NQ, *world.task.teacher(prompt_NQ, stream, 0.0)))
        prompt, token, mask = (torch.from_numpy(np.stack(part)) for part in zip(*lessons, strict=True))
        theta_RP, optimizer = base_RP.clone(), Adam(base_RP)
        rate_R = base_RP.new_full((len(base_RP),), LESSON_RATE)
        for _ in range(LESSONS):
            leaf_RP = theta_RP.detach().requires_grad_()
            loss = -world.policy.logp(leaf_RP, prompt, token, mask).mean((1, 2)).sum()
            theta_RP = optimizer.step(theta_RP, torch.autograd.grad(loss, leaf_RP)[0], rate_R)
        held.append(theta_RP.detach())
        return held[0]

    return begin


def self_rewarded(demonstrations: int, kl: float) -> Any:
    """Return what gives a response its group's advantage of log(SFT/base) - kl log(pi/SFT)."""

    def make(world: World, base_RP: Tensor) -> Any:
        import torch

        from testbed.advantages.grouped import group_std
        from testbed.data.signals import Signals

        sft_RP = taught(demonstrations)(world, base_RP)

        def change(batch: Batch, rollout: Rollout, logp: Tensor, _step: int) -> Batch:
            with torch.no_grad():
                sft_RBT = world.logp(sft_RP, rollout)
                gain_RBT = sft_RBT - world.logp(base_RP, rollout) - kl * (logp - sft_RBT)
            adv_RB = group_std(Signals((gain_RBT * batch.mask_BT).sum(-1), rollout.groups()))
            return replace(batch, adv_BT=adv_RB[..., None] * batch.mask_BT)

        return change

    return make


ARMS: Mapping[str, Arm] = {
    f"{count}, kl {kl:g}": Arm(BASE, self_rewarded(count, kl), rates=RATES, begin=taught(count))
    for count, kl in ((FEW, 0.0), (FEW, HELD), (MANY, HELD))
}
METRICS = ("accuracy", "start", "best", "val/entropy")


EXPERIMENT = Experiment(
    NAME,
    question="Does RL on log(SFT/base) at prompts without demonstrations end above SFT at unseen prompts?",
    source="Self-Rewarding PPO (2025): reward log(pi_SFT/pi_base), on-policy",
    differs=(
        "a transformer of 4,000 weights on six running sums, prompts of one kind; GRPO's advantage of the "
        "reward of whole responses in place of PPO's critic; a KL to the policy after SFT, or none"
    ),
    compute=swept(NAME, ARMS, METRICS, SEEDS, {"lessons": LESSONS, "rates": "of 3 on 2 tuning seeds"}),
    keys=("run", "arm", "seed"),
    metrics=("rate", *METRICS),
    margins={"accuracy": MORE},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy at unseen prompts of a transformer of 4,000 weights on six running sums: "
        "after supervised training on so many demonstrations (the first number), 100 steps of GRPO at fresh "
        "prompts whose reward is the log-ratio of the model so trained to its base, less a KL to it of the "
        "coefficient named.",
    ),
    systems={"Self-Rewarding PPO": Part("prompts of one kind; none beyond it")},
)


def at_end(table: pd.DataFrame) -> str:
    """Return which arm on few demonstrations has the least or largest rate that was tried; "" for none."""
    rows = table[table["arm"].str.startswith(f"{FEW},") & table["rate"].isin((RATES[0], RATES[-1]))]
    arms = sorted(set(rows["arm"]))
    return f"at an end of its grid: {', '.join(arms)}" if arms else ""


GATES = {"tuned": at_end}
FEW_ARM, MANY_ARM = f"{FEW}, kl {HELD:g}", f"{MANY}, kl {HELD:g}"


def gain(table: pd.DataFrame) -> pd.Series:
    """Return accuracy less that of SFT."""
    return table["accuracy"] - table["start"]


def trained_or_taught(table: pd.DataFrame) -> pd.Series:
    """Return final accuracy on few demonstrations, and on many that of SFT."""
    return table["accuracy"].where(table["arm"] == FEW_ARM, table["start"])


EXPERIMENT.claim(
    "self-rewarding-ends-above-sft-at-unseen-prompts",
    "From SFT on 32 demonstrations, 100 steps on log(SFT/base) at fresh prompts end 0.02 more accurate at "
    "unseen prompts than SFT alone, in the median over seeds.",
    gates=GATES,
).compare(gain, {"arm": f"{FEW}, kl 0"}, by=MORE, typical="median", null=0.0)

EXPERIMENT.claim(
    "held-self-rewarding-ends-above-sft",
    "From SFT on 32 demonstrations, 100 steps on log(SFT/base) with a KL to SFT of coefficient 0.5 at fresh "
    "prompts end 0.02 more accurate at unseen prompts than SFT alone, in the median over seeds.",
    gates=GATES,
).compare(gain, {"arm": FEW_ARM}, by=MORE, typical="median", null=0.0)

EXPERIMENT.claim(
    "self-rewarding-saves-demonstrations",
    "So held, on 32 demonstrations it ends at most 0.02 below SFT alone on 128, in the median.",
    gates=GATES,
).compare(trained_or_taught, {"arm": FEW_ARM}, {"arm": MANY_ARM}, by=-MORE, typical="median")
