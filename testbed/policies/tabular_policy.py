"""Tabular softmax policy: one row of logits per state, differentiated by a Numba scatter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from envs.kernels import gather_logp, scatter_score
from testbed.policies.policy import Layout, Policy


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


class TabularPolicy(Policy):
    """Softmax over a table of logits [S, A] in float64; starts uniform."""

    tabular = True
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, states: int, actions: int) -> None:
        self.states, self.actions = states, actions
        self.parameters = states * actions

    @property
    def layout(self) -> Layout:
        return {"logits": (self.states, self.actions)}

    @property
    def positions(self) -> int:
        return 1

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return zero logits [R, P], the uniform policy, for any seed."""
        return torch.zeros(len(seeds), self.parameters, dtype=self.dtype)

    def logits(self, theta_RP: Tensor) -> Tensor:
        """Return flat weights as a table [R, S, A]."""
        return theta_RP.unflatten(-1, (self.states, self.actions))

    def probabilities(self, theta_RP: Tensor) -> np.ndarray:
        """Return pi(a|s) as float64 [R, S, A]."""
        pi_RSA: np.ndarray = self.logits(theta_RP.detach()).softmax(-1).numpy()
        return pi_RSA

    def logp(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi of the actions at the visited states [R, B, T]; 0 outside the mask."""
        logp_RBT = TabularLogp.apply(self.logits(theta_RP).contiguous(), where, token_RBT)
        return torch.where(mask_RBT, logp_RBT, torch.zeros_like(logp_RBT))

    def entropy(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the entropy of pi(.|s) at the visited states, nats [R, B, T]; 0 outside the mask."""
        del token_RBT
        log_pi_RSA = self.logits(theta_RP.detach()).log_softmax(-1)
        entropy_RS = -(log_pi_RSA.exp() * log_pi_RSA).sum(-1)
        return _visited(entropy_RS, where, mask_RBT)

    def score_norm(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every action, [R, B, T]; 0 at padding."""
        theta_RP = theta_RP.detach()
        square_RS = self.logits(theta_RP).softmax(-1).square().sum(-1)
        pi_RBT = self.logp(theta_RP, where, token_RBT, mask_RBT).exp()
        norm_RBT = 1 - 2 * pi_RBT + _visited(square_RS, where, mask_RBT)
        return torch.where(mask_RBT, norm_RBT, torch.zeros_like(norm_RBT))


def _visited(value_RS: Tensor, state_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
    """Look up values of the visited states, [R, B, T]; 0 outside the mask."""
    value_RBT = value_RS.gather(-1, state_RBT.flatten(-2)).view_as(state_RBT)
    return torch.where(mask_RBT, value_RBT, torch.zeros_like(value_RBT))
