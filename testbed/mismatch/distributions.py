"""Engines that change the next-token distribution: temperature, truncated sampling, noise on the logits."""

import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.mismatch import Draw, SamplerEngine, mismatch


@mismatch(
    "temperature",
    source="sampling temperature that the trainer does not apply; verl and TRL apply it on both sides",
    level="distribution",
    identity={"temperature": 1.0},
)
def temperature(*, temperature: float = 1.1) -> SamplerEngine:
    """mu(a|s) = pi(a|s)^(1/temperature) / Z(s), relative to the policy's temperature."""
    if not temperature > 0:
        raise UserError(f"temperature is {temperature}, expected a positive number; 1 is the policy itself.")

    def distribution(log_pi_RMV: Tensor, draw: Draw, tick: int) -> Tensor:
        del draw, tick
        return (log_pi_RMV / temperature).log_softmax(-1)

    return SamplerEngine("temperature", distribution=None if temperature == 1 else distribution)


@mismatch(
    "logit-noise",
    source="toy model of rounding in the engine's forward pass: independent normal errors of the logits",
    level="distribution", identity={"sigma": 0.0}, stochastic=True,
)  # fmt: skip
def logit_noise(*, sigma: float = 0.1) -> SamplerEngine:
    """mu = softmax(log pi + sigma N(0, 1)), noise fresh per batch, sequence, token and vocabulary entry.

    In a tabular world noise is drawn per batch and state: sequences of one batch share it at equal states.
    Recorded log mu is that of the sampled distribution, given its noise, so E_mu[pi/mu] = 1.
    """
    if not sigma >= 0:
        raise UserError(f"sigma is {sigma}, the standard deviation of a logit in nats; expected >= 0.")

    def distribution(log_pi_RMV: Tensor, draw: Draw, tick: int) -> Tensor:
        noise_RMV = draw.normal("logit-noise", tick, log_pi_RMV)
        return (log_pi_RMV + sigma * noise_RMV).log_softmax(-1)

    return SamplerEngine("logit-noise", distribution=distribution if sigma > 0 else None, fresh=sigma > 0)


@mismatch(
    "top-p", source="nucleus sampling: Holtzman et al. (2020), arXiv:1904.09751; vLLM's cut",
    level="distribution", support="partial", identity={"p": 1.0},
)  # fmt: skip
def top_p(*, p: float = 0.95) -> SamplerEngine:
    """mu = pi / pi(N) on the nucleus N: likeliest tokens first, while those before sum to less than p.

    The token that reaches p belongs to it. Ties: the lower token first.
    """
    if not 0 < p <= 1:
        raise UserError(f"p is {p}, the mass of the nucleus; expected above 0 and at most 1.")

    def distribution(log_pi_RMV: Tensor, draw: Draw, tick: int) -> Tensor:
        del draw, tick
        sorted_RMV, order_RMV = log_pi_RMV.sort(stable=True, dim=-1, descending=True)
        before_RMV = sorted_RMV.double().exp().cumsum(-1).roll(1, -1)
        before_RMV[..., 0] = 0.0
        keep_RMV = before_RMV < p
        return _only(log_pi_RMV, torch.zeros_like(keep_RMV).scatter(-1, order_RMV, keep_RMV))

    return SamplerEngine("top-p", distribution=None if p == 1 else distribution)


@mismatch(
    "top-k", source="top-k sampling: Fan et al. (2018), arXiv:1805.04833", level="distribution",
    support="partial", identity={"k": 0},
)  # fmt: skip
def top_k(*, k: int = 20) -> SamplerEngine:
    """mu = pi / pi(K) on the k likeliest tokens K; k = 0 or k >= V uses all.

    Ties: the lower token first.
    """
    if k < 0:
        raise UserError(f"k is {k}, the number of tokens that are kept; expected at least 1, or 0 for all.")

    def distribution(log_pi_RMV: Tensor, draw: Draw, tick: int) -> Tensor:
        del draw, tick
        if k >= log_pi_RMV.shape[-1]:
            return log_pi_RMV
        order_RMV = log_pi_RMV.sort(stable=True, dim=-1, descending=True).indices
        none_RMV = torch.zeros_like(log_pi_RMV, dtype=torch.bool)
        return _only(log_pi_RMV, none_RMV.scatter(-1, order_RMV[..., :k], True))

    return SamplerEngine("top-k", distribution=None if k == 0 else distribution)


def _only(log_pi_RMV: Tensor, keep_RMV: Tensor) -> Tensor:
    """Return log pi conditional on `keep`."""
    return log_pi_RMV.masked_fill(~keep_RMV, -torch.inf).log_softmax(-1)
