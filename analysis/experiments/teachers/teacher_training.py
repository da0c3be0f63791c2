"""Self-distillation in the toy LLM from a copy that sees the solution, and the tokens it needs.

Models of 4,000 weights write six running sums modulo 4. Prompts have blanks for the solution, which half of
the base model's lessons show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.kernels.on_use import torch
from analysis.lab import Experiment, Frame, ask, inside, of_seeds, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.edited_training import Arm, Maker
from analysis.worlds.tuned_training import PILOTS, Family, Way

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Batch, Rollout, Tensor, World


RESPONSES, LOOKS = 1600, 80
"""Responses of a run, and responses between evaluations."""
HINTED = replace(
    TINY, task="hinted-sum", task_args=(("digits", 6), ("modulus", 4)), teacher_noise=0.35,
    warm_start_steps=2000, evaluation_prompts=32, recipe="grpo",
)  # fmt: skip
"""All base models know how sums are written, but err at a third of the steps."""
SIZES, RATES = (1, 2, 4, 8, 16), (1.8e-3, 3e-3, 5.6e-3)
"""Prompts per step, and first rates to try."""


def distilled(*, shown: bool) -> Maker:
    """Return the edit that minimizes KL(student || teacher) at the student's tokens, and ignores the reward.

    The teacher is the initial model, with the solution in its prompt where it is shown (OPSD).
    """

    def make(world: World, start_RP: Tensor) -> Any:
        wrote: list[Rollout] = []
        policy: Any = getattr(world, "policy")  # noqa: B009 - of token worlds alone

        def divergence(theta_RP: Tensor) -> Tensor:
            rollout = wrote[-1]
            prompt_RNQ = (world.with_solutions(rollout) if shown else rollout).prompt_RNQ
            with torch.no_grad():
                ref_RBTV = policy.log_distribution(start_RP, prompt_RNQ, rollout.token_RBT)
            own_RBTV = policy.log_distribution(theta_RP, rollout.prompt_RNQ, rollout.token_RBT)
            found: Tensor = (own_RBTV.exp() * (own_RBTV - ref_RBTV)).sum(-1).mean((1, 2))
            return found

        setattr(world, "penalty", divergence)  # noqa: B010

        def change(batch: Batch, rollout: Rollout, _logp: Tensor, _step: int) -> Batch:
            wrote[:] = [rollout]
            return replace(batch, adv_BT=0 * batch.adv_BT)

        return change

    return make


def _sized(group: int, change: Maker | None = None) -> Callable[[float], Arm]:
    def at(prompts: float) -> Arm:
        steps = RESPONSES // (group * int(prompts))
        run = replace(HINTED, prompts=int(prompts), group=group, steps=steps)
        return Arm(replace(run, log_every=max(1, steps // LOOKS)), change)

    return at


WAYS: Mapping[str, Way] = {
    "grpo": Way(_sized(8), SIZES, True, rates=RATES, pilots=4),
    "opsd": Way(_sized(1, distilled(shown=True)), SIZES, True, rates=RATES, pilots=4),
    "opsd, nothing shown": Way(_sized(1, distilled(shown=False)), SIZES, like="opsd"),
}
TAUGHT = Family(WAYS, by="area")


NAME = "teacher-training"
SEEDS, LEVEL, FEWER, NEARLY = 32, 0.5, 4.0, 0.9
"""Seeds of a run; accuracy to reach; smallest factor of tokens that the source promises; share of an arm's
runs that must reach it. Set before the table was made."""
FRESH, KNOWS = 20_000, 0.05
"""First seed, and the least accuracy of a base model. Of earlier pairs, 7 of 15 below it reached the level,
and 47 of 49 above."""
REACHED = f"rollouts_to {LEVEL:g}"
METRICS = ("accuracy", "start", "area", "best", REACHED)
ARMS = ("grpo", "opsd", "opsd, nothing shown")


def rows(seeds: Sequence[Any]) -> Frame:
    """Return a row per arm and seed, each arm at its best settings on pilot seeds.

    The seeds are the first from FRESH on whose base model solves the share KNOWS of the held-out sums: others
    are no teachers. A run that never reaches the level counts as reaching it with its last response.
    """
    met = [FRESH + seeds[0] + n for n in range(2 * len(seeds))]
    plain = TAUGHT.table(METRICS, met, ARMS[:1])
    able = plain[plain["start"] >= KNOWS]["seed"].tolist()[: len(seeds)]
    found = pd.concat([plain[plain["seed"].isin(able)], TAUGHT.table(METRICS, able, ARMS[1:])])
    found["arrives"] = found[REACHED].notna().astype(int)
    found[REACHED] = found[REACHED].fillna(RESPONSES)
    return found


def arriving(table: Frame) -> str:
    """Return the compared arm with too many runs that never reach the level; "" if there is none."""
    share = table[table["arm"].isin(ARMS[:2])].groupby("arm")["arrives"].mean()
    return "; ".join(f"{x:.2f} of {arm} arrive" for arm, x in share.items() if x < NEARLY)


EXPERIMENT = Experiment(
    question="How many tokens does a toy LLM save by learning from a copy of itself that sees the solution?",
    source="Self-Distilled Reasoner (OPSD, 2026)",
    differs="transformers of 4,000 weights, right on at least a twentieth of the sums at the start; six "
    "sums modulo 4, of six tokens whoever writes them; the teacher is the initial model, and the loss the "
    "reverse KL over all tokens",
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS, "responses": RESPONSES}),
    keys=("run", "arm", "seed"), metrics=("rate", "knob", "at end", "arrives", *METRICS),
    budget="1,600 responses",
    margins={"accuracy to be reached": LEVEL, "factor of tokens": FEWER},
    figure=strips(f"{REACHED}: responses to an accuracy of {LEVEL:g}", "Shows the responses, of six tokens "
        "each, after which transformers of 4,000 weights are right on half of the held-out sums: by GRPO in "
        "groups of 8, or by distillation of one response per prompt from the initial model that sees the "
        "solution (OPSD) or does not; rates and prompts per step are each arm's best on pilot seeds; 1,600 "
        "stands for runs that never get there."),
    systems={"OPSD (Self-Distilled Reasoner)": "responses of equal length, so shorter ones cannot save "
             "tokens"},
)  # fmt: skip

ask(EXPERIMENT, "self-distillation-needs-a-quarter-of-the-tokens", "From itself with the solution in view, "
    "by one response a prompt, a model reaches an accuracy of 0.5 in at most a quarter of the tokens that "
    "GRPO takes, in the median over seeds.", "opsd", "grpo", outcome=REACHED, times=1 / FEWER, below=True,
    typical="median", off={"arm": "opsd, nothing shown"},
    gates={"tuned": inside(arm=ARMS[:2]), "headroom": arriving})  # fmt: skip
