"""DR-PO: PPO that is reset to random states of stored answers, against PPO and DPO, each arm tuned."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.experiments.rewards.reward_arms import DRPO, LITTLE, SELDOM, held
from analysis.lab import asks, strips
from analysis.worlds.edited_training import Arm
from analysis.worlds.tuned_training import PILOTS, Family, Way, with_recipe

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Tensor
    from testbed.prefixes.prefix_source import Asked
    from testbed.prefixes.traces import Traces

SEEDS, FEWER, LATER, SHARES = 96, 32, 340_000, (0.25, 0.5, 0.75, 1.0)
"""Seeds of a run, those of DPO, offset past those of other tables; shares of prompts that are reset."""


def preferred(asked: Asked, count: int) -> Traces:
    """Return the last prompts' preferred answers: of a group by the base model, the best by the reward."""
    from testbed.prefixes.traces import Traces

    prompt_RNQ = asked.prompt_RNQ[:, asked.prompt_RNQ.shape[1] - count :]
    found = asked.collect(prompt_RNQ, asked.group, asked.step)
    best_RN1 = found.reward_RB.unflatten(1, (count, -1)).argmax(-1, keepdim=True).cpu().numpy()
    token_RNGT = found.token_RBT.unflatten(1, (count, -1)).cpu().numpy()
    token_RNT = np.take_along_axis(token_RNGT, best_RN1[..., None], axis=2)[:, :, 0]
    return Traces(prompt_RNQ, token_RNT, np.full(token_RNT.shape[:2], token_RNT.shape[-1]))


def _reset(share: float, stored: bool = False) -> Arm:
    """Return PPO, at its best KL coefficient without resets, with a share of its prompts reset."""
    arm = held(SELDOM)(RESETS.value("ppo"))
    how = (("share", share), ("tokens", 9), ("distribution", "uniform"))

    def begin(world: Any, base_RP: Tensor) -> Tensor:
        if stored:
            # The source of prefixes stays, but begins from answers of the base in place of right ones.
            world.prefixes.traces = preferred
        return base_RP

    return replace(arm, run=replace(arm.run, prefix="teacher", prefix_args=how), begin=begin)


way = partial(Way, rates=(5.6e-4, 1e-3, 1.8e-3), pilots=8)
OFFLINE = with_recipe(SELDOM, "online_dpo", "beta", lag=SELDOM.steps)
RESETS = Family({
    "ppo": way(held(SELDOM), (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)),
    "resets": way(_reset, SHARES, True),
    "stored resets": way(lambda share: _reset(share, True), SHARES, True),
    "dpo": way(OFFLINE, (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8), pilots=PILOTS),
})  # fmt: skip

EXPERIMENT = RESETS.experiment(
    ("accuracy", "area", "start", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    SEEDS, (((), SEEDS), (("dpo",), FEWER)), LATER,
    question="Do resets to random states of stored answers help PPO on a learned reward?",
    source=DRPO,
    differs="toy transformers that sort ten digits, right once in 170 answers; the reward model is linear in "
    "right places and fitted to 512 comparisons; stored answers are the base's, eight a prompt, of which "
    "resets take the best by the reward model and DPO the best and the worst; others take right answers",
    margins={"accuracy": LITTLE},
    figure=strips("accuracy: final accuracy", "Shows final true accuracy of toy transformers that sort ten "
        "digits, trained on a reward model of 512 comparisons, by PPO with a KL penalty, by PPO with a share "
        "of its prompts reset to random states of right answers or of the base's preferred ones (stored), "
        "and by DPO on the base's answers, each at its best setting."),
    systems={"DR-PO (Dataset Reset)": "a small model; an answer of the base is rarely right"},
)  # fmt: skip

BASE = "From a base right once in 170 answers, PPO with its best share of prompts reset to random states of"
asks(EXPERIMENT,
    ("resets-to-stored-answers-end-above-ppo", f"{BASE} stored preferred answers ends 0.05 more accurate "
     "than without.", "stored resets", "ppo"),
    ("resets-to-stored-answers-end-above-dpo", f"{BASE} stored preferred answers ends 0.05 more accurate "
     "than DPO on stored answers.", "stored resets", "dpo"),
    ("resets-to-right-answers-end-above-ppo", f"{BASE} right answers ends 0.05 more accurate than without.",
     "resets", "ppo"),
    ("resets-to-right-answers-end-above-dpo", f"{BASE} right answers ends 0.05 more accurate than DPO on "
     "stored answers.", "resets", "dpo"),
    by=LITTLE,
)  # fmt: skip
