"""Generation with a recomputed cache: every prefix is read again when the weights change."""

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.policies.policy import Distribution, Drawn, Tool
from testbed.policies.token_versions import present
from testbed.policies.toy.decoder import Decoder
from testbed.policies.toy.toy_sampler import generate


def generate_recomputed(
    decoder: Callable[[int], Decoder],
    version_RBT: Tensor,
    end_token: int | None,
    uniform_RBT: Tensor,
    distribution: Distribution | None = None,
    tool: Tool | None = None,
) -> Drawn:
    """Return token_RBT, mask_RBT and logp_RBT; decoder(version_RBT[..., t]) alone draws token t.

    Each version generates every sequence from its start, keeps tokens of older versions and draws the rest.
    Newer versions overwrite what follows.
    """
    token_RBT = torch.zeros_like(uniform_RBT, dtype=torch.int64)
    mask_RBT, logp_RBT = torch.zeros_like(token_RBT, dtype=torch.bool), torch.empty(0)
    for v in present(version_RBT):
        own_RBT, given_RBT = version_RBT == v, version_RBT < v
        tokens = 1 + int(own_RBT.flatten(0, 1).any(0).nonzero()[-1])
        forced = _forcing(token_RBT, given_RBT, distribution)
        part = uniform_RBT[..., :tokens]
        token, mask, logp = generate(decoder(v), end_token, part, distribution=forced, tool=tool)
        if not logp_RBT.numel():
            logp_RBT = torch.zeros_like(uniform_RBT, dtype=logp.dtype)
        for whole_RBT, part_RBT in ((token_RBT, token), (mask_RBT, mask), (logp_RBT, logp)):
            here = whole_RBT[..., :tokens]
            here.copy_(torch.where(own_RBT[..., :tokens], part_RBT, here))
    return token_RBT, mask_RBT, logp_RBT


def _forcing(token_RBT: Tensor, given_RBT: Tensor, distribution: Distribution | None) -> Distribution:
    """Return the engine's distribution, with all mass on the given token where there is one."""
    given = given_RBT.flatten(0, 1).any(0).tolist()

    def forced(logp_RVB: Tensor, t: int) -> Tensor:
        if distribution is not None:
            logp_RVB = distribution(logp_RVB, t)
        if not given[t]:
            return logp_RVB
        sure_RVB = torch.full_like(logp_RVB, -torch.inf).scatter(1, token_RBT[:, None, :, t], 0.0)
        return torch.where(given_RBT[:, None, :, t], sure_RVB, logp_RVB)

    return forced
