"""Engines outside this process that write responses: tokens, log-probabilities, a version per token.

An engine receives weights, then prompts. Its results are checked: its log-probabilities are the behavior
policy's, and a token from other weights than those loaded is an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError, unknown
from testbed.policies.policy import Drawn


@dataclass(frozen=True)
class Sampling:
    """Sampling settings: temperature; most tokens of a response; tokens and strings that end one."""

    temperature: float
    length: int
    end_tokens: tuple[int, ...] = ()
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Completion:
    """One response: tokens, log-probabilities in nats under the sampling distribution, versions."""

    tokens: Sequence[int]
    logp: Sequence[float]
    versions: Sequence[int]


class TokenEngine(Protocol):
    """Interface of an engine that writes responses."""

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Load weights, by the names of the model folder; they write all later responses."""
        ...

    def generate(
        self, prompts: Sequence[Sequence[int]], group: int, sampling: Sampling, seed: int
    ) -> Sequence[Completion]:
        """Return `group` responses to each prompt, those of a prompt together."""
        ...


class VllmEngine:
    """vLLM in this process, on a separate GPU or on the trainer's.

    Its log-probabilities are those after temperature ("processed"), from which it draws. Raises UserError if
    vllm is not installed.
    """

    def __init__(self, model_path: str | Path, memory: float = 0.3, **options: Any) -> None:
        try:
            import vllm
        except ImportError as error:
            raise UserError(
                "engine 'vllm' needs the package vllm (a GPU machine): pip install vllm, or leave "
                "policy_args.engine out to sample here."
            ) from error
        self._make = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=str(model_path),
            logprobs_mode="processed_logprobs",
            gpu_memory_utilization=memory,
            trust_remote_code=False,
            **options,
        )
        self._version = 0

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Load weights; discard cached prefixes of older ones."""
        given = list(weights.items())
        self._llm.apply_model(lambda model: model.load_weights(given))
        self._llm.reset_prefix_cache()
        self._version = version

    def generate(
        self, prompts: Sequence[Sequence[int]], group: int, sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Return `group` responses to each prompt, end tokens and stop strings included."""
        params = self._make(
            n=group,
            temperature=sampling.temperature,
            top_p=1.0,
            top_k=0,
            max_tokens=sampling.length,
            logprobs=0,
            seed=seed,
            stop_token_ids=list(sampling.end_tokens),
            stop=list(sampling.stops) or None,
            include_stop_str_in_output=True,
            ignore_eos=not sampling.end_tokens,
            skip_special_tokens=False,
        )
        outputs = self._llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params)
        found = [answer for output in outputs for answer in output.outputs]
        return [self._completion(answer) for answer in found]

    def _completion(self, answer: Any) -> Completion:
        tokens = list(answer.token_ids)
        logp = [step[token].logprob for token, step in zip(tokens, answer.logprobs, strict=True)]
        return Completion(tokens, logp, [self._version] * len(tokens))


ENGINES = {"vllm": VllmEngine}


def open_engine(name: str, model_path: str | Path) -> TokenEngine:
    """Return a named engine with the model of a folder; UserError for an unknown name."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    engine: TokenEngine = ENGINES[name](model_path)
    return engine


def seed_of(uniform_BT: Tensor) -> int:
    """Return a seed computed from the batch's uniforms: equal runs request equal responses."""
    return int(float(uniform_BT.flatten()[0]) * 2**31)


def written(found: Sequence[Completion], rows: int, length: int, vocabulary: int, version: int) -> Drawn:
    """Return token_BT, mask_BT and logp_BT of an engine's responses.

    Raises UserError for another number of responses or tokens, an unknown token, an invalid log-probability,
    and a token of another version than the loaded one.
    """
    if len(found) != rows:
        raise UserError(f"The engine returned {len(found)} responses, expected {rows}.")
    token_BT = np.zeros((rows, length), dtype=np.int64)
    mask_BT, logp_BT = np.zeros((rows, length), dtype=bool), np.zeros((rows, length))
    for b, one in enumerate(found):
        T = len(one.tokens)
        if not 0 < T <= length or len(one.logp) != T or len(one.versions) != T:
            raise UserError(
                f"Response {b} of the engine has {T} tokens, {len(one.logp)} log-probabilities and "
                f"{len(one.versions)} versions; expected equally many, from 1 to {length}."
            )
        token_BT[b, :T], logp_BT[b, :T], mask_BT[b, :T] = one.tokens, one.logp, True
        if other := [v for v in one.versions if v != version]:
            raise UserError(
                f"Response {b} of the engine was written by weights of version {other[0]}, but version "
                f"{version} was loaded: its weights are stale."
            )
    odd = token_BT[(token_BT < 0) | (token_BT >= vocabulary)]
    if odd.size:
        raise UserError(f"The engine wrote token {odd[0]}, but the task knows 0 to {vocabulary - 1}.")
    if not np.isfinite(logp_BT).all() or logp_BT.max() > 1e-4:
        raise UserError("The engine returned log-probabilities that are not finite, or above 0.")
    return torch.from_numpy(token_BT), torch.from_numpy(mask_BT), torch.from_numpy(logp_BT).float()
