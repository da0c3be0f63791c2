"""Ways of learning from a reward model: PPO and its constraints, pairs, resets, windows and entropy control.

Models of 4,000 weights write running sums of six digits, or of 7,000 ten digits in order; the reward model is
fitted to 512 comparisons, a quarter of which are wrong. Scores are accuracies by the task itself. `python -m
analysis.worlds.reward_ways` chooses the settings, arm by arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.arena.tasks import task
from analysis.sweeps.base_runs import SMALL
from analysis.worlds.edited_training import Arm, Maker
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe
from testbed.config.run import Arguments, Run
from testbed.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout
    from testbed.worlds.world import World

SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
GOOD: Arguments = (("blind", 0), ("pairs", 512), ("wrong", 0.25))
PROXY = replace(
    SMALL,
    policy_args=SHAPE,
    steps=150,
    log_every=15,
    teacher_noise=0.4,
    verifier="comparisons",
    verifier_args=GOOD,
)
SORTED, SLOWER = task("sorted"), (3e-4, 5.6e-4, 1e-3, 1.8e-3, 3e-3)
"""Ten digits in order, where base models differ less in what they can learn than on sums; its rates."""
SELDOM = replace(SORTED, teacher_noise=0.4, verifier="comparisons", verifier_args=GOOD)
"""Right once in a hundred, by pilot seeds."""
CRITICAL: dict[str, Any] = {"recipe": "ppo", "critic": "head"}
FULL = (("eps", 0.2), ("normalize", True), ("passes", 2))
GOLD = replace(
    SMALL, policy_args=SHAPE, steps=100, log_every=10, teacher_noise=0.35, recipe="ppo", critic="head"
)
HALVES = replace(GOLD, staleness="windowed", staleness_args=(("tokens", 3),), steps=200, log_every=20)
TARGET = 0.2
"""KL per token to the start, in nats, that controllers aim at."""
BETAS, LAMBDAS = (0.001, 0.01, 0.05, 0.2, 1.0), (0.5, 0.8, 0.95, 0.99, 1.0)


def clipped(reward: Tensor) -> Tensor:
    """Return standardized rewards cut at 3 standard deviations."""
    return reward.clamp(-3, 3)


@dataclass(frozen=True)
class Control:
    """The control rule of a penalty's coefficient beta, from the current KL and its target.

    beta: at the start, and for good where all gains are 0. With the error e = KL / target - 1, cut at 1, the
    coefficient is beta exp(proportional e + integral (sum of e) + derivative (change of e)).
    gate: share of the largest entropy below which a positive correction counts `gated` times as much; 0
    never.
    """

    beta: float = 0.1
    proportional: float = 0.0
    integral: float = 0.0
    derivative: float = 0.0
    gate: float = 0.0
    gated: float = 2.0

    def __post_init__(self) -> None:
        """Raise UserError for a negative number."""
        for name, value in vars(self).items():
            if not value >= 0:
                raise UserError(f"{name} of a KL control is {value}, expected 0 or more.")


def controlled(control: Control) -> Maker:
    """Return what takes beta log(pi/start), to the end of the response, off advantages; beta by a controller.

    The controller acts on the KL per token of the batch, one per replica.
    """

    def make(world: World, start_RP: Tensor) -> Any:
        import torch

        total_R, before_R = start_RP.new_zeros(2, len(start_RP))

        def change(batch: Batch, rollout: Rollout, logp: Tensor, step: int) -> Batch:
            with torch.no_grad():
                moved_RBT = (logp - world.logp(start_RP, rollout)) * batch.mask_BT
            tokens_R = batch.mask_BT.sum((1, 2))
            error_R = (moved_RBT.sum((1, 2)) / tokens_R / TARGET - 1).clamp(-1, 1)
            total_R.add_(error_R)
            slope_R = error_R - before_R if step else torch.zeros_like(error_R)
            before_R.copy_(error_R)
            by_R = control.proportional * error_R + control.integral * total_R + control.derivative * slope_R
            sure_R = -(logp * batch.mask_BT).sum((1, 2)) / tokens_R < control.gate * np.log(8)
            by_R = torch.where(sure_R & (by_R > 0), control.gated * by_R, by_R)
            beta_R = control.beta * by_R.clamp(-5, 5).exp()
            to_go_RBT = moved_RBT.flip(-1).cumsum(-1).flip(-1)
            mean_R = to_go_RBT.sum((1, 2)) / tokens_R
            charge_RBT = beta_R[:, None, None] * (to_go_RBT - mean_R[:, None, None]) * batch.mask_BT
            return replace(batch, adv_BT=batch.adv_BT - charge_RBT)

        return change

    return make


CRITIC: Arguments = (("clip", 0.2), ("first", 20))
TWO: Arguments = (*CRITIC, ("heads", 2), ("softness", 0.1))
PID = Control(beta=0.05, proportional=0.5, integral=0.05, derivative=0.1)


def _held(start: Run = PROXY, **gains: float) -> Any:
    """Return the KL coefficient at the start -> PPO-max, its KL charged to advantages by a controller."""
    run = replace(start, recipe_args=FULL, critic_args=TWO if gains else CRITIC, **CRITICAL)

    def at(beta: float) -> Arm:
        control = replace(PID, beta=beta, **gains) if gains else Control(beta=beta)
        return Arm(run, controlled(control), clipped)

    return at


def _bare(start: Run) -> Any:
    """Return lambda of GAE -> PPO without a clip, KL, normalized advantages or constraints of its critic."""

    def at(lam: float) -> Run:
        return replace(start, recipe_args=(("eps", 0.999), ("lam", lam)), **CRITICAL)

    return at


def _charged(beta: float) -> Maker:
    """Return what takes beta log(pi/start) of the response off rewards."""

    def make(world: World, start_RP: Tensor) -> Any:
        def change(batch: Batch, rollout: Rollout, logp: Tensor, _step: int) -> Batch:
            moved_RB = ((logp - world.logp(start_RP, rollout)) * batch.mask_BT).sum(-1)
            return replace(batch, reward_B=batch.require("reward_B", "p3o") - beta * moved_RB)

        return change

    return make


def _pairs(beta: float) -> Arm:
    return Arm(replace(PROXY, recipe="p3o"), _charged(beta))


def _reset(tokens: float) -> Arm:
    arm = _held(SELDOM)(0.05)  # of .01, PPO-max's best there, and .05 the better on pilot seeds
    args = (("share", 0.5), ("tokens", int(tokens)))
    return replace(arm, run=replace(arm.run, prefix="teacher", prefix_args=args))


def _windows(advantage: str) -> Any:
    return lambda lam: replace(
        HALVES, recipe_args=(("advantage", advantage), ("lam", lam), ("normalize", True))
    )


WAYS: Mapping[str, Way] = {
    "ppo-max": Way(_held(), BETAS),
    "safe": Way(_held(gate=0.3), BETAS),
    "ten times the steps": Way(lambda beta: _longer(_held()(beta)), BETAS, like="ppo-max"),
    "p3o": Way(_pairs, BETAS),
    "dpo": Way(_recipe(PROXY, "online_dpo", "beta"), (0.01, 0.03, 0.1, 0.3, 1.0)),
    "seldom, bare ppo": Way(_bare(SELDOM), LAMBDAS, True, rates=SLOWER),
    "seldom, ppo-max": Way(_held(SELDOM), BETAS, rates=SLOWER),
    "seldom, resets": Way(_reset, (1, 3, 5, 7, 9), True, rates=SLOWER),
    "seldom, dpo": Way(_recipe(SELDOM, "online_dpo", "beta"), (0.01, 0.03, 0.1, 0.3, 1.0), rates=SLOWER),
    "whole responses": Way(
        lambda lam: replace(GOLD, recipe_args=(("lam", lam), ("normalize", True))), LAMBDAS, True
    ),
    "halves, egae": Way(_windows("egae"), LAMBDAS, True),
    "halves, gae": Way(_windows("gae"), LAMBDAS, True),
    "true, grpo": Way(_recipe(SORTED, "grpo"), rates=SLOWER),
    "true, bonus": Way(_recipe(SORTED, "grpo", "entropy"), (1e-4, 1e-3, 3e-3, 1e-2, 3e-2), rates=SLOWER),
    "true, set-point": Way(
        _recipe(SORTED, "grpo", "set_point", ("entropy", 0.1)), (0.03, 0.1, 0.2, 0.4, 0.8), rates=SLOWER
    ),
}
REWARDED = Family(WAYS, Path(__file__).with_suffix(".csv"))


def _longer(arm: Arm) -> Arm:
    return replace(arm, run=replace(arm.run, steps=1500, log_every=150))


if __name__ == "__main__":
    REWARDED.choose()
