"""A Hugging Face causal LM as a function of flat weights: prompts once, then tokens on top of their cache."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from testbed.errors import UserError
from testbed.policies.hf.common_prefix import LEAST, behind, common_tokens
from testbed.policies.hf.flat_parameters import FlatParameters
from testbed.policies.hf.lora import Lora, StackedLinear, add_adapters, merged, save_adapter
from testbed.policies.hf.model_folder import quiet_transformers
from testbed.policies.hf.model_probes import cache_works, packing_works, plain_head, sharing_works

NONE = Lora()
PACKED = 128
"""Most columns of a packed row, a prompt with all its responses: beyond it attention costs too much."""
MANY = 8
"""Least number of passes of 64 rows for which copying the weights to another layout saves time. Measured:
3.5, 7.7 and 8.0 at 84 thousand, 3 million and 30 million weights."""
Frozen: TypeAlias = Callable[[Tensor, dict[str, tuple[int, ...]]], Tensor]
"""(frozen weights [1, F], names and shapes) -> new ones [1, F]."""
Hidden: TypeAlias = Callable[[int, Tensor, int], Tensor]
"""(layer, its input [M, T, H], 0 for prompts and 1 for responses) -> the input it receives instead."""


class Head(NamedTuple):
    """The last linear layer, cut to the first V tokens; without a weight the features are the logits."""

    weight_VH: Tensor | None
    bias_V: Tensor | None


@dataclass(frozen=True)
class Prefix:
    """Prompts after their forward pass: features of the next token, the cache, and a mask of real positions.

    padded: True if some are padding; without padding no mask is needed.
    """

    feature_BH: Tensor
    cache: Any
    real_BQ: Tensor
    padded: bool = True


class _Features(nn.Module):
    """Input of the head; the logits themselves if the head is more than one linear map."""

    def __init__(self, model: Any, plain_head: bool) -> None:
        super().__init__()
        self.model = model
        self.plain_head = plain_head

    def forward(self, **inputs: Any) -> Tensor:
        if self.plain_head:
            hidden: Tensor = self.model.base_model(**inputs).last_hidden_state
            return hidden
        logits: Tensor = self.model(**inputs).logits
        return logits


class CausalModel:
    """Features of next tokens under any weights; the module's weights are only the starting point.

    Raises UserError for a model that cannot continue from a cache (recurrent layers, linear attention).
    """

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype, lora: Lora = NONE) -> None:
        self.dtype, self.lora = dtype, lora
        if lora:
            add_adapters(model, lora)
        self.flat = FlatParameters(model)
        self.module = model.to(device)
        owners = [self.module.get_submodule(name.rpartition(".")[0]) for name in self.flat.names]
        self._adapted = all(isinstance(owner, StackedLinear) for owner in owners)
        self._start_P = self.flat.gather(self.module, torch.promote_types(dtype, torch.float32))
        self._frozen = {n: p for n, p in self.module.named_parameters() if not p.requires_grad}
        self._head_names = plain_head(self.module)
        self._linear = _linear_weights(self.module) if device.type == "cpu" else frozenset()
        self.features = _Features(self.module, plain_head=self._head_names is not None)
        self._bound: dict[str, Tensor] | None = None
        self._own: dict[str, Tensor] = {}
        self._change: Hidden | None = None
        self._swapped: dict[str, Tensor] = {}
        self.least_common = sys.maxsize
        called = self.module if self._head_names is None else self.module.base_model
        accepted = inspect.signature(called.forward).parameters
        self.takes_positions = "position_ids" in accepted
        self._most_positions: int | None = getattr(model.config, "max_position_embeddings", None)
        if not cache_works(self):
            raise UserError(
                f"{type(model).__name__} gives other results from a key-value cache than from the full "
                "sequence, and the sampler needs equal ones; give a transformer with attention in every "
                "layer."
            )
        self._packs = packing_works(self, PACKED)
        self.least_common = LEAST if self._packs and sharing_works(self) else sys.maxsize

    @property
    def rows(self) -> int:
        """Number of token embeddings of the model."""
        return int(self.module.get_input_embeddings().weight.shape[0])

    @property
    def blocks(self) -> list[nn.Module]:
        """The model's layers, first to last; UserError for a model that does not list them."""
        count = self.module.config.num_hidden_layers
        lists = (m for m in self.module.modules() if isinstance(m, nn.ModuleList))
        found = next((each for each in lists if len(each) == count), None)
        if found is None:
            raise UserError(f"{type(self.module).__name__} has no ModuleList of {count} layers.")
        return list(found)

    def with_hidden(self, change: Hidden) -> "CausalModel":
        """Return this model with changed layer inputs; the module is shared."""
        changed = copy(self)
        changed._change = change
        return changed

    def with_frozen(self, change: Frozen) -> "CausalModel":
        """Return this model with other frozen weights; the module is shared, and so are weights that stay."""
        layout = {name: tuple(p.shape) for name, p in self._frozen.items()}
        with torch.no_grad():
            frozen_1F = torch.cat([p.flatten() for p in self._frozen.values()])[None]
            parts = change(frozen_1F, layout)[0].split([p.numel() for p in self._frozen.values()])
        changed = copy(self)
        changed._swapped = {
            # A clone, because a view of one changed weight would keep all of the new ones in memory.
            name: part.view(p.shape).to(p.dtype).clone()
            for (name, p), part in zip(self._frozen.items(), parts, strict=True)
            if not torch.equal(part.view(p.shape), p)
        }
        changed._frozen = {**self._frozen, **changed._swapped}
        return changed

    @contextmanager
    def _changed(self, again: int) -> Iterator[None]:
        """Context in which layers read the inputs of `with_hidden`."""
        handles = []
        if (change := self._change) is not None:

            def hook(layer: int, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
                if given:
                    return (change(layer, given[0], again), *given[1:]), named
                return given, {**named, "hidden_states": change(layer, named["hidden_states"], again)}

            for layer, block in enumerate(self.blocks):
                read = lambda _, given, named, layer=layer: hook(layer, given, named)  # noqa: E731
                handles.append(block.register_forward_pre_hook(read, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def initial(self) -> Tensor:
        """Return the loaded weights, [P], float32 or better.

        Not a copy: in that type the module's weights are views of them, and nothing writes to either.
        """
        return self._start_P

    def weights(self, theta_P: Tensor) -> dict[str, Tensor]:
        """Return the named weights in the model's dtype, as views of theta_P; of R adapters, [R, …] each."""
        return self.flat.views(theta_P.to(self.dtype))

    @property
    def stacks(self) -> bool:
        """True if several replicas can run as one batch: they differ in adapters alone."""
        return self._adapted and self._change is None

    def replicas(self, weights: dict[str, Tensor]) -> int:
        """Return the number of replicas in these weights; stacked weights have one more dimension."""
        name, shape = self.flat.names[0], self.flat.shapes[0]
        return len(weights[name]) if weights[name].dim() > len(shape) else 1

    def plain(self, theta_P: Tensor) -> dict[str, Tensor]:
        """Return the weights of the equivalent model without adapters, under its names."""
        weights = self.weights(theta_P.detach())
        return merged(self.module, weights) if self.lora else weights

    def save(self, theta_P: Tensor, folder: Path) -> None:
        """Write these weights and the configuration to a folder, as safetensors; adapters are merged."""
        weights = {name: view.contiguous().cpu() for name, view in self.plain(theta_P).items()}
        with quiet_transformers():
            self.module.save_pretrained(str(folder), state_dict=weights)

    def save_adapter(self, theta_P: Tensor, folder: Path) -> None:
        """Write the adapters alone to a folder that peft can open; UserError for a model without any."""
        if not self.lora:
            raise UserError("This policy has no adapters; give policy_args.lora, or save the whole model.")
        save_adapter(self.module, self.weights(theta_P.detach()), folder)

    def bind(self, weights: dict[str, Tensor], passes: int) -> None:
        """Put weights into the module, so that passes without gradient need not swap them each time.

        passes: expected number of passes. From MANY on, linear layers on a CPU get copies laid out by input:
        products of 64 rows then take three quarters of the time.
        """
        if weights is self._bound:
            return
        laid_out = self._linear if passes >= MANY else frozenset()
        own = dict(self.module.named_parameters())
        named = {**self._swapped, **weights}
        self._own = self._own or {name: own[name].data for name in named}
        for name, value in named.items():
            turned = name in laid_out and value.dim() == 2
            own[name].data = value.t().contiguous().t() if turned else value
        self._bound = weights

    def unbind(self) -> None:
        """Restore the module's original weights."""
        own = dict(self.module.named_parameters())
        for name, value in self._own.items():
            own[name].data = value
        self._bound, self._own = None, {}

    def head(self, weights: dict[str, Tensor], vocabulary: int) -> Head:
        """Return the head's rows for the tokens 0 .. vocabulary-1."""
        if self._head_names is None:
            return Head(None, None)
        weight, bias = self._head_names
        known = {**self._frozen, **weights}
        return Head(known[weight][:vocabulary], None if bias is None else known[bias][:vocabulary])

    def run_prompts(
        self, weights: dict[str, Tensor], prompt_NQ: Tensor, real_NQ: Tensor, group: int
    ) -> Prefix:
        """Run each prompt once and repeat its cache `group` times; columns without a real token are dropped.

        A beginning common to all prompts, such as a system prompt, runs once. real_NQ: False on padding, on
        the left. Differentiable: one backward pass adds up the gradients of a group in its prompt.
        """
        prompt_NQ, real_NQ = _cut(prompt_NQ, real_NQ)
        self._check_length(prompt_NQ.shape[1])
        token_C = self._common(prompt_NQ, real_NQ)
        cache, common = self._run_common(weights, token_C, len(prompt_NQ)), len(token_C)
        prompt_NQ, real_NQ = behind(common, prompt_NQ, real_NQ)
        real_NQ = torch.cat([real_NQ.new_ones(len(real_NQ), common), real_NQ], dim=1)
        position_NQ = (real_NQ.cumsum(1) - 1).clamp(min=0)[:, common:]
        with self._changed(0):
            feature_NH = self._call(weights, prompt_NQ, real_NQ, position_NQ, cache)[:, -1]
        cache.batch_repeat_interleave(group)
        real_BQ = real_NQ.repeat_interleave(group, 0)
        return Prefix(feature_NH.repeat_interleave(group, 0), cache, real_BQ, not bool(real_NQ.all()))

    def _common(self, prompt_NQ: Tensor, real_NQ: Tensor) -> Tensor:
        """Return the tokens with which all prompts begin; none where layers' inputs change row by row."""
        least = sys.maxsize if self._change is not None else self.least_common
        return common_tokens(prompt_NQ, real_NQ, least)

    def _run_common(self, weights: dict[str, Tensor], token_C: Tensor, prompts: int) -> Any:
        """Return a cache of the common tokens, a row per prompt; an empty one without any."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.module.config)
        if len(token_C):
            replicas = self.replicas(weights)
            place_RC = torch.arange(len(token_C), device=token_C.device).expand(replicas, -1)
            self._call(weights, token_C.expand(replicas, -1), None, place_RC, cache)
            cache.batch_repeat_interleave(prompts // replicas)
        return cache

    def run_tokens(self, weights: dict[str, Tensor], prefix: Prefix, token_BT: Tensor, new: int) -> Tensor:
        """Return the features after each of the last `new` response tokens, [B, new, H].

        token_BT are all response tokens so far; the prefix's cache holds the earlier ones and gains the new.
        """
        real_BQ, seen_BQ = prefix.real_BQ, None
        long = real_BQ.shape[1] + token_BT.shape[1]
        if prefix.padded:
            seen_BQ = torch.cat([real_BQ, real_BQ.new_ones(token_BT.shape)], dim=1)
            position_BT = seen_BQ.cumsum(1)[:, -new:] - 1
        else:
            position_BT = torch.arange(long - new, long, device=real_BQ.device).expand(len(real_BQ), -1)
        self._check_length(long)
        with self._changed(1):
            return self._call(weights, token_BT[:, -new:], seen_BQ, position_BT, prefix.cache)

    def run_responses(
        self, weights: dict[str, Tensor], prompt_NQ: Tensor, real_NQ: Tensor, token_BT: Tensor, group: int
    ) -> Tensor:
        """Return the features before and after each token of the groups' responses, [B, T + 1, H].

        Short responses are packed: a row is a prompt with its responses side by side; each sees the prompt
        and itself. That halves the operations and multiplies all tokens at once.
        """
        prompt_NQ, real_NQ = _cut(prompt_NQ, real_NQ)
        length = token_BT.shape[1]
        token_C = self._common(prompt_NQ, real_NQ)
        columns = prompt_NQ.shape[1] - len(token_C) + group * length
        if self._packs and self._change is None and length and columns <= PACKED:
            self._check_length(prompt_NQ.shape[1] + length)
            return self.packed(weights, prompt_NQ, real_NQ, token_BT, group, token_C)
        prefix = self.run_prompts(weights, prompt_NQ, real_NQ, group)
        feature_BTH = prefix.feature_BH[:, None]
        if length:
            later_BTH = self.run_tokens(weights, prefix, token_BT, new=length)
            feature_BTH = torch.cat([feature_BTH, later_BTH], dim=1)
        return feature_BTH

    def packed(
        self,
        weights: dict[str, Tensor],
        prompt_NQ: Tensor,
        real_NQ: Tensor,
        token_BT: Tensor,
        group: int,
        token_C: Tensor,
    ) -> Tensor:
        """Return `run_responses` with a row per prompt, on top of the common tokens token_C."""
        common = len(token_C)
        read = self._run_common(weights, token_C, len(prompt_NQ)) if common else None
        prompt_NQ, real_NQ = behind(common, prompt_NQ, real_NQ)
        (prompts, width), length, device = prompt_NQ.shape, token_BT.shape[1], token_BT.device
        whose_L = torch.arange(group, device=device).repeat_interleave(length)
        whose_L = torch.cat([whose_L.new_full((width,), -1), whose_L])
        later_L = torch.arange(width, width + length, device=device).repeat(group)
        place_L = torch.cat([torch.arange(width, device=device), later_L])
        sees_LL = (whose_L == -1) | (whose_L == whose_L[:, None])
        sees_LL &= place_L <= place_L[:, None]
        real_NL = torch.cat([real_NQ, real_NQ.new_ones(prompts, group * length)], dim=1)
        itself_LL = torch.eye(len(place_L), dtype=torch.bool, device=device)  # padding sees itself
        sees_NLL = (sees_LL & real_NL[:, None]) | itself_LL
        hidden_NLL = torch.zeros_like(sees_NLL, dtype=self.dtype)
        hidden_NLL.masked_fill_(~sees_NLL, torch.finfo(self.dtype).min)
        hidden_NLL = functional.pad(hidden_NLL, (common, 0))  # every row sees the common tokens
        place_NL = (place_L - (~real_NQ).sum(1, keepdim=True)).clamp(min=0) + common
        token_NL = torch.cat([prompt_NQ, token_BT.reshape(prompts, -1)], dim=1)
        feature_NLH = self._call(weights, token_NL, hidden_NLL[:, None], place_NL, read)
        first_BH = feature_NLH[:, width - 1].repeat_interleave(group, 0)
        later_BTH = feature_NLH[:, width:].reshape(len(token_BT), length, -1)
        return torch.cat([first_BH[:, None], later_BTH], dim=1)

    def _check_length(self, tokens: int) -> None:
        if self._most_positions is not None and tokens > self._most_positions:
            raise UserError(
                f"Prompt and response reach {tokens} tokens, but the model has {self._most_positions} "
                "positions; take shorter responses or a model with a longer context."
            )

    def _call(
        self,
        weights: dict[str, Tensor],
        token_BT: Tensor,
        seen: Tensor | None,
        position_BT: Tensor,
        cache: Any,
    ) -> Tensor:
        """Run the module; seen: real positions, bool [B, Q], or what to add to attention, [B, 1, T, Q]."""
        inputs: dict[str, Any] = {
            "input_ids": token_BT,
            "attention_mask": seen.to(torch.int64) if seen is not None and seen.dim() == 2 else seen,
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        if self.takes_positions:
            inputs["position_ids"] = position_BT
        if weights is self._bound and not torch.is_grad_enabled():
            with torch.inference_mode():
                bound_BTH: Tensor = self.features(**inputs)
            return bound_BTH
        named = {f"model.{name}": weight for name, weight in {**self._swapped, **weights}.items()}
        feature_BTH: Tensor = functional_call(self.features, named, (), inputs)
        return feature_BTH


def _cut(prompt_NQ: Tensor, real_NQ: Tensor) -> tuple[Tensor, Tensor]:
    """Return prompts without padding-only columns; UserError for a prompt of padding only."""
    if not real_NQ[:, -1].all():
        raise UserError("A prompt consists of padding only; every prompt needs at least one token.")
    first = int(real_NQ.any(0).nonzero().min())
    return prompt_NQ[:, first:], real_NQ[:, first:]


def _linear_weights(module: Any) -> frozenset[str]:
    """Return the names of the weights of linear layers below the head."""
    read = {id(layer.weight) for layer in module.base_model.modules() if isinstance(layer, nn.Linear)}
    return frozenset(name for name, parameter in module.named_parameters() if id(parameter) in read)
