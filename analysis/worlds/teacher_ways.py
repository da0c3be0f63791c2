"""Ways of learning from oneself with the solution in view, beside GRPO, after as many tokens.

Models of 4,000 weights write six running sums modulo 4, in prompts with room for the solution, which half of
the base model's lessons show. `python -m analysis.worlds.teacher_ways` chooses the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, Maker
from analysis.worlds.tuned_training import Family, Way

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.world import World

RESPONSES, LOOKS = 1600, 80
"""Responses of a run, and how often it is evaluated."""
HINTED = replace(
    SMALL, task="hinted-sum", task_args=(("digits", 6), ("modulus", 4)), teacher_noise=0.35,
    policy_args=(("heads", 2), ("layers", 1), ("width", 16)), warm_start_steps=2000, evaluation_prompts=32,
    recipe="grpo",
)  # fmt: skip
"""Base models all know how sums are written, but err at a third of the steps."""
SIZES, RATES = (1, 2, 4, 8, 16), (1.8e-3, 3e-3, 5.6e-3)
"""Prompts a step, and rates that are tried first."""


def distilled(*, shown: bool) -> Maker:
    """Return what learns KL(student || teacher), over all tokens at the student's places, and no reward.

    The teacher is the model at the start, with the solution in its prompt where it is shown (OPSD).
    """

    def make(world: World, start_RP: Tensor) -> Any:
        import torch

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
    "grpo": Way(_sized(8), SIZES, True, rates=RATES),
    "opsd": Way(_sized(1, distilled(shown=True)), SIZES, True, rates=RATES),
    "opsd, nothing shown": Way(_sized(1, distilled(shown=False)), SIZES, like="opsd"),
}
TAUGHT = Family(WAYS, Path(__file__).with_suffix(".csv"), by="area")

if __name__ == "__main__":
    TAUGHT.choose()
