"""Problems from a user's file: JSON lines with prompts and answers, and a verifier of the responses."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.reasoning_gym import ASCII
from envs.tokens.token_task import TokenTask, miswritten
from envs.tokens.verifiers import Verifier, VerifierError, checked, open_verifier

DIGEST = 12
SHOWN = 5
"""Most broken lines reported singly."""
SAMPLE = "\n".join(
    json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a in range(5) for b in range(5)
)
"""The problems of a task without a file."""
ERROR, TIMEOUT = 1, 2


@dataclass(frozen=True)
class Problem:
    """One line: the prompt as text, as messages if the file has them, the answer and the whole object."""

    prompt: str
    messages: tuple[Mapping[str, str], ...]
    fields: Mapping[str, Any]
    line: int

    @property
    def answer(self) -> str:
        """The reference answer as text."""
        return str(self.fields["answer"])


@world("jsonl")
class Jsonl(TokenTask):
    """Problems of a JSONL file, {"prompt": …, "answer": …} a line, scored by a verifier.

    prompt: text, or messages [{"role": …, "content": …}]. verifier: exact, number, choice, reasoning-gym, or
    file.py:function with function(response, problem) -> reward in [0, 1]; problem is the line's object. A
    call that raises, returns anything else or exceeds `limit` seconds scores 0 and counts in `failed`.
    held_out: share of the lines, the last ones, used only by `held_out_prompts`. judge_unfinished: True to
    score responses without an end; else they score 0. file: a path, or path#digest with the first digits of
    its sha256. Without one it holds 25 sums. dedupe: True to keep only the first line of equal prompts; else
    their answers must agree.

    Here prompts and responses are characters, for models that read them. testbed.policies.hf.chat_task
    defines how a model with a tokenizer reads the problems (system prompt, chat template, stop strings,
    response length in tokens); it uses the arguments system, chat, stop and response_length.
    """

    def __init__(
        self,
        *,
        file: str = "",
        verifier: str = "exact",
        prompt_field: str = "prompt",
        answer_field: str = "answer",
        limit: float = 5.0,
        held_out: float = 0.1,
        judge_unfinished: bool = False,
        system: str = "",
        chat: str = "auto",
        stop: str = "",
        response_length: int = 0,
        dedupe: bool = False,
    ) -> None:
        if not limit > 0 or not 0 <= held_out < 1 or response_length < 0:
            raise ValueError(
                f"limit {limit}, held_out {held_out} and response_length {response_length}: expected seconds "
                "above 0, a share from 0 to below 1, and tokens, 0 for as many as the answers take."
            )
        if chat not in ("auto", "yes", "no"):
            raise ValueError(f"chat is {chat!r}, expected auto, yes or no.")
        self.problems = read_problems(file, prompt_field, answer_field, dedupe)
        self.judge: Verifier = open_verifier(verifier.partition("#")[0], limit)
        _check_digest(verifier)
        self._check_answers(verifier)
        self.judge_unfinished, self.system, self.chat = judge_unfinished, system, chat
        self.stops, self.tokens = stop_strings(stop), response_length
        self.failed: Counter[int] = Counter()
        self.failures_N = np.zeros(0, dtype=np.int64)
        self._judgments: dict[tuple[int, str], tuple[float, int]] = {}
        self._kept = len(self.problems) - round(held_out * len(self.problems))
        self._index = dict[str, int]()
        for i, problem in enumerate(self.problems):
            self._index.setdefault(problem.prompt, i)
        characters = sorted(set("0123456789").union(*(p.prompt + p.answer for p in self.problems)))
        if any(c.isalpha() for c in characters):
            characters = sorted({*characters, *ASCII})
        self.symbols = (*characters, "<end>", "<pad>")
        self.end_token, self.pad_token = len(characters), len(characters) + 1
        self._token = {c: v for v, c in enumerate(characters)}
        self.prompt_length = max(len(problem.prompt) for problem in self.problems)
        self.response_length = response_length or max(len(problem.answer) for problem in self.problems) + 1

    @property
    def notes(self) -> list[str]:
        """Notes on the file: number of repeated prompts, and of those held out."""
        again = [i for i, problem in enumerate(self.problems) if self._index[problem.prompt] != i]
        if not again:
            return []
        lines = "1 line repeats" if len(again) == 1 else f"{len(again)} lines repeat"
        leaked = sum(self._index[self.problems[i].prompt] < self._kept <= i for i in again)
        both = f" Held-out lines with a prompt that is also trained on: {leaked}." * bool(leaked)
        return [f"{lines} the prompt and answer of an earlier line and are kept; dedupe drops them.{both}"]

    def draw(self, rng: np.random.Generator, n: int, held_out: bool = False) -> Ints:
        """Draw the numbers of n problems, from the training or the held-out ones, [N]."""
        total = len(self.problems)
        low, high = (self._kept, total) if held_out and self._kept < total else (0, self._kept or total)
        return rng.integers(low, high, size=n)

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n training problems, padded on the left, [N, Q]."""
        return self._written(self.draw(rng, n))

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        return self._written(self.draw(rng, n, held_out=True))

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """The verifier's reward of each response, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        index = [self._index[self.text(prompt_Q)] for prompt_Q in prompt_NQ]
        texts, ended = [], []
        for token_T, mask_T in zip(response_NT, mask_NT, strict=True):
            tokens = token_T[mask_T].tolist()
            ended.append(bool(tokens) and tokens[-1] == self.end_token)
            texts.append("".join(self.symbols[v] for v in tokens[: len(tokens) - ended[-1]]))
        return self.grade(index, texts, ended)

    def grade(self, index: Sequence[int], texts: Sequence[str], ended: Sequence[bool]) -> Floats:
        """Return rewards of texts that answer problems, [N]; set `failures_N` to 0, ERROR or TIMEOUT.

        Equal texts to one problem are scored once, because a verifier is a function.
        """
        reward_N, self.failures_N = np.zeros(len(index)), np.zeros(len(index), dtype=np.int64)
        for n, (i, text, whole) in enumerate(zip(index, texts, ended, strict=True)):
            if whole or self.judge_unfinished:
                if (i, text) not in self._judgments:
                    self._judgments[i, text] = self._judged(i, text)
                reward_N[n], self.failures_N[n] = self._judgments[i, text]
        self.failed.update(int(code) for code in self.failures_N if code)
        return reward_N

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the answer with each character replaced with probability `noise`, then the end token."""
        prompts = self.check_prompts(prompt_NQ)
        answers = [self.problems[self._index[self.text(prompt_Q)]].answer for prompt_Q in prompts]
        tokens = [[self._token[c] for c in answer] for answer in answers]
        return miswritten(answers, tokens, self.response_length, self.vocabulary - 2, rng, noise)

    def _judged(self, index: int, text: str) -> tuple[float, int]:
        try:
            return checked(self.judge(text, self.problems[index].fields)), 0
        except VerifierError as error:
            return 0.0, TIMEOUT if error.timeout else ERROR

    def _check_answers(self, verifier: str) -> None:
        """Judge every reference answer; the first alone where a scorer or a user's process takes its time."""
        wrong = list[str]()
        for problem in self.problems if isfunction(self.judge) else self.problems[:1]:
            try:
                checked(self.judge(problem.answer, problem.fields))
            except VerifierError as error:
                wrong.append(f"line {problem.line}: {error}")
        if wrong:
            more = f" ({len(wrong) - 1} more lines likewise)" if wrong[1:] else ""
            raise ValueError(f"verifier {verifier!r} cannot judge the reference answer of {wrong[0]}{more}.")

    def _written(self, index_N: Ints) -> Ints:
        prompt_NQ = np.full((len(index_N), self.prompt_length), self.pad_token, dtype=np.int64)
        for row_Q, index in zip(prompt_NQ, index_N, strict=True):
            tokens = [self._token[c] for c in self.problems[index].prompt]
            row_Q[self.prompt_length - len(tokens) :] = tokens
        return prompt_NQ


def stop_strings(given: str) -> tuple[str, ...]:
    """Return the strings at which a response ends: one, or several as a JSON list; ValueError if empty."""
    try:
        stops = json.loads(given) if given.startswith("[") else [given] if given else []
    except ValueError:
        # Refused below, in words about stop strings instead of JSON.
        stops = [""]
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError(f'stop is {given!r}, expected text, or a list such as ["\\n", "###"].')
    return tuple(stops)


def read_problems(
    file: str, prompt_field: str = "prompt", answer_field: str = "answer", dedupe: bool = False
) -> tuple[Problem, ...]:
    """Return the problems of a file; ValueError with the numbers of wrong lines.

    dedupe: leave out lines with the prompt of an earlier one.
    """
    _check_digest(file)
    name = file.partition("#")[0]
    try:
        content = Path(name).read_bytes() if file else SAMPLE.encode()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ValueError(
            f"{name} cannot be read: {error.strerror}; expected a file of JSON lines."
        ) from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{name}, line {line}: not UTF-8.") from error
    found, wrong = list[Problem](), list[str]()
    for item in _lines(text, prompt_field, answer_field):
        (found if isinstance(item, Problem) else wrong).append(item)  # type: ignore[arg-type]
    if dedupe:
        first = {problem.prompt: problem.line for problem in reversed(found)}
        found = [problem for problem in found if first[problem.prompt] == problem.line]
    wrong += _contradictions(found)
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        lines = "1 broken line" if len(wrong) == 1 else f"{len(wrong)} broken lines"
        raise ValueError(f"{name} has {lines}: {'; '.join(wrong[:SHOWN])}{more}.")
    if not found:
        raise ValueError(f"{name} has no lines; expected one JSON object per line.")
    return tuple(found)


def _lines(text: str, prompt_field: str, answer_field: str) -> Iterator[Problem | str]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except RecursionError:
            yield f"line {number}: brackets are nested too deeply"
            continue
        except ValueError as error:
            yield f"line {number}: {str(error).partition('; use sys.')[0]}"
            continue
        if not isinstance(fields, dict):
            yield f"line {number}: a {type(fields).__name__}, expected an object"
        elif missing := [name for name in (prompt_field, answer_field) if name not in fields]:
            yield f"line {number}: no {missing[0]!r}, it has {', '.join(map(repr, fields)) or 'nothing'}"
        else:
            yield _problem(fields, prompt_field, answer_field, number)


def _problem(fields: dict[str, Any], prompt_field: str, answer_field: str, number: int) -> Problem | str:
    prompt, answer = fields[prompt_field], fields[answer_field]
    odd = isinstance(answer, float) and not math.isfinite(answer)
    if answer is None or isinstance(answer, dict | list) or odd:
        return f"line {number}: {answer_field!r} is {answer!r}, expected text or a number"
    messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    sound = messages and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
        for m in messages
    )
    text = "\n".join(m["content"] for m in messages) if sound else ""
    if not text.strip():
        return f"line {number}: {prompt_field!r} is {str(prompt)[:40]!r}, expected text or messages"
    return Problem(text, tuple(messages), {**fields, "answer": answer}, number)


def _contradictions(problems: Sequence[Problem]) -> list[str]:
    """Return lines with an earlier line's prompt but another answer, which make every reward wrong."""
    first: dict[str, Problem] = {}
    wrong = []
    for problem in problems:
        known = first.setdefault(problem.prompt, problem)
        if known.answer != problem.answer:
            wrong.append(
                f"line {problem.line} has the prompt of line {known.line} and another answer "
                "(dedupe keeps the first)"
            )
    return wrong


def _check_digest(name: str) -> None:
    """Raise ValueError if a file's digest differs from the one after "#"."""
    path, _, digest = name.partition("#")
    if not digest:
        return
    now = file_digest(path.rpartition(":")[0] if ".py:" in path else path)
    if now[: len(digest)] != digest[:DIGEST]:
        raise ValueError(f"{path} has digest {now}, expected {digest}: the file has changed.")


def file_digest(path: str) -> str:
    """Return the first digits of a file's sha256; ValueError if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:DIGEST]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
