"""Prefixes of traces: solutions of the task, or successful responses of the starting weights."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from envs.arrays import Ints
from envs.tokens.token_task import TokenTask
from testbed import rng
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError, unknown
from testbed.prefixes import prefix
from testbed.prefixes.prefix_source import Asked, PrefixSource, Start, first_tokens, note

DISTRIBUTIONS = ("fixed", "uniform", "falling", "staged")


@dataclass(frozen=True)
class Traces:
    """One whole response per prompt: prompt_RNQ, token_RNT, and its number of tokens, length_RN."""

    prompt_RNQ: Ints
    token_RNT: Ints
    length_RN: Ints


@dataclass
class OfTraces(PrefixSource):
    """Answer part of a batch's prompts from prefixes of traces.

    tokens: most tokens of a prefix; it never holds a trace's last one. share: of the prompts, rounded.
    distribution: of lengths: "fixed": all of them; "uniform": 0 to tokens, equal within a group; "falling":
    linearly to 0, reached at `until` of the run; "staged": members of a group keep 0 to tokens in equal
    steps, each the child of the one before it.
    """

    tokens: int
    share: float
    distribution: str
    until: float

    def __post_init__(self) -> None:
        """Raise UserError for numbers out of range."""
        if self.distribution not in DISTRIBUTIONS:
            raise unknown("distribution of prefix lengths", self.distribution, DISTRIBUTIONS)
        if self.tokens < 1:
            raise UserError(f"tokens of a prefix is {self.tokens}, expected at least 1; or take prefix=off.")
        for name, value in {"share": self.share, "until": self.until}.items():
            if not 0 < value <= 1:
                raise UserError(f"{name} of prefixes is {value}, expected above 0 and at most 1.")

    def check(self, run: Run, task: TokenTask) -> None:
        """Raise UserError for prefixes as long as a response, or a share that rounds to no prompt."""
        if self.tokens >= task.response_length:
            most = task.response_length - 1
            raise UserError(
                f"prefix_args.tokens is {self.tokens}, but a response of task '{run.task}' has at most "
                f"{most + 1} tokens and the policy must write one; take {most} or fewer."
            )
        if not round(self.share * run.prompts):
            raise UserError(
                f"a share {self.share:g} of {run.prompts} prompts rounds to none; raise prompts or "
                "prefix_args.share."
            )
        if self.distribution == "staged" and run.group < 2:
            raise UserError(f"prefixes in stages need a group of at least 2, got group={run.group}.")

    @abstractmethod
    def traces(self, asked: Asked, count: int) -> Traces:
        """Return `count` traces per replica for this step."""

    def rollout(self, asked: Asked) -> Rollout:
        """Return a step's responses, those to the last prompts from prefixes of traces."""
        R, N, _ = asked.prompt_RNQ.shape
        group, count = asked.group, round(self.share * N)
        found = self.traces(asked, count)
        prompt_RNQ = np.concatenate([asked.prompt_RNQ[:, : N - count], found.prompt_RNQ], axis=1)
        # The policy writes the last token itself; an empty trace has none to leave.
        kept_RNG = np.minimum(self.lengths(asked, count), np.maximum(found.length_RN - 1, 0)[..., None])
        start = replace(asked.at_prompts(), prompt_RNQ=prompt_RNQ)
        given_RNGT = start.given_RBT.reshape(R, N, group, -1)
        shape = (R, count, group, start.given_RBT.shape[-1])
        token_RNGT = np.broadcast_to(found.token_RNT[:, :, None], shape)
        given_RNGT[:, N - count :] = first_tokens(token_RNGT, kept_RNG)
        rollout = asked.respond(Start(prompt_RNQ, given_RNGT.reshape(start.given_RBT.shape)), 0)
        return replace(rollout, parent_RB=self.parents(R, N, group, count)) if self.gives_parents else rollout

    @property
    def gives_parents(self) -> bool:  # type: ignore[override]
        return self.distribution == "staged"

    def lengths(self, asked: Asked, count: int) -> Ints:
        """Return the number of tokens that each member of the guided groups keeps, [R, count, G]."""
        shape = (len(asked.seeds), count, asked.group)
        if self.distribution == "uniform":
            streams = [rng.generator(seed, "prefixes/lengths", asked.step) for seed in asked.seeds]
            drawn = [stream.integers(0, self.tokens + 1, count) for stream in streams]
            return np.broadcast_to(np.stack(drawn)[..., None], shape)
        if self.gives_parents:
            return np.broadcast_to(np.linspace(0, self.tokens, asked.group).round().astype(np.int64), shape)
        left = 1.0
        if self.distribution == "falling":
            left = max(0.0, 1.0 - asked.step / max(1.0, self.until * asked.steps))
        return np.full(shape, round(self.tokens * left))

    def parents(self, R: int, N: int, group: int, count: int) -> torch.Tensor:
        """Return the parent of every sequence: in guided groups the member before it, else none."""
        parent_RNG = np.full((R, N, group), -1, dtype=np.int64)
        parent_RNG[:, N - count :] = np.arange(group) - 1
        return torch.from_numpy(parent_RNG.reshape(R, N * group))


class OfTeacher(OfTraces):
    """Prefixes of the task's solutions of this step's prompts."""

    def check(self, run: Run, task: TokenTask) -> None:
        """Also raise UserError if the task has no solutions to show."""
        super().check(run, task)
        try:
            self.solutions(task, task.prompts(np.random.default_rng(0), 1), np.random.default_rng(0))
        except (ValueError, NotImplementedError) as error:
            raise UserError(
                f"prefix 'teacher' needs the solutions of task '{run.task}', which has none: {error} "
                "Take prefix=stored, which asks the policy itself."
            ) from error

    def traces(self, asked: Asked, count: int) -> Traces:
        """Return the solutions of the last prompts."""
        prompt_RNQ = asked.prompt_RNQ[:, asked.prompt_RNQ.shape[1] - count :]
        streams = [rng.generator(seed, "prefixes/teacher", asked.step) for seed in asked.seeds]
        rows = [self.solutions(asked.task, *each) for each in zip(prompt_RNQ, streams, strict=True)]
        token, length = (np.stack(part) for part in zip(*rows, strict=True))
        return Traces(prompt_RNQ, token, length)

    @staticmethod
    def solutions(task: TokenTask, prompt_NQ: Ints, stream: np.random.Generator) -> tuple[Ints, Ints]:
        """Return solutions without errors and their lengths, [N, T] and [N]."""
        token_NT, mask_NT = task.teacher(prompt_NQ, stream, 0.0)
        return token_NT, mask_NT.sum(-1)


@dataclass
class OfStore(OfTraces):
    """Prefixes of the starting weights' right answers, found by rejection before the first step.

    ask: number of prompts to try. attempts: responses to each. The first success of a prompt is kept; guided
    prompts are drawn from those with one, replacing the step's prompts. empty: "plain" answers without a
    prefix if there is no success; "refuse" raises UserError.
    """

    ask: int = 128
    attempts: int = 32
    empty: Literal["refuse", "plain"] = "refuse"

    def __post_init__(self) -> None:
        """Raise UserError for numbers out of range."""
        super().__post_init__()
        for name, value in {"ask": self.ask, "attempts": self.attempts}.items():
            if value < 1:
                raise UserError(f"{name} of a store of traces is {value}, expected at least 1.")
        self.held: list[tuple[Ints, Ints, Ints]] = []

    def traces(self, asked: Asked, count: int) -> Traces:
        """Return traces drawn with replacement from the store, which the first call fills."""
        if not self.held:
            self.held = self.filled(asked)
        rows = []
        for seed, (prompt_KQ, token_KT, length_K) in zip(asked.seeds, self.held, strict=True):
            stream = rng.generator(seed, "prefixes/stored", asked.step)
            index_N = stream.integers(0, len(length_K), count)
            rows.append((prompt_KQ[index_N], token_KT[index_N], length_K[index_N]))
        return Traces(*(np.stack(part) for part in zip(*rows, strict=True)))

    def filled(self, asked: Asked) -> list[tuple[Ints, Ints, Ints]]:
        """Return every replica's successes; raise UserError if there are none."""
        prompt_RNQ = asked.draw("prefixes/store", self.ask)
        R, N, _ = prompt_RNQ.shape
        token_RNT = np.zeros((R, N, asked.task.response_length), dtype=np.int64)
        length_RN = np.zeros((R, N), dtype=np.int64)
        for attempt in range(self.attempts):
            tried = asked.collect(prompt_RNQ, 1, attempt)
            new_RN = (tried.reward_RB.cpu().numpy() >= 1) & (length_RN == 0)
            token_RNT = np.where(new_RN[..., None], tried.token_RBT.cpu().numpy(), token_RNT)
            length_RN = np.where(new_RN, tried.mask_RBT.sum(-1).cpu().numpy(), length_RN)
        found_R = (length_RN > 0).sum(1)
        attempts_R = np.full(R, self.ask * self.attempts)
        note(asked.counts, {"prefix/attempts": attempts_R, "prefix/traces": found_R})
        if (found_R == 0).any() and self.empty == "refuse":
            seed = asked.seeds[int(np.flatnonzero(found_R == 0)[0])]
            raise UserError(
                f"the store of traces of seed {seed} is empty: none of {self.attempts} responses to each of "
                f"{self.ask} prompts succeeded. Raise prefix_args.attempts or .ask, start from better "
                "weights, or take prefix=teacher; prefix_args.empty=plain goes on without a prefix."
            )
        # A replica without a success keeps all its prompts, of which no token is given.
        kept = [(length_N > 0) | (length_N.sum() == 0) for length_N in length_RN]
        return [(p[k], t[k], n[k]) for p, t, n, k in zip(prompt_RNQ, token_RNT, length_RN, kept, strict=True)]


Lengths = Literal["fixed", "uniform", "falling", "staged"]


@prefix(
    "teacher",
    source="Qu et al. (2026), POPE; Huang et al. (2025), Tree-OPO, arXiv:2509.09284, for 'staged'",
    parents="prefix=teacher with prefix_args.distribution=staged",
)
def teacher(
    *, tokens: int = 6, share: float = 1.0, distribution: Lengths = "uniform", until: float = 0.5
) -> OfTeacher:
    """Responses to a share of the prompts begin with a prefix of the task's solution."""
    return OfTeacher(tokens, share, distribution, until)


@prefix(
    "stored",
    source="Setlur et al. (2026), Reuse your FLOPs (PrefixRL)",
    parents="prefix=stored with prefix_args.distribution=staged",
)
def stored(
    *,
    tokens: int = 6,
    share: float = 0.5,
    distribution: Lengths = "uniform",
    until: float = 0.5,
    ask: int = 128,
    attempts: int = 32,
    empty: Literal["refuse", "plain"] = "refuse",
) -> OfStore:
    """A share of the prompts and their prefixes are successes of the starting weights; every try counts."""
    return OfStore(tokens, share, distribution, until, ask=ask, attempts=attempts, empty=empty)
