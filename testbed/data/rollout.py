"""Rollout: the tokens, log-probabilities and rewards of one generation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from testbed.errors import UserError


@dataclass(frozen=True)
class Rollout:
    """Sequences, their rewards and the log-probabilities of the policy that generated them.

    Axes: R replicas, N prompts, Q prompt tokens, B = N * group sequences (b = n * group + g), T tokens.

    prompt_RNQ: int64; for tabular worlds the start states, Q = 1.
    token_RBT: int64 response tokens or actions.
    mask_RBT: bool; True for generated tokens, the end token included.
    logp_mu_RBT: log-probabilities (nats) under the generating policy; 0 where mask is False.
    reward_RB: float.
    group: responses per prompt.
    state_RBT: int64, tabular worlds only.
    origin_RB: int64, origin of sequences (see Batch), if not all are this step's.
    version_RBT: int64, optimizer steps taken by the weights that produced each token.
    logp_trainer_RBT: log-probabilities of the tokens at their version in the trainer's engine, which differ
        from logp_mu if the engines do; only if an anchor asks for them.
    parent_RB: int64, the group member with the prefix that a sequence continues, -1 for none; only from
        sources of prefixes with such sequences.
    group_RB: int64, the group of every sequence if single ones were dropped: every sequence then has a
        separate prompt, N = B, and `group` is 1.
    truncated_RB: bool, True if the response continues after these tokens and its reward is still unknown.
    """

    prompt_RNQ: Tensor
    token_RBT: Tensor
    mask_RBT: Tensor
    logp_mu_RBT: Tensor
    reward_RB: Tensor
    group: int
    state_RBT: Tensor | None = None
    origin_RB: Tensor | None = None
    version_RBT: Tensor | None = None
    logp_trainer_RBT: Tensor | None = None
    group_RB: Tensor | None = None
    parent_RB: Tensor | None = None
    truncated_RB: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rollout":
        """Return the rollout with a function, e.g. a slice of replicas, applied to every tensor."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed: dict[str, Any] = {name: function(value) for name, value in tensors.items()}
        return replace(self, **changed)

    def rows(self, rows: slice) -> "Rollout":
        return self.map(lambda value: value[rows])

    def states(self) -> Tensor:
        """Return the visited states, int64 [R, B, T]; raise ValueError for a rollout without any."""
        if self.state_RBT is None:
            raise ValueError("a tabular policy needs the visited states of a rollout")
        return self.state_RBT

    def groups(self) -> Tensor:
        """Return the group of every sequence, int64 [R, B]: sequences of a group answer the same prompt."""
        if self.group_RB is not None:
            return self.group_RB
        group_B = torch.arange(self.reward_RB.shape[-1], device=self.reward_RB.device) // self.group
        return group_B.expand(self.reward_RB.shape)

    def parents(self) -> Tensor | None:
        """Return the batch index of the sequence that each one continues, -1 for none; int64 [R, B].

        Raises UserError if single sequences were dropped, because positions of members have changed.
        """
        if self.parent_RB is None:
            return None
        if self.group_RB is not None:
            raise UserError(
                "age_limit removed single sequences, so parent indices no longer hold; set too_old=drop."
            )
        index_B = torch.arange(self.parent_RB.shape[-1], device=self.parent_RB.device)
        return torch.where(self.parent_RB < 0, -1, index_B // self.group * self.group + self.parent_RB)

    def split(self, slices: int) -> "Rollout":
        """Return R * slices replicas with equal parts of the prompts each, in order."""
        return self.map(lambda value: value.unflatten(1, (slices, -1)).flatten(0, 1))
