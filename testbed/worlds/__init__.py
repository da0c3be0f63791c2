"""A world joins a task and a policy: it generates, gives log-probabilities and knows what truth it can.

The training loop sees only this interface, so one loop serves bandits, MDPs, token trees, the toy
LLM and Hugging Face models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor

from testbed.config import Run
from testbed.rollout import Rollout
from testbed.worlds.tabular import TabularRuns
from testbed.worlds.tokens import TokenRuns

if TYPE_CHECKING:
    from testbed.staleness import BehaviorWeights


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

    def numerator(self, theta_RP: Tensor, rollout: Rollout, step: int, turn: int) -> Tensor: ...

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


def build_world(runs: tuple[Run, ...]) -> World:
    """Return the world in which cells of equal shape run stacked."""
    return TabularRuns(runs) if runs[0].policy == "tabular" else TokenRuns(runs)
