"""Render problems of a file for a model and its tokenizer: chat template, end tokens, stops."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.tokens.jsonl import Jsonl, Problem
from envs.tokens.token_task import TokenTask
from testbed.errors import UserError
from testbed.policies.hf.json_files import read_json

SPARE = 4
"""Default number of response tokens beyond the longest answer's."""


class ChatTask(TokenTask):
    """A Jsonl task in the vocabulary of a tokenizer.

    Prompt: the chat template filled with system prompt and messages, and opened for the answer; without a
    template, the system prompt, an empty line and the prompt. Padded on the left with a token that starts no
    prompt. A response ends with any of the tokenizer's or the model's end tokens, or at a stop string, which
    is not scored.

    Raises UserError: a requested template is missing or takes no system prompt; neither end token nor stop
    string; a tokenizer that appends its end token to prompts; prompts that become equal.
    """

    def __init__(self, task: Jsonl, tokenizer: Any, ends: Sequence[int] = ()) -> None:
        self.task, self.tokenizer, self.stops = task, tokenizer, task.stops
        own = tokenizer.eos_token_id
        self.end_token = own if own is not None else (ends[0] if ends else None)
        self._ends = tuple(dict.fromkeys([*([] if own is None else [own]), *ends]))
        if not self._ends and not self.stops:
            raise UserError(
                "The tokenizer has no end token, so that no response would ever end; set eos_token in its "
                "tokenizer_config.json, or give task_args.stop."
            )
        self.symbols = tuple(name or "" for name in tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
        self._chat = _takes_template(task, tokenizer)
        self._tokens = [self._prompt(problem) for problem in task.problems]
        self._index = dict[tuple[int, ...], int]()
        for i, tokens in enumerate(self._tokens):
            self._index.setdefault(tuple(tokens), i)
        self._refuse_ambiguous()
        self.pad_token = self._free_token({tokens[0] for tokens in self._tokens})
        self.prompt_length = max(map(len, self._tokens))
        self.response_length = task.tokens or self._longest_answer() + SPARE
        longest = max((len(stop.encode()) for stop in self.stops), default=0)
        self._tail = longest + SPARE  # every token has at least one byte

    @property
    def end_tokens(self) -> tuple[int, ...]:
        return self._ends

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n problems drawn from the training ones, [N, Q]."""
        return self._written(self.task.draw(rng, n))

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        return self._written(self.task.draw(rng, n, held_out=True))

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """Return the verifier's reward of each response, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        rows = [token_T[mask_T] for token_T, mask_T in zip(response_NT, mask_NT, strict=True)]
        texts, ended = zip(*map(self._answer, rows), strict=True)
        return self.task.grade([self._problem(prompt_Q) for prompt_Q in prompt_NQ], texts, ended)

    @property
    def failures_N(self) -> Ints | None:  # type: ignore[override]  # a view of the task inside
        """Failure of the verifier at each response of the last score: see Jsonl."""
        return self.task.failures_N

    def stopped(self, response_NT: Ints) -> Bools:
        """True for responses with a stop string in the newest text, [N]."""
        tails = [self._decode(row_T[-self._tail :]) for row_T in response_NT]
        return np.array([any(stop in tail for stop in self.stops) for tail in tails], dtype=bool)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Reference answers, replaced by another problem's with probability `noise`, and the end token."""
        response_NT = np.zeros((len(prompt_NQ), self.response_length), dtype=np.int64)
        mask_NT = np.zeros(response_NT.shape, dtype=bool)
        # A step of 1 to n - 1 problems on never ends at the problem itself; a single one has no other.
        others = max(len(self.task.problems) - 1, 1)
        step_N = 1 + rng.integers(1, 2**31, len(prompt_NQ)) % others
        wrong_N = np.where(rng.random(len(prompt_NQ)) < noise, step_N, 0)
        for n, (prompt_Q, wrong) in enumerate(zip(prompt_NQ, wrong_N, strict=True)):
            problem = self.task.problems[(self._problem(prompt_Q) + int(wrong)) % len(self.task.problems)]
            tokens = self._encode_answer(problem)
            if len(tokens) > self.response_length:
                raise UserError(
                    f"The answer of line {problem.line} has {len(tokens)} tokens; raise "
                    f"task_args.response_length, now {self.response_length}."
                )
            response_NT[n, : len(tokens)], mask_NT[n, : len(tokens)] = tokens, True
        return response_NT, mask_NT

    def text(self, tokens: Any, mask: Any = None) -> str:
        """The text of one token row, without padding on its left and tokens whose mask is False."""
        token_T = np.asarray(tokens, dtype=np.int64)
        real_T = (token_T != self.pad_token).cumsum() > 0 if mask is None else np.asarray(mask, dtype=bool)
        return self._decode(token_T[real_T])

    def _prompt(self, problem: Problem) -> list[int]:
        system = [{"role": "system", "content": self.task.system}] if self.task.system else []
        if self._chat:
            try:
                text = self.tokenizer.apply_chat_template(
                    [*system, *problem.messages], tokenize=False, add_generation_prompt=True
                )
            except Exception as error:  # templates raise any error
                raise UserError(f"The chat template refuses line {problem.line}: {error}") from error
            # The template has already written the special tokens.
            return self._plain(text)
        text = "\n\n".join([*([self.task.system] if self.task.system else []), problem.prompt])
        tokens = encoded(self.tokenizer, text)
        if tokens and tokens[-1] in self._ends and tokens[-1:] != self._plain(text)[-1:]:
            raise UserError(
                "The tokenizer puts its end token behind every prompt, so that a response would begin after "
                "the end; set add_eos_token to false in its tokenizer_config.json."
            )
        return tokens

    def _plain(self, text: str) -> list[int]:
        return encoded(self.tokenizer, text, special=False)

    def _refuse_ambiguous(self) -> None:
        problems = zip(self.task.problems, self._tokens, strict=True)
        if empty := [problem.line for problem, tokens in problems if not tokens]:
            raise UserError(f"The tokenizer makes no token of the prompt of line {empty[0]}.")
        for problem, tokens in zip(self.task.problems, self._tokens, strict=True):
            first = self.task.problems[self._index[tuple(tokens)]]
            if first.prompt != problem.prompt:
                raise UserError(
                    f"The tokenizer writes the prompts of lines {first.line} and {problem.line} alike, so "
                    "their answers cannot be told apart. Use a tokenizer that has all their characters, as "
                    "`testbed pretrained scratch --tokenizer bpe` writes it."
                )

    def _free_token(self, starts: set[int]) -> int:
        """Return a padding token that starts no prompt, so that no prompt's start counts as padding."""
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None and token not in starts:
                return int(token)
        return next(token for token in range(len(starts) + 1) if token not in starts)

    def _longest_answer(self) -> int:
        return max(len(self._encode_answer(problem)) for problem in self.task.problems)

    def _encode_answer(self, problem: Problem) -> list[int]:
        if self.end_token is not None:
            return [*self._plain(problem.answer), self.end_token]
        return self._plain(problem.answer + self.stops[0])

    def _written(self, index_N: Ints) -> Ints:
        prompt_NQ = np.full((len(index_N), self.prompt_length), self.pad_token, dtype=np.int64)
        for row_Q, index in zip(prompt_NQ, index_N, strict=True):
            row_Q[self.prompt_length - len(self._tokens[index]) :] = self._tokens[index]
        return prompt_NQ

    def _problem(self, prompt_Q: Ints) -> int:
        start = int(np.argmax(prompt_Q != self.pad_token))
        key = tuple(prompt_Q[start:].tolist())
        if key not in self._index:
            raise UserError(f"{self._decode(prompt_Q[start:])[:80]!r} is not one of this task's prompts.")
        return self._index[key]

    def _answer(self, token_T: Ints) -> tuple[str, bool]:
        """Return the text before end token or stop string, and True if there was one."""
        ended = token_T.size > 0 and int(token_T[-1]) in self._ends
        text = self._decode(token_T[: token_T.size - int(ended)])
        cut = min((at for stop in self.stops if (at := text.find(stop)) >= 0), default=-1)
        return (text[:cut], True) if cut >= 0 else (text, bool(ended))

    def _decode(self, token_T: Ints) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(token_T.tolist(), **options))


def encoded(tokenizer: Any, text: str, special: bool = True) -> list[int]:
    """Return the tokens of a text; UserError where the tokenizer has none for a character."""
    try:
        return list(tokenizer(text, add_special_tokens=special).input_ids)
    except Exception as error:  # the tokenizers library raises bare exceptions
        shown = text if len(text) <= 80 else f"{text[:77]}…"
        raise UserError(
            f"The model's tokenizer cannot write {shown!r}: {error}. Use one that has all its characters, as "
            "`testbed pretrained scratch --tokenizer bpe` writes it."
        ) from error


def _takes_template(task: Jsonl, tokenizer: Any) -> bool:
    has = tokenizer.chat_template is not None
    if task.chat == "yes" and not has:
        raise UserError("task_args.chat is 'yes', but the tokenizer has no chat template; take chat 'no'.")
    if not has and any(len(problem.messages) > 1 for problem in task.problems):
        raise UserError(
            "The file holds conversations of several messages, but the tokenizer has no chat template to "
            "write them with; take a chat model, or prompts of one text each."
        )
    return has and task.chat != "no"


def end_tokens(folder: Path) -> list[int]:
    """Return the end tokens of a model folder's generation settings and configuration."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        given = read_json(folder / name).get("eos_token_id") if (folder / name).exists() else None
        found += given if isinstance(given, list) else [] if given is None else [given]
    return list(dict.fromkeys(found))
