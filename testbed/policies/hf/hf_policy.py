"""Any local Hugging Face causal LM as a policy: sampler, flat weights, chunked log-probabilities."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy.typing as npt
import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from testbed.errors import UserError
from testbed.policies.hf.causal_model import CausalModel, Frozen, Head, Hidden
from testbed.policies.hf.chunked_logp import (
    chunk_rows,
    chunked_entropy,
    chunked_logp,
    chunked_logp_entropy,
    head_logits,
    logits_entropy,
    logits_logp,
    logits_score_norm,
)
from testbed.policies.hf.engines import Sampling, TokenEngine, open_engine, seed_of, written
from testbed.policies.hf.hf_decoder import (
    Choose,
    DecodeRequest,
    Ended,
    Reader,
    drawing,
    ended_by,
    ended_with,
    greedily,
    reading,
    split_by_version,
    write,
)
from testbed.policies.hf.lora import ALL, Lora
from testbed.policies.hf.micro_batches import (
    Refused,
    checked_micro_tokens,
    lengths,
    parts,
    recomputed,
    refusing,
)
from testbed.policies.hf.model_folder import DTYPES, load_model
from testbed.policies.hf.options import check_options
from testbed.policies.policy import Distribution, Drawn, Policy
from testbed.policies.token_versions import checked_cache, checked_versions


class HuggingFacePolicy(Policy):
    """softmax(logits / temperature) of a causal LM over its first V tokens, V = the task's vocabulary.

    The weights are a flat tensor theta_RP over the distinct parameters (float32; float64 for dtype float64).
    Replicas with adapters run as one batch, others one after another. A prompt runs once and its cache serves
    the whole group, in training and in sampling. Dropout is off. The temperature belongs to the policy:
    sample, logp and entropy all use it.

    lora, lora_alpha, lora_targets, adapter: rank, scale and layers of adapters on frozen weights, or a saved
    adapter to start from; theta then holds only the adapters: see lora. attention: "eager" is faster than
    "sdpa" for bfloat16 on a CPU below about 200 tokens, in the gradient. engine: "vllm" writes the responses
    instead of the sampler here: see engines.

    Raises UserError for folders that `load_model` refuses and for a vocabulary smaller than the task's.
    """

    def __init__(
        self,
        model_path: str | Path,
        task: TokenTask,
        device: str | torch.device = "cpu",
        temperature: float = 1.0,
        dtype: str | torch.dtype = "float32",
        attention: str = "auto",
        micro_tokens: int = 0,
        lora: int = 0,
        lora_alpha: float = 0.0,
        lora_targets: str = ALL,
        adapter: str = "",
        engine: str = "",
    ) -> None:
        check_options(temperature, dtype, micro_tokens, lora, lora_alpha, lora_targets, adapter)
        self.dtype = DTYPES[dtype] if isinstance(dtype, str) else dtype
        self._wide = torch.promote_types(self.dtype, torch.float32)
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(f"Device '{device}' was asked for, but torch finds no CUDA device; use 'cpu'.")
        self.task, self._scale = task, 1.0 / temperature
        self.micro_tokens = checked_micro_tokens(micro_tokens)
        loaded = load_model(model_path, self.dtype, attention)
        adapters = Lora(lora, lora_alpha, lora_targets, adapter)
        self._model = CausalModel(loaded, self.device, self.dtype, adapters)
        if self._model.rows < task.vocabulary:
            raise UserError(
                f"The model in '{model_path}' knows {self._model.rows} tokens, but the task uses "
                f"{task.vocabulary}; give a model with a larger vocabulary or one trained for this task."
            )
        self.adapted = bool(adapters)
        self.parameters, self.temperature, self.loaded = self._model.flat.total, temperature, 0
        self.engine = open_engine(engine, model_path) if engine else None

    @property
    def layout(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights, in the order of theta."""
        flat = self._model.flat
        return {name: tuple(shape) for name, shape in zip(flat.names, flat.shapes, strict=True)}

    @property
    def positions(self) -> int:
        return self.task.response_length

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return the folder's weights once per replica, [R, P]; the seeds set only the number."""
        start_P = self._model.initial()  # one replica is not copied, so that a large model is in memory once
        return start_P.repeat(len(seeds), 1) if len(seeds) > 1 else start_P[None]

    def save(self, theta_P: Tensor, folder: str | Path) -> None:
        """Write one replica's weights [P] as a model folder for `from_pretrained`, without a tokenizer.

        Adapters are merged into their weights.
        """
        self._model.save(theta_P, Path(folder))

    def save_adapter(self, theta_P: Tensor, folder: str | Path) -> None:
        """Write one replica's adapters [P] as a folder for peft, and for this class's `adapter`."""
        self._model.save_adapter(theta_P, Path(folder))

    @torch.no_grad()
    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor | npt.ArrayLike,
        greedy: bool = False,
        distribution: Distribution | None = None,
    ) -> Drawn:
        """Return token_RBT, mask_RBT and logp_RBT, drawn by inverse CDF from the given uniforms; no gradient.

        greedy takes the likeliest token for any uniforms. distribution: what an engine draws from
        instead; logp_RBT is then the engine's. No random generator is used. A token without mass is never
        drawn. After the end token: token 0, mask False, logp 0.
        """
        uniform_RBT = torch.as_tensor(uniform_RBT, dtype=torch.float64).to(self.device)
        if self.engine is not None and not greedy:
            if distribution is not None:
                self._lacks("a different sampling distribution beside that of an outside engine")
            each = zip(theta_RP, prompt_RNQ, uniform_RBT, strict=True)
            drawn = [self._ask(self.engine, th, prompt, group, uniform) for th, prompt, uniform in each]
            token_RBT, mask_RBT, logp_RBT = (torch.stack(p).to(self.device) for p in zip(*drawn, strict=True))
            return token_RBT, mask_RBT, logp_RBT
        # A distribution expects a row per replica, which one stacked batch does not have.
        if distribution is None and self._stack(theta_RP):
            order = self._order([theta_RP], [0] * uniform_RBT.shape[2], prompt_RNQ.flatten(0, 1), group)
            uniform_1BT = uniform_RBT.flatten(0, 1)[None]
            choice = greedily if greedy else drawing(uniform_1BT[0])
            out = self._write([[order]], [choice], [ended_by(self.task)], uniform_1BT.shape)
            return out[0].view_as(uniform_RBT), out[1].view_as(uniform_RBT), out[2].view_as(uniform_RBT)
        pairs, path_T = zip(theta_RP, prompt_RNQ, strict=True), [0] * uniform_RBT.shape[2]
        orders = [[self._order([theta_P], path_T, prompt_NQ, group)] for theta_P, prompt_NQ in pairs]
        choose = [greedily if greedy else drawing(uniform_BT) for uniform_BT in uniform_RBT]
        ended = [ended_by(self.task)] * len(orders)
        return self._write(orders, choose, ended, uniform_RBT.shape, distribution)

    @torch.no_grad()
    def sample_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor | npt.ArrayLike,
        cache: str = "kept",
        distribution: Distribution | None = None,
    ) -> Drawn:
        """`sample` for responses with token t drawn at version_RBT[r, b, t] of theta_RWP.

        Rows with equal versions over time are written together; each distinct sequence of versions costs one
        pass per token. UserError for an outside engine, which cannot change weights at a chosen token.
        """
        if self.engine is not None:
            self._lacks("a way to change an outside engine's weights at a given token")
        uniform_RBT = torch.as_tensor(uniform_RBT, dtype=torch.float64).to(self.device)
        orders = self._courses(theta_RWP, version_RBT, prompt_RNQ, group, uniform_RBT.shape, cache)
        choose = [drawing(uniform_BT) for uniform_BT in uniform_RBT]
        ended = [ended_by(self.task)] * len(orders)
        return self._write(orders, choose, ended, uniform_RBT.shape, distribution)

    @torch.no_grad()
    def logp_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        token_RBT: Tensor,
        mask_RBT: Tensor,
        cache: str = "kept",
    ) -> Tensor:
        """Return the log-probabilities [R, B, T] that `sample_in_flight` records; no gradient."""
        group = token_RBT.shape[1] // prompt_RNQ.shape[1]
        orders = self._courses(theta_RWP, version_RBT, prompt_RNQ, group, token_RBT.shape, cache)
        choose = [reading(token_BT) for token_BT in token_RBT]
        ended = [ended_with(mask_BT) for mask_BT in mask_RBT]
        return self._write(orders, choose, ended, token_RBT.shape)[2]

    def logp(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi(token | before), [R, B, T], differentiable in theta; 0 where mask is False."""
        return self._each(self._logp_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    def logp_entropy(
        self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return `logp` and `entropy` from one pass; the entropy has no gradient."""
        both_RBTX = self._each(self._both_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)
        return both_RBTX[..., 0], both_RBTX[..., 1].detach()

    @torch.no_grad()
    def entropy(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the entropy of each token's distribution in nats, [R, B, T]; 0 where mask is False."""
        return self._each(self._entropy_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    @torch.no_grad()
    def score_norm(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return |d log pi(token) / d logits|^2 = 1 - 2 pi + sum pi^2, [R, B, T]; 0 where mask is False."""
        return self._each(self._score_norm_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    @property
    def layers(self) -> int:
        """Number of layers that `with_hidden` changes."""
        return len(self._model.blocks)

    def with_hidden(self, change: Hidden) -> "HuggingFacePolicy":
        """Return this policy with changed layer inputs; UserError if it uses micro-batches."""
        if self.micro_tokens:
            self._lacks("noise in its layers together with micro_tokens")
        changed = copy(self)
        changed._model = self._model.with_hidden(change)
        return changed

    def with_frozen(self, change: Frozen) -> "HuggingFacePolicy":
        """Return this policy with other weights beneath its adapters; UserError for an outside engine."""
        if self.engine:
            self._lacks("other frozen weights beside an outside engine")
        changed = copy(self)
        changed._model = self._model.with_frozen(change)
        return changed

    def _ask(
        self, engine: TokenEngine, theta_P: Tensor, prompt_NQ: Tensor, group: int, uniform_BT: Tensor
    ) -> Drawn:
        """Return an outside engine's responses; its log-probabilities are the behavior policy's."""
        # A version per load, not per update, so that `written` finds responses of weights loaded earlier.
        self.loaded += 1
        engine.load(self._model.plain(theta_P), self.loaded)
        ends = tuple(self.task.end_tokens), tuple(self.task.stops)
        order = Sampling(self.temperature, uniform_BT.shape[1], *ends)
        prompts = [row[real].tolist() for row, real in zip(prompt_NQ, self._real(prompt_NQ), strict=True)]
        found = engine.generate(prompts, group, order, seed_of(uniform_BT))
        return written(found, len(uniform_BT), uniform_BT.shape[1], self.task.vocabulary, self.loaded)

    def _write(
        self,
        orders: Sequence[Sequence[DecodeRequest]],
        choose: Sequence[Choose],
        ended: Sequence[Ended],
        shape: Sequence[int],
        distribution: Distribution | None = None,
    ) -> Drawn:
        token_RBT = torch.zeros(tuple(shape), dtype=torch.int64, device=self.device)
        out = token_RBT, torch.zeros_like(token_RBT).bool(), torch.zeros_like(token_RBT, dtype=self._wide)
        write(Reader(self._model, self.task, self._logits), orders, out, choose, ended, distribution)
        return out

    def _order(
        self, theta_WP: Sequence[Tensor], path_T: Sequence[int], prompt_NQ: Tensor, group: int
    ) -> DecodeRequest:
        """Return all rows of a replica as one request."""
        row_B = torch.arange(len(prompt_NQ) * group, device=self.device)
        prompt_NQ = prompt_NQ.to(self.device)
        weights = lambda v: self._model.weights(theta_WP[v])  # noqa: E731
        return DecodeRequest(weights, path_T, prompt_NQ, self._real(prompt_NQ), group, row_B)

    def _courses(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        shape: torch.Size,
        cache: str,
    ) -> list[list[DecodeRequest]]:
        """Group the rows of every replica by equal sequences of versions."""
        recomputed, replicas = checked_cache(cache) == "recomputed", []
        version_RBT = checked_versions(version_RBT, shape, theta_RWP.shape[1])
        for theta_WP, version_BT, prompt_NQ in zip(theta_RWP, version_RBT, prompt_RNQ, strict=True):
            whole = self._order(theta_WP, version_BT[0].tolist(), prompt_NQ, group)
            replicas.append(split_by_version(replace(whole, recomputed=recomputed), version_BT))
        return replicas

    def _stack(self, theta_RP: Tensor) -> bool:
        return len(theta_RP) > 1 and self._model.stacks and not self.micro_tokens

    def _real(self, prompt_NQ: Tensor) -> Tensor:
        """True from the first token that is not padding: inside a prompt the same token is text."""
        if self.task.pad_token is None:
            return torch.ones_like(prompt_NQ, dtype=torch.bool, device=self.device)
        return ((prompt_NQ != self.task.pad_token).cumsum(1) > 0).to(self.device)

    def _each(
        self, rows: "Rows", theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor
    ) -> Tensor:
        if self._stack(theta_RP):
            rows_B = (value.flatten(0, 1) for value in (prompt_RNQ, token_RBT, mask_RBT))
            return self._one(rows, theta_RP, *rows_B).unflatten(0, mask_RBT.shape[:2])
        each = zip(theta_RP, prompt_RNQ, token_RBT, mask_RBT, strict=True)
        return torch.stack([self._one(rows, *replica) for replica in each])

    def _one(
        self, rows: "Rows", theta_P: Tensor, prompt_NQ: Tensor, token_BT: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Apply `rows` to the features of the counted tokens, micro-batch by micro-batch."""
        long = (self._real(prompt_NQ).sum(1).tolist(), lengths(mask_BT).tolist())

        def run(theta_P: Tensor, most: int, refused: Refused = nullcontext) -> Tensor:
            planned = parts(*long, most)
            if len(planned) == 1:
                return self._part(rows, theta_P, prompt_NQ, token_BT, mask_BT, planned[0].group)
            each = [
                lambda th, p=p: self._part(
                    rows, th, prompt_NQ[p.prompts], token_BT[p.rows], mask_BT[p.rows], p.group
                )
                for p in planned
            ]
            return torch.cat([recomputed(theta_P, values, refused) for values in each])

        def attempt(most: int) -> None:
            with torch.set_grad_enabled(theta_P.requires_grad):  # the backward pass calls with gradients off
                leaf_P = theta_P.detach().requires_grad_(theta_P.requires_grad)
                value_BT = run(leaf_P, most)
                if value_BT.requires_grad:
                    torch.autograd.grad(value_BT.sum(), leaf_P)

        whole = len(long[0]) * max(long[0]) + len(long[1]) * max(long[1])
        most = min(whole, self.micro_tokens or whole)
        refused = partial(refusing, most, attempt)
        with refused():
            return run(theta_P, self.micro_tokens, refused)

    def _part(
        self, rows: "Rows", theta_P: Tensor, prompt_NQ: Tensor, token_BT: Tensor, mask_BT: Tensor, group: int
    ) -> Tensor:
        """Apply `rows` to the features of the counted tokens, and scatter the results."""
        weights = self._model.weights(theta_P)
        # Nothing counts after the longest response, and attention is causal: drop those columns.
        longest = max(int(lengths(mask_BT).max()), 1)
        feature_BTH = self._model.run_responses(
            weights, prompt_NQ.to(self.device), self._real(prompt_NQ), token_BT[:, : longest - 1], group
        )
        use_BT, head = mask_BT[:, :longest], self._model.head(weights, self.task.vocabulary)
        value_N = rows(feature_BTH[use_BT], head, token_BT[:, :longest][use_BT])
        value_BT = value_N.new_zeros((*mask_BT.shape, *value_N.shape[1:]))
        return value_BT.masked_scatter(mask_BT if value_N.dim() == 1 else mask_BT[..., None], value_N)

    def _logp_rows(self, feature_NH: Tensor, head: Head, token_N: Tensor) -> Tensor:
        if head.weight_VH is None:
            return logits_logp(self._logits(feature_NH, head), token_N)
        return chunked_logp(feature_NH, head.weight_VH, head.bias_V, token_N, self._scale)

    def _both_rows(self, feature_NH: Tensor, head: Head, token_N: Tensor) -> Tensor:
        if head.weight_VH is None:
            logits_NV = self._logits(feature_NH, head)
            both = logits_logp(logits_NV, token_N), logits_entropy(logits_NV.detach())
        else:
            both = chunked_logp_entropy(feature_NH, head.weight_VH, head.bias_V, token_N, self._scale)
        return torch.stack(both, -1)

    def _entropy_rows(self, feature_NH: Tensor, head: Head, _token_N: Tensor) -> Tensor:
        if head.weight_VH is None:
            return logits_entropy(self._logits(feature_NH, head))
        return chunked_entropy(feature_NH, head.weight_VH, head.bias_V, self._scale)

    def _score_norm_rows(self, feature_NH: Tensor, head: Head, token_N: Tensor) -> Tensor:
        rows = chunk_rows(self.task.vocabulary, self.device)
        each = zip(feature_NH.split(rows), token_N.split(rows), strict=True)
        return torch.cat([logits_score_norm(self._logits(part, head), token) for part, token in each])

    def _logits(self, feature_NH: Tensor, head: Head) -> Tensor:
        """Return logits / temperature over the task's vocabulary, [N, V], float32 or better."""
        if head.weight_VH is None:
            return feature_NH[:, : self.task.vocabulary].to(self._wide) * self._scale
        return head_logits(feature_NH, head.weight_VH, head.bias_V, self._scale)


Rows = Callable[[Tensor, Head, Tensor], Tensor]
"""(features [N, H], head, tokens [N]) -> one number per token [N], or several [N, X]."""
