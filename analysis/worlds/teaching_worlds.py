"""Every response to one prompt at once: students and teachers with expected updates that are sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from envs.tokens.token_task import every_response

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch


@dataclass(frozen=True)
class AllResponses:
    """The V^T responses of `length` tokens; prefixes are the states, level by level, as in a token tree."""

    vocabulary: int
    length: int

    @property
    def states(self) -> int:
        """Number of prefixes shorter than a response."""
        return sum(self.vocabulary**t for t in range(self.length))

    @cached_property
    def token_LT(self) -> Tensor:
        """The responses, int64."""
        import torch

        return torch.from_numpy(every_response(self.vocabulary, self.length, None)[0])

    @cached_property
    def state_LT(self) -> Tensor:
        """The prefix before every token."""
        import torch

        state_LT = torch.zeros_like(self.token_LT)
        for t in range(1, self.length):
            state_LT[:, t] = state_LT[:, t - 1] * self.vocabulary + 1 + self.token_LT[:, t - 1]
        return state_LT

    def random(self, seed: int, scale: float = 1.0) -> Tensor:
        """Return normal logits [S, V] times a scale."""
        import torch

        drawn = np.random.default_rng([seed, 11]).standard_normal((self.states, self.vocabulary))
        return scale * torch.from_numpy(drawn)

    def logp(self, logits_SV: Tensor) -> Tensor:
        """Return log-probabilities of the tokens of every response, [L, T]."""
        return logits_SV.log_softmax(-1)[self.state_LT, self.token_LT]

    def law(self, logits_SV: Tensor) -> Tensor:
        """Return the probability of every response, [L], without gradient."""
        return self.logp(logits_SV.detach()).sum(-1).exp()

    def batch(
        self, mu_SV: Tensor, ref_SV: Tensor, advantage_L: Tensor | None = None, origin: int = 0
    ) -> Batch:
        """Return all responses as one batch, drawn by mu, with a teacher's log-probabilities."""
        import torch

        from testbed.data.batch import Batch

        L = len(self.token_LT)
        zero_L = torch.zeros(L, dtype=torch.float64)
        adv_L = zero_L if advantage_L is None else advantage_L
        return Batch(
            logp_mu_BT=self.logp(mu_SV.detach()),
            adv_BT=adv_L[:, None].expand(L, self.length).clone(),
            mask_BT=torch.ones(L, self.length, dtype=torch.bool),
            reward_B=zero_L,
            group_B=torch.zeros(L, dtype=torch.int64),
            logp_ref_BT=self.logp(ref_SV.detach()),
            origin_B=torch.full((L,), origin, dtype=torch.int64),
        )


def expected_gradient(
    loss: Callable[[Tensor, Batch], Tensor],
    world: AllResponses,
    parameters: Tensor,
    weight_L: Tensor,
    batch: Batch,
    logits: Callable[[Tensor], Tensor] = lambda theta: theta,
) -> Tensor:
    """Return the gradient of sum_l weight_l sum_t L_lt in the parameters: the mean over responses drawn so.

    loss: an objective. weight_L: probabilities of the responses under whoever draws them. logits: parameters
    -> [S, V].
    """
    import torch

    leaf = parameters.detach().clone().requires_grad_()
    loss_LT = loss(world.logp(logits(leaf)), batch)
    (found,) = torch.autograd.grad((weight_L[:, None] * loss_LT).sum(), leaf)
    return found


def place_gradients(
    loss: Callable[[Tensor, Batch], Tensor], pi_SV: Tensor, ref_SV: Tensor, drawn_SV: Tensor
) -> Tensor:
    """Return the gradient in the logits [S, V] of a token's mean loss at every prefix by itself.

    The token at a prefix is drawn by the policy of logits drawn_SV, and noted as one of pi's own.
    """
    import torch

    from testbed.data.batch import Batch

    S, V = pi_SV.shape
    flat, zero_B = (lambda x_SV: x_SV.detach().log_softmax(-1).reshape(-1, 1)), pi_SV.new_zeros(S * V)
    leaf_SV = pi_SV.detach().clone().requires_grad_()
    batch = Batch(
        logp_mu_BT=flat(pi_SV),
        adv_BT=zero_B[:, None],
        mask_BT=torch.ones(S * V, 1, dtype=torch.bool),
        reward_B=zero_B,
        group_B=torch.zeros(S * V, dtype=torch.int64),
        logp_ref_BT=flat(ref_SV),
        origin_B=torch.zeros(S * V, dtype=torch.int64),
    )
    loss_BT = loss(leaf_SV.log_softmax(-1).reshape(-1, 1), batch)
    weight_B1 = drawn_SV.detach().softmax(-1).reshape(-1, 1)
    (found,) = torch.autograd.grad((weight_B1 * loss_BT).sum(), leaf_SV)
    return found


def spread(gradient_L: Tensor, weight_L: Tensor) -> tuple[Tensor, float]:
    """Return the mean gradient and the total variance of one draw."""
    flat_LP = gradient_L.flatten(1)
    mean_P = (weight_L[:, None] * flat_LP).sum(0)
    return mean_P, float((weight_L * (flat_LP - mean_P).square().sum(-1)).sum())
