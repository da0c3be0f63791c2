"""Rollout: what one generation produced, before anything is learned from it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """Sequences, their rewards and the log-probabilities of the policy that generated them.

    Axes: R replicas, N prompts, K prompt tokens, B = N * group sequences (b = n * group + g), T tokens.

    prompt_RNK: int64; for tabular worlds the start states, K = 1.
    token_RBT: int64 response tokens or actions.
    mask_RBT: bool; True for generated tokens, the end token included.
    logp_mu_RBT: log-probabilities (nats) under the generating policy; 0 where mask is False.
    reward_RB: float.
    group: responses per prompt.
    state_RBT: int64, tabular worlds only.
    """

    prompt_RNK: Tensor
    token_RBT: Tensor
    mask_RBT: Tensor
    logp_mu_RBT: Tensor
    reward_RB: Tensor
    group: int
    state_RBT: Tensor | None = None
