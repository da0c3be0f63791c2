"""A world joins a task and a policy: it generates, gives log-probabilities and knows what truth it can.

The training loop sees only this interface, so one loop serves bandits, MDPs, token trees, the toy
LLM and Hugging Face models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from testbed.data.rollout import Rollout


@dataclass(frozen=True)
class BehaviorWeights:
    """The weights that generated a batch: slice s of replica r comes from row r * slices + s of weights_XP.

    The slices are equal parts of a batch's prompts, in order. past_XP: older weights that the engine reads
    beside them, where it reads any.
    """

    weights_XP: Tensor
    slices: int = 1
    past_XP: Tensor | None = None


class World(Protocol):
    """What the loop needs. Weights are flat tensors theta_RP that are passed in."""

    def initial(self) -> Tensor: ...

    def generate(
        self, theta_XP: Tensor, step: int, slices: int = 1, past_XP: Tensor | None = None
    ) -> Rollout: ...

    def generate_in_flight(
        self, theta_RVP: Tensor, version_RBT: Tensor, step: int, cache: str
    ) -> Rollout: ...

    def in_flight_table(self, theta_RVP: Tensor, version_T: Tensor) -> Tensor | None: ...

    @property
    def length(self) -> int: ...

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def loss_logp(self, theta_RP: Tensor, rollout: Rollout, step: int, pass_index: int) -> Tensor: ...

    def penalty(self, theta_RP: Tensor) -> Tensor | None: ...

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def truth(
        self, theta_RP: Tensor, update_RP: Tensor, step: int, behavior: BehaviorWeights | None
    ) -> dict[str, np.ndarray]: ...

    def accuracy(self, theta_RP: Tensor) -> np.ndarray | None: ...

    # What only some recipes ask for. Rows names the replicas that theta and the rollout hold.

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor: ...

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout: ...
