"""The base of every token task: prompts, a score, a noisy teacher and, if small, all its responses."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.arrays import Bools, Floats, Ints

MOST_RESPONSES = 2**22


class TokenTask(ABC):
    """A prompt of Q tokens, a response of at most T tokens, a reward in [0, 1] at the end.

    Tokens are numbered 0 .. V-1 and all may be generated; a meaningless one (a separator in an answer) is
    simply wrong. `mask_NT` is True on generated tokens, the end token included; after it tokens are 0.
    `difficulties` are the levels of `difficulty`, for a task with graded prompts.

    A task with `several_turns` has `turn_T`, the turn of every position of a response, and `tool_T`, True
    where a tool writes: there `tool` gives the token, and `mask_NT` is False.
    """

    symbols: tuple[str, ...]
    prompt_length: int
    response_length: int
    end_token: int | None = None
    pad_token: int | None = None
    difficulties: tuple[int, ...] = ()
    failures_N: Ints | None = None
    stops: tuple[str, ...] = ()
    several_turns: bool = False
    turn_T: tuple[int, ...] = ()
    tool_T: tuple[bool, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes on the task's data, shown before a run starts."""
        return []

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """All tokens that end a response."""
        return () if self.end_token is None else (self.end_token,)

    @property
    def vocabulary(self) -> int:
        """V, the number of tokens; `symbols[v]` prints token v."""
        return len(self.symbols)

    @abstractmethod
    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n prompts drawn independently, [N, Q], padded on the left with `pad_token`."""

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n prompts to evaluate on, [N, Q]: drawn like the others, unless some are held out."""
        return self.prompts(rng, n)

    def lessons(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n prompts for supervised training, [N, Q]; a task with hints overrides this to show them."""
        return self.prompts(rng, n)

    def stopped(self, response_NT: Ints) -> Bools:
        """True for responses that end with one of the `stops` so far, [N]."""
        raise NotImplementedError(
            f"{type(self).__name__} has stop strings: define `stopped` to look for them"
        )

    @abstractmethod
    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """Reward of each response, [N], in [0, 1]."""

    @abstractmethod
    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return a solution of each prompt; each step is wrong with probability `noise`; at 0 it scores 1.

        Returns response_NT and mask_NT. With noise, a supervised start gives a base model with positive
        entropy.
        """

    def expert(self, prompt_NQ: Ints, rng: np.random.Generator) -> tuple[Ints, Bools]:
        """Return a right response to show for each prompt; by default `teacher` without noise."""
        return self.teacher(prompt_NQ, rng, 0.0)

    def correction(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Bools]:
        """Return a right response that keeps each response up to its first error, and its mask.

        Only for tasks that check steps; if a single response is right, returns that one.
        """
        raise NotImplementedError(f"{type(self).__name__} does not check steps: it judges whole responses.")

    def tool(self, prompt_NQ: Ints, response_Nt: Ints) -> Ints:
        """Return the tool's token after each response so far, [N]; only at positions of `tool_T`."""
        raise NotImplementedError(f"{type(self).__name__} has no tool: `tool_T` is empty.")

    def difficulty(self, prompt_NQ: Ints) -> Ints:
        """Return each prompt's difficulty, [N], one of `difficulties`; only if the task has them."""
        raise NotImplementedError(f"{type(self).__name__} has no graded difficulty: `difficulties` is empty.")

    def first_error(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Ints:
        """Number of correct tokens before the first mistake of each response, [N]; T without one.

        A response that keeps these tokens can still be right. Only for tasks that check steps.
        """
        raise NotImplementedError(f"{type(self).__name__} does not check steps: it judges whole responses.")

    def enumerate(self) -> tuple[Ints, Bools]:
        """Every distinct response, once, in lexicographic order: response_LT and mask_LT.

        Without an end token L = V^T. With one, tokens after it do not count, so L = sum_{l<T} (V-1)^l +
        (V-1)^T. ValueError when V^T exceeds 2^22.
        """
        V, T = self.vocabulary, self.response_length
        if V**T > MOST_RESPONSES:
            raise ValueError(
                f"{type(self).__name__} has {V}^{T} = {V**T:.3g} responses, more than 2^22; "
                "take fewer tokens or a smaller vocabulary to enumerate them."
            )
        return every_response(V, T, self.end_token)

    def text(self, tokens: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> str:
        """The printed form of one token row, without padding and without tokens whose mask is False."""
        token_T = np.asarray(tokens, dtype=np.int64)
        if token_T.ndim != 1:
            raise ValueError(f"text prints one row of tokens, got shape {token_T.shape}; pass row by row.")
        keep_T = np.ones(token_T.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        special = {self.end_token, self.pad_token}
        wide = any(len(s) > 1 for v, s in enumerate(self.symbols) if v not in special)
        shown = [self.symbols[v] for v in token_T[keep_T] if v != self.pad_token]
        return (" " if wide else "").join(shown)

    def check(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Ints, Bools]:
        """Return the arrays as int64, int64, bool; ValueError for a wrong shape or unknown token."""
        prompt_NQ = self.check_prompts(prompt_NQ)
        expected = (prompt_NQ.shape[0], self.response_length)
        response_NT, mask_NT = np.asarray(response_NT), np.asarray(mask_NT, dtype=bool)
        for name, array in (("response_NT", response_NT), ("mask_NT", mask_NT)):
            if array.shape != expected:
                raise ValueError(f"{name} has shape {array.shape}, expected [N, T] = {expected}.")
        return prompt_NQ, self._known(response_NT, "response_NT"), mask_NT

    def check_prompts(self, prompt_NQ: Ints) -> Ints:
        """Return the prompts as int64 [N, Q]; ValueError if the shape or a token is wrong."""
        prompt_NQ = np.asarray(prompt_NQ)
        if prompt_NQ.ndim != 2 or prompt_NQ.shape[1] != self.prompt_length:
            raise ValueError(f"prompt_NQ has shape {prompt_NQ.shape}, expected [N, Q={self.prompt_length}].")
        return self._known(prompt_NQ, "prompt_NQ")

    def _known(self, token: Ints, name: str) -> Ints:
        if token.size and not 0 <= token.min() <= token.max() < self.vocabulary:
            worst = token.min() if token.min() < 0 else token.max()
            raise ValueError(f"{name} holds token {worst}, but this task knows 0 to {self.vocabulary - 1}.")
        return token.astype(np.int64, copy=False)


def check_counts(**counts: int) -> None:
    """ValueError unless every named count is a positive integer."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}.")


def corruption(shape: tuple[int, ...], rng: np.random.Generator, noise: float, modulus: int) -> Ints:
    """Offsets mod `modulus`: 0 with probability 1 - noise, else uniform on 1 .. modulus-1, so always wrong.

    Both draws are made for any noise, so with one generator state the corrupted steps are nested as noise
    grows.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise is the probability that a step is corrupted, from 0 to 1; got {noise}.")
    wrong = rng.random(shape) < noise
    return np.where(wrong, rng.integers(1, modulus, size=shape), 0)


def miswritten(
    answers: Sequence[str], tokens: Sequence[Sequence[int]], longest: int, characters: int,
    rng: np.random.Generator, noise: float,
) -> tuple[Ints, Bools]:  # fmt: skip
    """Return answers with characters replaced at probability `noise`, then the end token `characters`.

    tokens: of each answer. Raises ValueError for an answer that does not fit into `longest` tokens.
    """
    shape = (len(answers), longest)
    response_NT, mask_NT = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    wrong_NT = corruption(shape, rng, noise, characters)
    for n, (answer, token) in enumerate(zip(answers, tokens, strict=True)):
        end = len(token)
        if end >= longest:
            raise ValueError(f"the answer {answer[:80]!r} and its end need {end + 1} tokens, not {longest}.")
        response_NT[n, :end] = (np.array(token, dtype=np.int64) + wrong_NT[n, :end]) % characters
        response_NT[n, end], mask_NT[n, : end + 1] = characters, True
    return response_NT, mask_NT


def every_response(vocabulary: int, length: int, end_token: int | None) -> tuple[Ints, Bools]:
    """All distinct responses of up to `length` tokens and their masks, lexicographic, of any size."""
    code_L = np.arange(vocabulary**length, dtype=np.int64)
    token_LT = np.empty((code_L.size, length), dtype=np.int64)
    mask_LT = np.ones(token_LT.shape, dtype=bool)
    for t in range(length):
        token_LT[:, t] = code_L // vocabulary ** (length - 1 - t) % vocabulary
    if end_token is None:
        return token_LT, mask_LT
    for t in range(1, length):
        mask_LT[:, t] = mask_LT[:, t - 1] & (token_LT[:, t - 1] != end_token)
    # Of all continuations after an end token keep the one of zeros: each truncated response exactly once.
    keep_L = ~np.any(~mask_LT & (token_LT != 0), axis=1)
    return token_LT[keep_L], mask_LT[keep_L]


def arguments(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Return named arguments; text holds them as "name=value name=value", each value in JSON or plain.

    Command lines and flat configurations can carry such text.
    """
    if not isinstance(given, str):
        return dict(given or {})
    found: dict[str, Any] = {}
    for word in given.split():
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise ValueError(f"{word!r} is not an argument; expected name=value, separated by blanks.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
