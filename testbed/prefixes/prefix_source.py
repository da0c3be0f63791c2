"""The interface of a source of prefixes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Ints
from envs.tokens.token_task import TokenTask
from testbed.config.run import Run
from testbed.data.rollout import Rollout

FREE = -1
"""Marks a token that is not given."""


@dataclass(frozen=True)
class Start:
    """Starting points of the responses of a batch.

    prompt_RNQ: int64, the prompts. given_RBT: int64; token t of a sequence if given, FREE from there on.
    Sequence b = n * group + g answers prompt n.
    """

    prompt_RNQ: Ints
    given_RBT: Ints

    @property
    def group(self) -> int:
        return int(self.given_RBT.shape[1] // self.prompt_RNQ.shape[1])

    def given(self) -> Tensor | None:
        """Return given_RBT as a tensor; None if nothing is given, so that nothing must be forced."""
        return torch.from_numpy(self.given_RBT) if (self.given_RBT >= 0).any() else None


Respond = Callable[[Start, int], Rollout]
"""(start, number of the wave) -> responses of the generating weights; waves draw different numbers."""
Collect = Callable[[Ints, int, int], Rollout]
"""(prompt_RNQ, group, round) -> responses of the starting weights."""


@dataclass(frozen=True)
class Asked:
    """Request to a source at one of `steps` steps.

    prompt_RNQ: this step's prompts. draw: n other prompts per replica from a named stream, [R, N, Q]. counts:
    the source's counters, by metric name, each [R]; it may write there.
    """

    step: int
    steps: int
    prompt_RNQ: Ints
    group: int
    seeds: tuple[int, ...]
    task: TokenTask
    respond: Respond
    collect: Collect
    draw: Callable[[str, int], Ints]
    counts: dict[str, np.ndarray]

    def at_prompts(self, group: int | None = None) -> Start:
        """Return the start of responses without given tokens."""
        R, N, _ = self.prompt_RNQ.shape
        shape = (R, N * (group or self.group), self.task.response_length)
        return Start(self.prompt_RNQ, np.full(shape, FREE, dtype=np.int64))


class PrefixSource(ABC):
    """Prefixes and their lengths. gives_parents: rollouts record which sequence continues which."""

    gives_parents: bool = False

    @abstractmethod
    def rollout(self, asked: Asked) -> Rollout:
        """Return a step's responses: N * group of them, those of a prompt side by side."""

    @abstractmethod
    def check(self, run: Run, task: TokenTask) -> None:
        """Raise UserError if the run or its task cannot have this source."""


def first_tokens(token_RBT: Ints, kept_RB: Ints) -> Ints:
    """Return the first kept_RB tokens of every row, followed by FREE."""
    given_RBT: Ints = np.where(np.arange(token_RBT.shape[-1]) < kept_RB[..., None], token_RBT, FREE)
    return given_RBT


def note(counts: dict[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    """Write the counters, as float64."""
    counts.update({name: np.asarray(value_R, dtype=np.float64) for name, value_R in found.items()})
