"""The exact critic: the value function of the current policy, in worlds that can compute it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from testbed.critics import Critic, critic
from testbed.data.rollout import Rollout
from testbed.worlds.world import World


class Known(Critic):
    """Values by dynamic programming, or those with a constant added: `offset`."""

    def __init__(self, world: World, offset: float) -> None:
        self.world, self.offset = world, offset
        self.noted: dict[str, Tensor] = {}

    def values(self, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        value_CS, state_CBT = self.world.state_values(theta_CP), rollout.states()
        value_CBT = value_CS.gather(-1, state_CBT.flatten(1)).view_as(state_CBT) + self.offset
        return torch.where(rollout.mask_RBT, value_CBT, torch.zeros_like(value_CBT))


@critic("exact", source="Sutton & Barto (2018), Equation 4.3", policies=("tabular",))
def exact(world: World, theta_CP: Tensor, seeds: Sequence[int], *, offset: float = 0.0) -> Known:
    """V(s) = E[reward | s] under the current policy, plus `offset`; known for trees of token tasks."""
    world.state_values(theta_CP)  # raises before any training if the world does not know them
    del seeds
    return Known(world, offset)
