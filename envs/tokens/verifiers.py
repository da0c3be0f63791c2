"""Verifiers of responses: named rules, or a user's function in a separate process."""

import contextlib
import difflib
import json
import math
import os
import re
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from envs.tokens.safe_scorer import SafeScorer, isolated

Problem: TypeAlias = Mapping[str, Any]
"""One line of the file, as JSON gives it, with the reference answer under "answer"."""
Verifier: TypeAlias = Callable[[str, Problem], float]
"""(text of the response, problem) -> reward in [0, 1]; raises VerifierError if it has none."""

START_LIMIT = 60.0
"""Time limit in seconds for importing a user's file."""
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CHOICE = re.compile(r"(?<![A-Za-z])([A-Z])(?![A-Za-z'])")


class VerifierError(Exception):
    """A verifier raised, or returned no number; `timeout` marks one that took too long."""

    def __init__(self, message: str, timeout: bool = False) -> None:
        super().__init__(message)
        self.timeout = timeout


def exact(response: str, problem: Problem) -> float:
    """1 if the response equals the answer, ignoring surrounding blanks."""
    wanted = str(problem["answer"]).strip()
    if not wanted:
        raise VerifierError(f"the answer {problem['answer']!r} is empty")
    return float(response.strip() == wanted)


def number(response: str, problem: Problem) -> float:
    """1 if the last number of the response equals the last number of the answer."""
    wanted = last_number(str(problem["answer"]))
    if wanted is None:
        raise VerifierError(f"the answer {problem['answer']!r} holds no number; take verifier exact")
    given = last_number(response)
    return float(given is not None and math.isclose(given, wanted, rel_tol=1e-9, abs_tol=1e-12))


def last_number(text: str) -> float | None:
    """Return the last number in a text, ignoring commas between digits; None if there is none."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def choice(response: str, problem: Problem) -> float:
    """1 if the last single capital letter of the response is the answer's, as in "(B)" or "B."."""
    wanted = _CHOICE.findall(str(problem["answer"]))
    if not wanted:
        raise VerifierError(f"the answer {problem['answer']!r} holds no single capital letter")
    given = _CHOICE.findall(response)
    return float(bool(given) and given[-1] == wanted[-1])


class ReasoningGymVerifier:
    """The scorer of the reasoning-gym data set in the problem's metadata; partial credit scores 0."""

    def __init__(self) -> None:
        self._scorers: dict[str, SafeScorer] = {}

    def __call__(self, response: str, problem: Problem) -> float:
        metadata = problem.get("metadata")
        name = metadata.get("source_dataset") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str):
            raise VerifierError("the problem has no metadata.source_dataset, which reasoning-gym writes")
        if name not in self._scorers:
            from envs.tokens.reasoning_gym import open_dataset

            try:
                self._scorers[name] = SafeScorer(open_dataset(name, {"size": 1, "seed": 0}), False)
            except ValueError as error:
                raise VerifierError(str(error)) from error
        scorer = self._scorers[name]
        errors = scorer.errors
        with isolated():
            score = scorer.score(response.strip(), dict(problem))
        if scorer.errors > errors:
            raise VerifierError("the data set's scorer raised")
        return score


class UserVerifier:
    """A function of a user's file, `function(response, problem) -> number in [0, 1]`, in a separate process.

    If a call exceeds `limit` seconds, or exits, its process is ended and the next call starts another.

    Raises ValueError if the file cannot be run or lacks the function.
    """

    def __init__(self, path: Path, function: str, limit: float) -> None:
        self.path, self.function, self.limit = path, function, limit
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def __call__(self, response: str, problem: Problem) -> float:
        if self._process is None:
            self._start()
        reply = self._ask({"response": response, "problem": problem}, self.limit)
        if "error" in reply:
            raise VerifierError(str(reply["error"]))
        return float(reply["score"])

    def _start(self) -> None:
        script = Path(__file__).with_name("verifier_process.py")
        command = [sys.executable, str(script), str(self.path.resolve()), self.function]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._close = weakref.finalize(self, _end, self._process)
        try:
            reply = self._ask(None, START_LIMIT)
        except VerifierError as error:
            raise ValueError(f"{self.path} could not be run: {error}.") from error
        if "error" in reply:
            self._close()
            raise ValueError(f"verifier {self.path}:{self.function}: {reply['error']}")

    def _ask(self, question: Any, limit: float) -> dict[str, Any]:
        """Send a line, if there is one, and return the answer; end the process if none comes in time."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise VerifierError("the verifier's process has ended")
        try:
            if question is not None:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            line = _line(process.stdout.fileno(), time.monotonic() + limit)
        except (BrokenPipeError, EOFError):
            self._stop()
            raise VerifierError("the verifier ended its process") from None
        except TimeoutError:
            self._stop()
            raise VerifierError(f"no answer within {limit:g} s", timeout=True) from None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _stop(self) -> None:
        self._close()
        self._process = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unflushed output has no reader any more
                pipe.close()


def _line(descriptor: int, deadline: float) -> bytes:
    """Return the next line; raise TimeoutError at the deadline, EOFError at the end."""
    found = b""
    while not found.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            raise EOFError
        found += part
    return found


NAMED: dict[str, Callable[[], Verifier]] = {
    "exact": lambda: exact,
    "number": lambda: number,
    "choice": lambda: choice,
    "reasoning-gym": ReasoningGymVerifier,
}


def open_verifier(name: str, limit: float) -> Verifier:
    """Return a named verifier, or that of `file.py:function`; raise ValueError if there is none."""
    if ".py:" in name:
        path, _, function = name.rpartition(".py:")
        file = Path(f"{path}.py")
        if not file.is_file():
            raise ValueError(
                f"verifier {name!r}: the file {file} does not exist; expected path/to/file.py:function."
            )
        return UserVerifier(file, function, limit)
    if name not in NAMED:
        near = difflib.get_close_matches(name, NAMED, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown verifier {name!r}.{hint} Known: {', '.join(NAMED)}, or file.py:function.")
    return NAMED[name]()


def checked(score: Any) -> float:
    """Return a verifier's number; VerifierError if it is not a number in [0, 1]."""
    if isinstance(score, bool | int | float) and not math.isnan(score) and 0 <= score <= 1:
        return float(score)
    raise VerifierError(f"the verifier returned {score!r}, expected a number from 0 to 1")
