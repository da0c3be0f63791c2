"""Critics: the value before each token, which advantages such as gae, egae, v_trace and bad read.

`critic` registers makers: maker(world, theta_CP, seeds, *, ...) -> Critic, one per arm of a pack.
`Run.critic` names one; "none" means no critic. A new critic is one file here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.data.signals import Signals
from testbed.errors import UserError, refuse, unknown
from testbed.recipes.composition import Recipe
from testbed.registry import Registry
from testbed.worlds.world import World

critic = Registry("critic", package="testbed.critics")
"""Makers promise `policies`, those they support."""


class Critic(ABC):
    """The critic of an arm: it gives values of a batch's states and learns from the batch.

    noted: metrics of its last lesson, by name, each [C].
    """

    noted: Mapping[str, Tensor]

    @abstractmethod
    def values(self, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        """Return the value before each token [C, B, T], without gradient."""

    def learn(self, theta_CP: Tensor, rollout: Rollout, signals: Signals) -> None:  # noqa: B027
        """Learn from a batch after its advantages were read; signals hold the earlier values."""


def build_critic(run: Run, world: World, theta_CP: Tensor, seeds: Sequence[int]) -> Critic | None:
    """Return the critic of an arm before its first step; None if the run has none."""
    if run.critic == "none":
        return None
    made: Critic = critic[run.critic].bind(**dict(run.critic_args))(world, theta_CP, seeds)
    return made


def check_critic(run: Run, made: Recipe) -> None:
    """Raise UserError if a recipe needs values without a critic, or a critic is unused."""
    wanted = [part for part in parts(made) if "value_BT" in part.needs]
    if run.critic == "none":
        if wanted:
            raise UserError(
                f"recipe '{run.recipe}' with advantage '{wanted[0].advantage}' needs values, and critic is "
                f"'none'. Set critic to {fitting(run.policy)}, or take an advantage without a critic."
            )
        if run.critic_args:
            raise UserError("critic_args are given, but critic is 'none'; name a critic or leave them out.")
        return
    if run.critic not in critic:
        raise unknown("critic", run.critic, critic)
    entry, given = critic[run.critic], dict(run.critic_args)
    entry.bind(**given)
    refuse(wrong_types(f"critic '{run.critic}'", entry.function, given))
    if run.policy not in entry.promises["policies"]:
        raise UserError(
            f"critic '{run.critic}' does not fit policy '{run.policy}'; expected {fitting(run.policy)}."
        )
    if not wanted:
        raise UserError(
            f"critic is '{run.critic}', but recipe '{run.recipe}' reads no values, so the critic would "
            "change nothing. Take an advantage that reads values, e.g. recipe_args.advantage=gae, or "
            "leave critic at 'none'."
        )


def fitting(policy: str) -> str:
    """Return the names of the critics for a policy, in words."""
    names = [f"'{name}'" for name in critic if policy in critic[name].promises["policies"]]
    return " or ".join(names) or "policy 'tabular' or 'toy', which have critics"


def parts(made: Recipe | None) -> list[Recipe]:
    """Return a recipe and the recipes that later replace it."""
    return [] if made is None else [made, *parts(made.hand_over.recipe if made.hand_over else None)]
