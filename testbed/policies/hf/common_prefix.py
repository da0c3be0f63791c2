"""Find the common beginning of all prompts, and the rest of each prompt."""

from typing import Any

import torch
from torch import Tensor

LEAST = 16
"""Fewest common tokens for which a separate pass pays."""


def common_tokens(prompt_NQ: Tensor, real_NQ: Tensor, least: int) -> Tensor:
    """Return the tokens [C] with which all prompts begin, of each prompt all but the last at most.

    None, C = 0, for one prompt alone and for fewer than `least`. real_NQ: False on padding, on the left.
    """
    start_N = (~real_NQ).sum(1)
    longest = prompt_NQ.shape[1] - int(start_N.max()) - 1
    if len(prompt_NQ) < 2 or longest < least:
        return prompt_NQ[0, :0]
    place_C = torch.arange(longest, device=prompt_NQ.device)
    token_NC = prompt_NQ.gather(1, start_N[:, None] + place_C)
    same_C = (token_NC == token_NC[:1]).all(0)
    count = int(same_C.cumprod(0).sum())
    return token_NC[0, : count if count >= least else 0]


def behind(common: int, prompt_NQ: Tensor, real_NQ: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prompts and their real tokens without the first `common` real ones, padded on the left."""
    rest_NQ = real_NQ & (real_NQ.cumsum(1) > common)
    return prompt_NQ[:, common:], rest_NQ[:, common:]


def windowed(model: Any) -> bool:
    """True if some layers of a model see a window: they count columns, padding included."""
    kinds = getattr(model.config, "layer_types", None)
    if kinds is None:
        return getattr(model.config, "sliding_window", None) is not None
    return any(kind != "full_attention" for kind in kinds)
