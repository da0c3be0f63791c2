"""The interface of a policy: a distribution over actions or tokens as a function of flat weights theta_RP.

Worlds, engines and warm starts use only this interface. `where` is what an action is conditioned on besides
earlier tokens: the visited states [R, B, T] of a table, the prompts [R, N, Q] of a token policy.
"""

# ruff: noqa: ARG002  what a policy lacks reads none of its arguments

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn, Protocol, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.policies.token_versions import checked_cache, logp_by_version

Layout: TypeAlias = Mapping[str, tuple[int, ...]]
"""Names and shapes of the matrices in a flat theta, in its order."""
Drawn: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""token_RBT, mask_RBT and logp_RBT."""
Distribution: TypeAlias = Callable[[Tensor, int], Tensor]
"""(log-probabilities [R, V, B], t) -> the distribution from which an engine draws token t."""
Tool: TypeAlias = Callable[[Tensor, int], "Tensor | None"]
"""(tokens so far [R, B, t], t) -> a tool's tokens at place t [R, B], None where the policy writes."""
Rounding: TypeAlias = Callable[[Tensor], Tensor]
"""Inputs [R, D, M] of a linear layer, one token per column -> the inputs it receives instead."""


class TaskShape(Protocol):
    """Properties of a task that a token policy reads."""

    @property
    def vocabulary(self) -> int: ...

    @property
    def prompt_length(self) -> int: ...

    @property
    def response_length(self) -> int: ...

    @property
    def end_token(self) -> int | None: ...

    @property
    def pad_token(self) -> int | None: ...

    @property
    def tool_T(self) -> tuple[bool, ...]: ...

    def tool(self, prompt_NQ: np.ndarray, response_Nt: np.ndarray, /) -> np.ndarray: ...


class Ranks(Protocol):
    """The part of Ranks that a world needs: processes that train the same pack together."""

    def of_first(self, compute: Callable[[], np.ndarray], size: int) -> np.ndarray:
        """Return the first rank's result, float64 [size]; the others wait for it."""


class Policy(ABC):
    """A softmax policy with weights that have a leading replica axis.

    Every policy has the abstract methods. Tables or token policies, or some of these, have the others; a
    policy without one raises UserError there. Two flags tell in advance:

    tabular: it has `logits` and `probabilities`, and `where` are states; else it samples, given prompts.
    open_layers: its forward pass can be changed, by `with_rounding` or by an engine's forward pass.
    adapted: theta holds adapters alone, and the model beneath them is frozen; only Hugging Face models.

    parameters: P. dtype, device: of theta and of results. ranks: the processes that share its batches, None
    for a single one; only Hugging Face models can have several.
    """

    tabular: bool = False
    open_layers: bool = False
    adapted: bool = False
    ranks: Ranks | None = None
    parameters: int
    dtype: torch.dtype
    device: torch.device

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Names and shapes of the matrices in theta."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """Decoding positions per batch that may need separate random draws: T, or 1 for a table."""

    @property
    def full_precision(self) -> "Policy":
        """The policy in which a base model is trained: itself, unless it rounds."""
        return self

    @abstractmethod
    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return the weights at the start [R, P], one row per seed."""

    @abstractmethod
    def logp(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi(token | before) in nats, [R, B, T], differentiable in theta; 0 outside the mask."""

    def logp_entropy(
        self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Return `logp` and `entropy` from one pass, or None if each needs a separate pass."""
        return None

    @abstractmethod
    def entropy(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the entropy of each token's distribution in nats, [R, B, T]; 0 outside the mask."""

    @abstractmethod
    def score_norm(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return |d log pi(token) / d logits|^2 = 1 - 2 pi + sum pi^2, [R, B, T]; 0 outside the mask."""

    # Tables.

    def logits(self, theta_RP: Tensor) -> Tensor:
        """Return the table of logits [R, S, A]."""
        self._lacks("a table of logits")

    def probabilities(self, theta_RP: Tensor) -> np.ndarray:
        """Return pi(a|s) as float64 [R, S, A]."""
        self._lacks("a table of probabilities")

    # Token policies.

    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        greedy: bool = False,
        distribution: Distribution | None = None,
    ) -> Drawn:
        """Return token_RBT, mask_RBT and logp_RBT, drawn by inverse CDF from uniforms; no gradient.

        greedy takes the likeliest token instead. distribution: what an engine draws from instead.
        """
        self._lacks("a sampler of tokens")

    def sample_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        cache: str = "kept",
        distribution: Distribution | None = None,
    ) -> Drawn:
        """`sample` for responses with token t drawn at version_RBT[r, b, t] of theta_RWP.

        cache: keys and values of earlier tokens are "kept" or "recomputed" when the weights change.
        """
        self._lacks("a sampler whose weights change inside a response")

    def logp_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        token_RBT: Tensor,
        mask_RBT: Tensor,
        cache: str = "kept",
    ) -> Tensor:
        """Return the log-probabilities [R, B, T] that `sample_in_flight` records for these tokens."""
        if checked_cache(cache) == "kept":
            self._lacks("a cache that outlives a change of weights")
        logp = lambda theta_RP: self.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT)  # noqa: E731
        return logp_by_version(logp, theta_RWP, version_RBT, mask_RBT)

    def log_distribution(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
        """Return log pi(. | first t tokens) for t = 0 .. T - 1, [R, B, T, V], differentiable in theta."""
        self._lacks("the distribution of every token at once")

    @property
    def width(self) -> int:
        """Width of `features`, M."""
        self._lacks("hidden states that a critic could read")

    def features(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
        """Return the head's inputs before each token, [R, B, T, M], differentiable in theta."""
        self._lacks("hidden states that a critic could read")

    def with_rounding(self, rounding: Rounding) -> "Policy":
        """Return this policy with the inputs of its linear layers rounded; only with `open_layers`."""
        self._lacks("linear layers whose inputs could be rounded")

    def with_frozen(self, change: Callable[[Tensor, Layout], Tensor]) -> "Policy":
        """Return this policy with other frozen weights; only where it is `adapted`.

        change: (frozen weights [1, F], their names and shapes) -> new ones [1, F].
        """
        self._lacks("frozen weights beneath adapters")

    def _lacks(self, what: str) -> NoReturn:
        raise UserError(f"{type(self).__name__} lacks {what}; take a policy that has it, as 'toy'.")


class Reweighted(Policy):
    """A policy at other weights: every method with theta receives `weights(theta)`.

    The starting weights are the inner policy's: rounded training starts where full-precision training starts.
    Subclasses define `weights`, and may replace any method.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.tabular, self.open_layers, self.adapted = policy.tabular, policy.open_layers, policy.adapted
        self.parameters, self.dtype, self.device = policy.parameters, policy.dtype, policy.device
        self.ranks = policy.ranks

    def weights(self, theta_RP: Tensor) -> Tensor:
        """Return theta as the inner policy reads it, [R, P']; differentiable."""
        return theta_RP

    def around(self, policy: Policy) -> Self:
        """Return the same change of weights around another policy."""
        changed = copy(self)
        changed.policy = policy
        return changed

    @property
    def layout(self) -> Layout:
        return self.policy.layout

    @property
    def positions(self) -> int:
        return self.policy.positions

    @property
    def full_precision(self) -> Policy:
        inside = self.policy.full_precision
        return self if inside is self.policy else self.around(inside)

    def initial(self, seeds: Sequence[int]) -> Tensor:
        return self.policy.initial(seeds)

    def logp(self, theta_RP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.logp(self.weights(theta_RP), *given, **named)

    def logp_entropy(self, theta_RP: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor] | None:
        return self.policy.logp_entropy(self.weights(theta_RP), *given, **named)

    def entropy(self, theta_RP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.entropy(self.weights(theta_RP), *given, **named)

    def score_norm(self, theta_RP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.score_norm(self.weights(theta_RP), *given, **named)

    def logits(self, theta_RP: Tensor) -> Tensor:
        return self.policy.logits(self.weights(theta_RP))

    def probabilities(self, theta_RP: Tensor) -> np.ndarray:
        return self.policy.probabilities(self.weights(theta_RP))

    def sample(self, theta_RP: Tensor, *given: Any, **named: Any) -> Drawn:
        return self.policy.sample(self.weights(theta_RP), *given, **named)

    def sample_in_flight(self, theta_RWP: Tensor, *given: Any, **named: Any) -> Drawn:
        return self.policy.sample_in_flight(self._of_versions(theta_RWP), *given, **named)

    def logp_in_flight(self, theta_RWP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.logp_in_flight(self._of_versions(theta_RWP), *given, **named)

    def log_distribution(self, theta_RP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.log_distribution(self.weights(theta_RP), *given, **named)

    @property
    def width(self) -> int:
        return self.policy.width

    def features(self, theta_RP: Tensor, *given: Any, **named: Any) -> Tensor:
        return self.policy.features(self.weights(theta_RP), *given, **named)

    def with_rounding(self, rounding: Rounding) -> Policy:
        return self.around(self.policy.with_rounding(rounding))

    def with_frozen(self, change: Callable[[Tensor, Layout], Tensor]) -> Policy:
        return self.around(self.policy.with_frozen(change))

    def _of_versions(self, theta_RWP: Tensor) -> Tensor:
        return torch.stack([self.weights(theta_RP) for theta_RP in theta_RWP.unbind(1)], 1)
