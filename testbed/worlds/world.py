"""A world joins a task and a policy: it generates, gives log-probabilities, and exact values if known.

The training loop uses only this interface, so one loop serves bandits, MDPs, token trees, the toy LLM and
Hugging Face models.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.data.held_out import HeldOut
from testbed.data.rollout import Rollout
from testbed.errors import UserError

CORRECTIONS = (
    "only tasks that check steps can correct a response from its first error on; use running-sum, "
    "styled-sum, copy or sorted with policy 'toy'."
)


@dataclass(frozen=True)
class BehaviorWeights:
    """Weights that generated a batch: slice s of replica r comes from row r * slices + s of weights_XP.

    The slices are equal parts of a batch's prompts, in order. past_XP: older weights that the engine also
    reads, if it does.
    """

    weights_XP: Tensor
    slices: int = 1
    past_XP: Tensor | None = None


class World(ABC):
    """A pack of R stacked cells: generates for them, scores them and computes exact values.

    Weights are flat tensors theta_RP that are passed in, on the device that `initial` chose. Methods that
    only some worlds support raise UserError or return None by default.
    """

    @property
    @abstractmethod
    def length(self) -> int:
        """Most tokens of a response, T."""

    @property
    def version_dtype(self) -> torch.dtype | None:
        """Smaller type in which older weights generate the same; None for the type of the weights."""
        return None

    @abstractmethod
    def initial(self) -> Tensor:
        """Return the starting weights [R, P]; equal seeds start alike."""

    @abstractmethod
    def generate(
        self, theta_XP: Tensor, step: int, slices: int = 1, past_XP: Tensor | None = None
    ) -> Rollout:
        """Return this step's batch; row r * slices + s of theta_XP answers part s of replica r's prompts.

        past_XP: older weights, row by row, for an engine that reads them.
        """

    @abstractmethod
    def generate_in_flight(self, theta_RWP: Tensor, version_RBT: Tensor, step: int, cache: str) -> Rollout:
        """Return this step's batch; token t is drawn at weights theta_RWP[r, version_RBT[r, b, t]].

        version_RBT broadcasts to [R, B, T]; cache: "kept" or "recomputed" when the weights change.
        """

    @abstractmethod
    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the policy's log-probabilities of the tokens, nats [R, B, T]; 0 outside the mask."""

    @abstractmethod
    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the entropy of each token's distribution, nats [R, B, T]; 0 outside the mask."""

    @abstractmethod
    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every token, [R, B, T]; 0 at padding."""

    @abstractmethod
    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the reward of always taking the likeliest token, from each sequence's start; [R, B]."""

    @abstractmethod
    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor:
        """Return rewards of `group` responses of theta to each sequence's start; [C, B, group].

        rows: the replicas that theta and the rollout hold.
        """

    def loss_logp(self, theta_RP: Tensor, rollout: Rollout, step: int, pass_index: int) -> Tensor:
        """Return the log-probabilities that the loss reads, [R, B, T]; by default `logp`."""
        del step, pass_index
        return self.logp(theta_RP, rollout)

    def loss_logp_entropy(
        self, theta_RP: Tensor, rollout: Rollout, step: int, pass_index: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return `loss_logp`, and `entropy` if it needs no further pass, else None."""
        return self.loss_logp(theta_RP, rollout, step, pass_index), None

    def penalty(self, theta_RP: Tensor) -> Tensor | None:
        """Return the policy's addition to the loss of each replica [R]; None without one."""
        del theta_RP
        return None

    def turns(self, rollout: Rollout) -> Tensor | None:
        """Return the turn of every token, int64 [R, B, T]; None in a world of one turn."""
        del rollout
        return None

    @property
    def states(self) -> int:
        """Number of states of the table; raise UserError in a world without one."""
        raise UserError("this world has no table of states; take a critic for its policy.")

    @property
    def width(self) -> int:
        """Width of `features`; raise UserError in a world without hidden states."""
        raise UserError("this world has no hidden states; take critic 'table' or 'exact'.")

    def features(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the head's inputs before each token, [R, B, T, width], differentiable."""
        del theta_RP, rollout
        raise UserError("this world has no hidden states; take critic 'table' or 'exact'.")

    def state_values(self, theta_RP: Tensor) -> Tensor:
        """Return E[reward | state] of every state [R, S]; raise UserError if it is not known."""
        del theta_RP
        raise UserError("this world has no exact values; use critic 'head' or 'model'.")

    def truth(
        self, theta_RP: Tensor, update_RP: Tensor, step: int, behavior: BehaviorWeights | None
    ) -> dict[str, np.ndarray]:
        """Return exact quantities by metric name, each [R]; empty if the world is too large."""
        del theta_RP, update_RP, step, behavior
        return {}

    def accuracy(self, theta_RP: Tensor) -> np.ndarray | None:
        """Return the mean reward on held-out prompts [R]; None if the truth is known."""
        del theta_RP
        return None

    def held_out(self, theta_RP: Tensor, start_RP: Tensor, row: int, last: bool) -> HeldOut:
        """Return metrics of fresh samples of the policy; empty by default.

        start_RP: starting weights. row, last: number of the logged row, from 0, and True for the last; costly
        metrics may skip rows.
        """
        del theta_RP, start_RP, row, last
        return HeldOut()

    def counts(self) -> dict[str, np.ndarray]:
        """Return the world's counters since the start, by metric name, each [R]."""
        return {}

    def in_flight_table(self, theta_RWP: Tensor, version_T: Tensor) -> Tensor | None:
        """Return weights [R, P] of the single policy equivalent to changing weights at given times, if any.

        version_T: the version of every time [T].
        """
        del theta_RWP, version_T
        return None

    @property
    def shows_solutions(self) -> bool:
        """True if a prompt has space for the solution, see `with_solutions`."""
        return False

    def with_solutions(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the solution shown in every prompt; UserError if there is no room."""
        del rollout
        raise UserError("this world's prompts leave no room for a solution; take task 'hinted-sum'.")

    @abstractmethod
    def answers(self, theta_RP: Tensor, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return answers of theta to the rollout's prompts, one per group member, from a separate stream.

        rows: the replicas that theta and the rollout hold.
        """

    def corrections(self, rollout: Rollout, rows: slice) -> Rollout:
        """Return responses corrected from their first error on; UserError if nothing checks steps."""
        del rollout, rows
        raise UserError(CORRECTIONS)

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return a teacher's answers to the prompts, one per member; UserError without a teacher."""
        del rollout, rows, step
        raise UserError("this world has no teacher to demonstrate; take a token task with policy 'toy'.")
