"""What a question is: its thread, its answer as a text with places for numbers, and where they come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Numbers: TypeAlias = dict[str, Any]
"""Numbers by name; under "table" a list of rows, each of the same columns."""


@dataclass(frozen=True)
class Question:
    """A question with its answer.

    n: its number. title: the question in plain words. thread: where it is asked, OWNER/REPOSITORY#N.
    answer: a text with {name} for a computed number and {0}, {1}, … for the claims. holds: where it is true.
    compute: what gives the numbers, None where claims alone answer. claims: names of judged claims.
    """

    n: int
    title: str
    thread: str
    answer: str
    holds: str
    compute: Callable[[], Numbers] | None = None
    claims: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The address of the thread."""
        repository, number = self.thread.split("#")
        return f"https://github.com/{repository}/issues/{number}"

    def text(self, numbers: Numbers, judged: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the answer with its numbers and verdicts; KeyError for one that is missing."""
        said = [in_brief(judged[name]) for name in self.claims]
        return self.answer.format(*said, **numbers)


QUESTIONS: dict[int, Question] = {}
"""All questions by number; `analysis.questions.catalog` fills it."""


def computed(
    n: int, title: str, thread: str, answer: str, holds: str, claims: tuple[str, ...] = ()
) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    """Return a decorator that registers a question with the function that computes its numbers."""

    def register(function: Callable[[], Numbers]) -> Callable[[], Numbers]:
        _add(Question(n, title, thread, answer, holds, function, claims))
        return function

    return register


def judged_by(n: int, title: str, thread: str, answer: str, holds: str, claims: tuple[str, ...]) -> None:
    """Register a question that judged claims answer."""
    _add(Question(n, title, thread, answer, holds, None, claims))


def _add(question: Question) -> None:
    if question.n in QUESTIONS:
        raise ValueError(f"Question {question.n} is there twice; give the second one another number.")
    QUESTIONS[question.n] = question


def in_brief(row: Mapping[str, Any]) -> str:
    """Return "0.21 [0.18, 0.24], supported" of a row of verdicts; the verdict alone without an effect."""
    if row["effect"] is None:
        return str(row["verdict"])
    interval = "" if row["low"] == row["high"] else f" [{row['low']:.3g}, {row['high']:.3g}]"
    return f"{row['effect']:.3g}{interval}, {row['verdict']}"
