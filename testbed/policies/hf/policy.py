"""Any local Hugging Face causal language model as a policy: own sampler, flat weights, chunked logp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy.typing as npt
import torch
from torch import Tensor

from envs.tokens.base import TokenTask
from testbed.errors import UserError, unknown
from testbed.policies.base import Drawn, Law, Policy
from testbed.policies.hf.causal_model import CausalModel, Head
from testbed.policies.hf.chunked_logp import (
    chunk_rows,
    chunked_entropy,
    chunked_logp,
    head_logits,
    logits_entropy,
    logits_logp,
)
from testbed.policies.hf.micro_batches import (
    Refused,
    checked_micro_tokens,
    parts,
    recomputed,
    refusing,
)
from testbed.policies.hf.model_folder import load_model

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}

LOGP_TOLERANCE = {torch.float64: 2e-5, torch.float32: 2e-5, torch.float16: 0.02, torch.bfloat16: 0.1}
"""Largest difference in nats per token between the sampler's log-probabilities and `logp` at equal weights.

The sampler reads one token at a time, training all of them at once: the sums run in another order. float64 is
no better than float32 where a model computes its norms in float32 (Llama, Qwen); elsewhere it reaches 1e-12.
"""


class HuggingFacePolicy(Policy):
    """softmax(logits / temperature) of a causal LM over its first V tokens, V = the task's vocabulary.

    The weights are a flat tensor theta_RP over the distinct parameters (float32; float64 for dtype float64);
    replicas run one after the other. A prompt runs once and its cache serves the whole group, in training as
    in sampling. Dropout is off. The temperature belongs to the policy: sample, logp and entropy all use it.

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
    ) -> None:
        if not temperature > 0:
            raise UserError(
                f"temperature must be positive, got {temperature}; 1 samples from the model itself."
            )
        if isinstance(dtype, str) and dtype not in DTYPES:
            raise unknown("dtype", dtype, DTYPES)
        self.dtype = DTYPES[dtype] if isinstance(dtype, str) else dtype
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(f"Device '{device}' was asked for, but torch finds no CUDA device; use 'cpu'.")
        self.task, self._scale = task, 1.0 / temperature
        self.micro_tokens = checked_micro_tokens(micro_tokens)
        self._model = CausalModel(load_model(model_path, self.dtype, attention), self.device, self.dtype)
        if self._model.rows < task.vocabulary:
            raise UserError(
                f"The model in '{model_path}' knows {self._model.rows} tokens, but the task uses "
                f"{task.vocabulary}; give a model with a larger vocabulary or one trained for this task."
            )
        self.parameters = self._model.flat.total

    @property
    def layout(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights, in the order of theta."""
        flat = self._model.flat
        return {name: tuple(shape) for name, shape in zip(flat.names, flat.shapes, strict=True)}

    @property
    def positions(self) -> int:
        return self.task.response_length

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return the folder's weights once per replica, [R, P]; the seeds only count, nothing is random."""
        return self._model.initial().expand(len(seeds), -1).clone()

    def save(self, theta_P: Tensor, folder: str | Path) -> None:
        """Write one replica's weights [P] as a model folder for `from_pretrained`, without a tokenizer."""
        self._model.save(theta_P, Path(folder))

    @torch.no_grad()
    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor | npt.ArrayLike,
        greedy: bool = False,
        law: Law | None = None,
    ) -> Drawn:
        """Return token_RBT, mask_RBT and logp_RBT, drawn by inverse CDF from the given uniforms; no gradient.

        greedy takes the likeliest token instead, whatever the uniforms.
        No random generator is read. A token without mass is never drawn. After the end token: token 0, mask
        False, logp 0. Raises UserError for a law: an engine that changes distributions needs another policy.
        """
        if law is not None:
            self._lacks("a sampler that takes another distribution")
        uniform = torch.as_tensor(uniform_RBT, dtype=torch.float64).to(self.device)
        replicas = zip(theta_RP, prompt_RNQ, uniform, strict=True)
        drawn = [self._sample_one(*replica, group, greedy) for replica in replicas]
        token_RBT, mask_RBT, logp_RBT = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        return token_RBT, mask_RBT, logp_RBT

    def logp(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi(token | before), [R, B, T], differentiable in theta; 0 where mask is False."""
        return self._each(self._logp_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    @torch.no_grad()
    def entropy(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the entropy of each token's law in nats, [R, B, T]; 0 where mask is False."""
        return self._each(self._entropy_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    @torch.no_grad()
    def score_norm(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return |d log pi(token) / d logits|^2 = 1 - 2 pi + sum pi^2, [R, B, T]; 0 where mask is False."""
        return self._each(self._score_norm_rows, theta_RP, prompt_RNQ, token_RBT, mask_RBT)

    def _sample_one(
        self, theta_P: Tensor, prompt_NQ: Tensor, uniform_BT: Tensor, group: int, greedy: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = self._model.weights(theta_P)
        head = self._model.head(weights, self.task.vocabulary)
        token_BT = torch.zeros(uniform_BT.shape, dtype=torch.int64, device=self.device)
        mask_BT = torch.zeros_like(token_BT, dtype=torch.bool)
        logp_BT = torch.zeros(uniform_BT.shape, dtype=theta_P.dtype, device=self.device)
        prefix = self._model.run_prompts(weights, prompt_NQ.to(self.device), self._real(prompt_NQ), group)
        feature_BH, alive_B = prefix.feature_BH, torch.ones_like(mask_BT[:, 0])
        for t in range(uniform_BT.shape[1]):
            if t:
                feature_BH = self._model.run_tokens(weights, prefix, token_BT[:, :t], new=1)[:, -1]
            token_B, logp_B = self._draw(feature_BH, head, uniform_BT[:, t], greedy)
            token_BT[:, t] = token_B.where(alive_B, 0)
            logp_BT[:, t] = logp_B.where(alive_B, 0.0)
            mask_BT[:, t] = alive_B
            alive_B = alive_B & (token_B != (-1 if self.task.end_token is None else self.task.end_token))
            if not alive_B.any():
                break
        return token_BT, mask_BT, logp_BT

    def _draw(self, feature_BH: Tensor, head: Head, uniform_B: Tensor, greedy: bool) -> tuple[Tensor, Tensor]:
        rows = chunk_rows(self.task.vocabulary, self.device)
        chunks = zip(feature_BH.split(rows), uniform_B.split(rows), strict=True)
        draw = likeliest if greedy else inverse_cdf
        parts = [draw(self._logits(feature_MH, head), uniform_M) for feature_MH, uniform_M in chunks]
        return torch.cat([token for token, _ in parts]), torch.cat([logp for _, logp in parts])

    def _real(self, prompt_NQ: Tensor) -> Tensor:
        """True from the first token that is not padding: inside a prompt the same token is text."""
        if self.task.pad_token is None:
            return torch.ones_like(prompt_NQ, dtype=torch.bool, device=self.device)
        return ((prompt_NQ != self.task.pad_token).cumsum(1) > 0).to(self.device)

    def _each(
        self, rows: Rows, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor
    ) -> Tensor:
        replicas = zip(theta_RP, prompt_RNQ, token_RBT, mask_RBT, strict=True)
        return torch.stack([self._one(rows, *replica) for replica in replicas])

    def _one(
        self, rows: Rows, theta_P: Tensor, prompt_NQ: Tensor, token_BT: Tensor, mask_BT: Tensor
    ) -> Tensor:
        """Apply `rows` to the features of the tokens that count, micro-batch by micro-batch."""
        lengths = (self._real(prompt_NQ).sum(1).tolist(), _length(mask_BT).tolist())

        def run(theta_P: Tensor, most: int, refused: Refused = nullcontext) -> Tensor:
            planned = parts(*lengths, most)
            cut = [(p, (prompt_NQ[p.prompts], token_BT[p.rows], mask_BT[p.rows])) for p in planned]
            if len(planned) == 1:
                return self._part(rows, theta_P, *cut[0][1], planned[0].group)
            each = [lambda th, p=p, x=x: self._part(rows, th, *x, p.group) for p, x in cut]
            return torch.cat([recomputed(theta_P, values, refused) for values in each])

        def attempt(most: int) -> None:
            with torch.set_grad_enabled(theta_P.requires_grad):  # a backward pass asks with it switched off
                leaf_P = theta_P.detach().requires_grad_(theta_P.requires_grad)
                value_BT = run(leaf_P, most)
                if value_BT.requires_grad:
                    torch.autograd.grad(value_BT.sum(), leaf_P)

        most = self.micro_tokens or prompt_NQ.numel() + token_BT.numel()
        refused = partial(refusing, most, attempt)
        with refused():
            return run(theta_P, self.micro_tokens, refused)

    def _part(
        self, rows: Rows, theta_P: Tensor, prompt_NQ: Tensor, token_BT: Tensor, mask_BT: Tensor, group: int
    ) -> Tensor:
        """Apply `rows` to the features of the tokens that count, and put the answers in their places."""
        weights = self._model.weights(theta_P)
        real_NQ = self._real(prompt_NQ)
        prefix = self._model.run_prompts(weights, prompt_NQ.to(self.device), real_NQ, group)
        # Nothing counts behind the longest response, and attention is causal: leave those columns out.
        longest = max(int(_length(mask_BT).max()), 1)
        feature_BTH = prefix.feature_BH[:, None]
        if longest > 1:
            later = self._model.run_tokens(weights, prefix, token_BT[:, : longest - 1], new=longest - 1)
            feature_BTH = torch.cat([feature_BTH, later], dim=1)
        use_BT = mask_BT[:, :longest]
        head = self._model.head(weights, self.task.vocabulary)
        value_N = rows(feature_BTH[use_BT], head, token_BT[:, :longest][use_BT])
        value_BT = torch.zeros(mask_BT.shape, dtype=theta_P.dtype, device=self.device)
        return value_BT.masked_scatter(mask_BT, value_N.to(theta_P.dtype))

    def _logp_rows(self, feature_NH: Tensor, head: Head, token_N: Tensor) -> Tensor:
        if head.weight_VH is None:
            return logits_logp(self._logits(feature_NH, head), token_N)
        return chunked_logp(feature_NH, head.weight_VH, head.bias_V, token_N, self._scale)

    def _entropy_rows(self, feature_NH: Tensor, head: Head, _token_N: Tensor) -> Tensor:
        if head.weight_VH is None:
            return logits_entropy(self._logits(feature_NH, head))
        return chunked_entropy(feature_NH, head.weight_VH, head.bias_V, self._scale)

    def _score_norm_rows(self, feature_NH: Tensor, head: Head, token_N: Tensor) -> Tensor:
        parts = feature_NH.split(chunk_rows(self.task.vocabulary, self.device))
        pi = (self._logits(part, head).softmax(-1) for part in parts)
        tokens = token_N.split(chunk_rows(self.task.vocabulary, self.device))
        norms = [
            1 - 2 * p.gather(-1, t[:, None])[:, 0] + p.square().sum(-1)
            for p, t in zip(pi, tokens, strict=True)
        ]
        return torch.cat(norms)

    def _logits(self, feature_NH: Tensor, head: Head) -> Tensor:
        """Return logits / temperature over the task's vocabulary, [N, V], float32 or better."""
        if head.weight_VH is None:
            wide = torch.promote_types(feature_NH.dtype, torch.float32)
            return feature_NH[:, : self.task.vocabulary].to(wide) * self._scale
        return head_logits(feature_NH, head.weight_VH, head.bias_V, self._scale)


Rows = Callable[[Tensor, Head, Tensor], Tensor]
"""(features [N, H], head, tokens [N]) -> one number per token [N]."""


def _length(mask_BT: Tensor) -> Tensor:
    """Return the place behind the last token that counts, [B]."""
    place_T = torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
    return (mask_BT * place_T).amax(1)


def likeliest(logits_BV: Tensor, _uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's likeliest token and its log-probability, [B]."""
    token_B = logits_BV.argmax(-1)
    return token_B, logits_logp(logits_BV, token_B)


def inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first token whose cumulative probability exceeds the uniform, and its log-probability, [B].

    The sum is float64 and the threshold stays below the total, so a token of probability zero is never drawn.
    A row of NaN gives token 0 and a NaN log-probability: a diverged policy is recorded, not a crash.
    """
    cumulative_BV = logits_BV.double().softmax(-1).cumsum(-1)
    total_B = cumulative_BV[:, -1]
    threshold_B = torch.minimum(uniform_B * total_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    token_B = (cumulative_BV <= threshold_B[:, None]).sum(-1)
    return token_B, logits_logp(logits_BV, token_B)
