"""Generation token by token, by inverse CDF from given uniforms, and reading generated tokens."""

import torch
from torch import Tensor

from testbed.policies.policy import Distribution, Drawn, Tool
from testbed.policies.toy.decoder import Decoder


def inverse_cdf(log_pi_RVB: Tensor, uniform_RB: Tensor) -> Tensor:
    """Return the tokens [R, B] at which the cumulative distribution c passes each uniform u in [0, 1).

    Token v is drawn when c[v-1] <= u c[V-1] < c[v], in float64, so a token without mass is never drawn. The
    threshold is kept below the total: even u = 1 draws a token, the last with mass. A NaN distribution gives
    token 0 and a NaN log-probability: a diverged model is a result.
    """
    cumulative_RVB = log_pi_RVB.double().exp().cumsum(1)
    total_RB = cumulative_RVB[:, -1]
    below_RB = torch.nextafter(total_RB, torch.zeros_like(total_RB))
    threshold_RB = torch.minimum(uniform_RB * total_RB, below_RB)
    return (cumulative_RVB <= threshold_RB[:, None]).sum(1)


def generate(
    decoder: Decoder,
    end_token: int | None,
    uniform_RBT: Tensor,
    greedy: bool = False,
    distribution: Distribution | None = None,
    tool: Tool | None = None,
) -> Drawn:
    """Return token_RBT, mask_RBT and logp_RBT of the decoder's responses.

    distribution: changes the log-probabilities at time t before a token is drawn. tool: writes instead of the
    policy at some places, where mask is False and logp 0.
    After a response's end token: token 0, mask False, logp 0.
    """
    logp_RVB = decoder.first()
    token_RBT = torch.zeros_like(uniform_RBT, dtype=torch.int64)
    logp_RBT = torch.zeros_like(uniform_RBT, dtype=logp_RVB.dtype)
    mask_RBT = torch.zeros_like(token_RBT, dtype=torch.bool)
    alive_RB = torch.ones_like(mask_RBT[..., 0])
    for t in range(uniform_RBT.shape[2]):
        if distribution is not None:
            logp_RVB = distribution(logp_RVB, t)
        drawn_RB = logp_RVB.argmax(1) if greedy else inverse_cdf(logp_RVB, uniform_RBT[..., t])
        given_RB = None if tool is None else tool(token_RBT[..., :t], t)
        drawn_RB = drawn_RB if given_RB is None else given_RB
        token_RBT[..., t] = drawn_RB.where(alive_RB, 0)
        if given_RB is None:
            logp_RBT[..., t] = logp_RVB.gather(1, drawn_RB[:, None])[:, 0].where(alive_RB, 0.0)
            mask_RBT[..., t] = alive_RB
        if end_token is not None:
            alive_RB = alive_RB & (drawn_RB != end_token)
        if t == uniform_RBT.shape[2] - 1 or not alive_RB.any():
            break
        logp_RVB = decoder.after(drawn_RB, t)
    return token_RBT, mask_RBT, logp_RBT


def read(
    decoder: Decoder, token_RBT: Tensor, mask_RBT: Tensor, distribution: Distribution | None = None
) -> Tensor:
    """Return the logp_RBT that `generate` records for these tokens; 0 where mask is False."""
    logp_RVB = decoder.first()
    logp_RBT = torch.zeros_like(token_RBT, dtype=logp_RVB.dtype)
    for t in range(token_RBT.shape[2]):
        if distribution is not None:
            logp_RVB = distribution(logp_RVB, t)
        logp_RBT[..., t] = logp_RVB.gather(1, token_RBT[:, None, :, t])[:, 0].where(mask_RBT[..., t], 0.0)
        if t == token_RBT.shape[2] - 1 or not mask_RBT[..., t + 1 :].any():
            break
        logp_RVB = decoder.after(token_RBT[..., t], t)
    return logp_RBT
