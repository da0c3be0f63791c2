"""Define a question: its thread, the template of its answer, and the source of the template's numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Numbers: TypeAlias = dict[str, Any]
"""Numbers by name; under "table" rows of the same columns. [middle, low, high] is a number with its range."""

Judgments: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Rows of the table of verdicts, by claim."""


@dataclass(frozen=True)
class Range:
    """A number with its range, written "0.52 [0.41, 0.63]", or as one number if all three are equal."""

    middle: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        middle, low, high = (format(x + 0.0, spec or ".3g") for x in (self.middle, self.low, self.high))
        return middle if low == high else f"{middle} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self, "")


class Finding(Range):
    """The effect of a judged claim; "{0:%}" writes it in points of accuracy, "{0:n}" the number of cases."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__(
            *(float("nan") if row[key] is None else row[key] for key in ("effect", "low", "high"))
        )
        object.__setattr__(self, "row", row)

    row: Mapping[str, Any]

    def __format__(self, spec: str) -> str:
        if spec == "n":
            return f"{self.row['n']:.0f}"
        if spec == "%":
            return f"{Range(100 * self.middle, 100 * self.low, 100 * self.high):.1f} points"
        return super().__format__(spec)


@dataclass(frozen=True)
class Question:
    """A question with its answer.

    n: its number. title: the question in plain words. thread: its source, OWNER/REPOSITORY#N. answer: a text;
    {name} and {table[0][column]} are computed numbers, {0}, {1}, … effects of the claims. holds: its scope.
    compute: the function that computes the numbers, None if claims alone answer. claims: judged claims, with
    the verdicts that the answer assumes.
    """

    n: int
    title: str
    thread: str
    answer: str
    holds: str
    claims: Mapping[str, str]
    compute: Callable[[], Numbers] | None

    @property
    def url(self) -> str:
        repository, number = self.thread.split("#")
        return f"https://github.com/{repository}/issues/{number}"

    def text(self, numbers: Numbers, judged: Judgments) -> str:
        """Return the answer with its numbers filled in; raise KeyError for a missing number.

        If a claim's verdict has changed since the answer was written, a last sentence says so.
        """
        moved = [
            f" The verdict on `{name}` is now {judged[name]['verdict']}; this answer assumed {supposed}."
            for name, supposed in self.claims.items()
            if judged[name]["verdict"] != supposed
        ]
        return self._filled(self.answer, numbers, judged) + "".join(moved)

    def scope(self, numbers: Numbers, judged: Judgments) -> str:
        """Return the scope of the answer, with its numbers."""
        return self._filled(self.holds, numbers, judged)

    def _filled(self, text: str, numbers: Numbers, judged: Judgments) -> str:
        found = [Finding(judged[name]) for name in self.claims]
        return text.format(*found, **in_ranges(numbers))


def in_ranges(value: Any) -> Any:
    """Return numbers with every [middle, low, high] as a Range."""
    if isinstance(value, dict):
        return {name: in_ranges(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        return Range(*value)
    return [in_ranges(each) for each in value] if isinstance(value, list) else value


FUNCTIONS: dict[int, Callable[[], Numbers]] = {}
"""Functions that compute the numbers of a question; the modules of this package register them."""


def computed(n: int) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    """Register the decorated function as the computation of question n of answers.toml."""

    def register(function: Callable[[], Numbers]) -> Callable[[], Numbers]:
        if n in FUNCTIONS:
            raise ValueError(f"Question {n} has two functions; give one of them another number.")
        FUNCTIONS[n] = function
        return function

    return register


def read(path: Path) -> dict[int, Question]:
    """Return the questions of a file; KeyError for one without a title, a thread, an answer or a scope."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    scopes = {name: " ".join(text.split()) for name, text in raw.pop("scopes").items()}
    found = {}
    for key, one in raw.items():
        answer, holds = (" ".join(one[name].split()) for name in ("answer", "holds"))
        for name, text in scopes.items():
            holds = holds.replace(f"{{{name}}}", text)
        claims = dict(one.get("claims", ()))
        n = int(key)
        found[n] = Question(n, one["title"], one["thread"], answer, holds, claims, FUNCTIONS.get(n))
    return found


def in_brief(row: Mapping[str, Any]) -> str:
    """Return "0.21 [0.18, 0.24], supported" for a row of verdicts, and the exactness for an identity."""
    if row["effect"] is None:
        return str(row["verdict"])
    if row["kind"] in ("identity", "enumerated") and row["tolerance"] is not None:
        off = "exact" if abs(row["effect"]) < 1e-9 else f"off by {row['effect']:.2g}"
        return f"{row['verdict']}, {off} in {row['n']:.0f} cases"
    return f"{Range(row['effect'], row['low'], row['high'])}, {row['verdict']}"
