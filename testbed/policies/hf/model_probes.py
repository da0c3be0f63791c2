"""Probe the abilities of a model with a few tokens: caches, packed rows, common beginnings, a plain head."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import UserError
from testbed.policies.hf.common_prefix import windowed

if TYPE_CHECKING:
    from testbed.policies.hf.causal_model import CausalModel


@torch.no_grad()
def cache_works(model: CausalModel) -> bool:
    """True if a shared cache and a pass without cache agree on four tokens, read together or one by one.

    Recurrent layers fail here in ways that differ between versions of transformers, so this tries it.
    """
    weights = dict(model.module.named_parameters())
    token_BT = (torch.arange(4, device=model.module.device) % model.rows).expand(2, -1)
    tolerance = 1e-3 if model.dtype.itemsize >= 4 else 0.2
    try:
        whole_BH = model.features(input_ids=token_BT, use_cache=False)[:, -1].float()
        for new in (2, 1):
            prompt_NQ = token_BT[:1, :2]
            prefix = model.run_prompts(weights, prompt_NQ, torch.ones_like(prompt_NQ, dtype=torch.bool), 2)
            for seen in range(new, 3, new):
                last_BH = model.run_tokens(weights, prefix, token_BT[:, 2 : 2 + seen], new)[:, -1].float()
            if (last_BH - whole_BH).norm() > tolerance * whole_BH.norm():
                return False
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError):
        return False
    return True


@torch.no_grad()
def packing_works(model: CausalModel, columns: int) -> bool:
    """True if a packed row of so many columns gives the same results as each response on top of the cache.

    False for positions by distance in the row, and for windows or masks that the model makes itself.
    """
    # In 16 bits rounding alone exceeds the tolerance below.
    if model.dtype.itemsize < 4 or not model.takes_positions:
        return False
    weights, device = dict(model.module.named_parameters()), model.module.device
    token_NQ = (torch.arange(6, device=device) % model.rows).view(2, 3)
    real_NQ = torch.ones_like(token_NQ, dtype=torch.bool)
    real_NQ[0, 0] = False
    group = (columns - 3) // 2
    token_BT = (torch.arange(4 * group, device=device) ** 2 % model.rows).view(2 * group, 2)
    try:
        prefix = model.run_prompts(weights, token_NQ, real_NQ, group)
        apart = model.run_tokens(weights, prefix, token_BT, new=2)
        packed = model.packed(weights, token_NQ, real_NQ, token_BT, group, token_NQ[0, :0])[:, 1:]
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, UserError):
        return False
    return bool((packed - apart).norm() <= 1e-5 * apart.norm())


@torch.no_grad()
def sharing_works(model: CausalModel) -> bool:
    """True if prompts on top of a common beginning give the same results as each of them alone."""
    if windowed(model.module):
        return False
    weights, device = dict(model.module.named_parameters()), model.module.device
    token_NQ = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 0, 5]], device=device) % model.rows
    real_NQ = torch.ones_like(token_NQ, dtype=torch.bool)
    real_NQ[0, 0] = False
    token_BT = token_NQ[:, 1:3].repeat_interleave(2, 0)
    found = []
    try:
        # The loop sets the model's own attribute; whoever asks sets it again afterwards.
        for model.least_common in (sys.maxsize, 3):
            prefix = model.run_prompts(weights, token_NQ, real_NQ, 2)
            found += [model.run_tokens(weights, prefix, token_BT, new=2)]
            found += [model.run_responses(weights, token_NQ, real_NQ, token_BT, 2)[:, 1:]]
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, UserError):
        return False
    return all(bool((each - found[0]).norm() <= 1e-5 * found[0].norm()) for each in found)


@torch.no_grad()
def plain_head(module: Any) -> tuple[str, str | None] | None:
    """Return the names of the head's weight and bias if logits are only that map of the hidden states.

    Some models scale or cap their logits afterwards. A few tokens show that; those run with full logits.
    """
    head = module.get_output_embeddings()
    # A cap of 30 changes small logits of random weights less than rounding does, and shows once they grow.
    capped = getattr(module.config.get_text_config(), "final_logit_softcapping", None)
    if capped or not isinstance(head, nn.Linear) or module.base_model is module:
        return None
    probe = torch.arange(min(4, len(head.weight)), device=head.weight.device)[None]
    logits = module(input_ids=probe, use_cache=False).logits
    hidden = module.base_model(input_ids=probe, use_cache=False).last_hidden_state
    expected = functional.linear(hidden, head.weight, head.bias)
    if logits.shape != expected.shape or not torch.allclose(logits, expected, rtol=1e-3, atol=1e-4):
        return None
    names: Sequence[tuple[str, Tensor]] = list(module.named_parameters())
    name = {id(parameter): name for name, parameter in names}
    return name[id(head.weight)], None if head.bias is None else name[id(head.bias)]
