"""Tabular softmax policy: one row of logits per state, differentiated by a Numba scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from envs.kernels import gather_logp, scatter_score


class TabularLogp(torch.autograd.Function):
    """log pi(a|s) = theta[s, a] - logsumexp theta[s, :], gathered at visited states.

    Backward: d/dtheta[s, c] = sum over visits of g (1[a = c] - pi(c|s)).
    """

    @staticmethod
    def forward(ctx: Any, logits_RSA: Tensor, state_RBT: Tensor, action_RBT: Tensor) -> Tensor:
        ctx.save_for_backward(logits_RSA, state_RBT, action_RBT)
        logp_RBT = gather_logp(logits_RSA.numpy(), state_RBT.numpy(), action_RBT.numpy())
        return torch.from_numpy(logp_RBT)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_RBT: Tensor) -> tuple[Tensor, None, None]:
        logits_RSA, state_RBT, action_RBT = ctx.saved_tensors
        pi_RSA = logits_RSA.softmax(-1)
        weight_RBT = grad_RBT.contiguous().numpy()
        score = scatter_score(state_RBT.numpy(), action_RBT.numpy(), weight_RBT, pi_RSA.numpy())
        return torch.from_numpy(score), None, None


class TabularPolicy:
    """Softmax over a table of logits [S, A] in float64; starts uniform."""

    dtype = torch.float64

    def __init__(self, states: int, actions: int) -> None:
        self.states, self.actions = states, actions
        self.parameters = states * actions

    def initial(self, seeds: tuple[int, ...]) -> Tensor:
        """Return zero logits [R, P]: the uniform policy, whatever the seed."""
        return torch.zeros(len(seeds), self.parameters, dtype=self.dtype)

    def logits(self, theta_RP: Tensor) -> Tensor:
        """Return the table [R, S, A] behind flat weights."""
        return theta_RP.unflatten(-1, (self.states, self.actions))

    def probabilities(self, theta_RP: Tensor) -> np.ndarray:
        """Return pi(a|s) as float64 [R, S, A]."""
        pi_RSA: np.ndarray = self.logits(theta_RP.detach()).softmax(-1).numpy()
        return pi_RSA

    def logp(self, theta_RP: Tensor, state_RBT: Tensor, action_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi at the visited states [R, B, T]; 0 outside the mask."""
        logp_RBT = TabularLogp.apply(self.logits(theta_RP).contiguous(), state_RBT, action_RBT)
        return torch.where(mask_RBT, logp_RBT, torch.zeros_like(logp_RBT))

    def entropy(self, theta_RP: Tensor, state_RBT: Tensor) -> Tensor:
        """Return the entropy of pi(.|s) at the visited states, nats [R, B, T]."""
        log_pi_RSA = self.logits(theta_RP.detach()).log_softmax(-1)
        entropy_RS = -(log_pi_RSA.exp() * log_pi_RSA).sum(-1)
        flat = entropy_RS.gather(-1, state_RBT.flatten(-2))
        return flat.unflatten(-1, state_RBT.shape[-2:])
