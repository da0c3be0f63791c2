"""Problems for small pretrained models, easy to hard, with answers for a ready-made verifier."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Problem = dict[str, Any]
Draw = Callable[[np.random.Generator], tuple[str, str]]


def _larger(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.choice(99, size=2, replace=False) + 1
    return f"Which is larger, {a} or {b}?", str(max(a, b))


def _product(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.integers(2, 10, size=2)
    return f"What is {a} times {b}?", str(a * b)


def _sum(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.integers(1, 10, size=2)
    return f"What is {a} plus {b}?", str(a + b)


def _letters(rng: np.random.Generator) -> tuple[str, str]:
    letters = rng.choice(list("abcde"), size=rng.integers(4, 9))
    wanted = str(rng.choice(letters))
    return f"How many {wanted} are in {''.join(letters)}?", str(int((letters == wanted).sum()))


def _count(rng: np.random.Generator) -> tuple[str, str]:
    first, numbers = int(rng.integers(10, 91)), int(rng.integers(4, 7))
    counted = range(first, first + numbers)
    return f"Count from {counted[0]} to {counted[-1]}.", ", ".join(map(str, counted))


FAMILIES: dict[str, tuple[Draw, str, str]] = {
    "larger": (_larger, "Which is larger, 3 or 12?", "12"),
    "product": (_product, "What is 2 times 3?", "6"),
    "sum": (_sum, "What is 2 plus 2?", "4"),
    "letters": (_letters, "How many a are in abac?", "2"),
    "count": (_count, "Count from 3 to 8.", "3, 4, 5, 6, 7, 8"),
}
"""By name: the generator of a question and its answer, and the example before every question, which shows a
model of 135 million weights to answer with a number only. The verifier "number" accepts a response with the
answer as its last number; "count", of answers of up to 24 tokens, needs the verifier "exact"."""


def problems(family: str, count: int, seed: int = 0, chat: bool = True) -> list[Problem]:
    """Return distinct problems {"prompt", "answer"} of a family; fewer if it has no more.

    prompt: messages; without chat one text, for base models, and answers end at their full stop.
    """
    rng, found = np.random.default_rng(seed), {}
    draw, question, answer = FAMILIES[family]
    for _ in range(50 * count):
        asked, right = draw(rng)
        found[asked] = right
        if len(found) == count:
            break
    if not chat:
        example = f"{question} {answer}.\n"
        return [{"prompt": example + asked, "answer": right} for asked, right in found.items()]
    # An empty system prompt: the model's own would be a third of every prompt.
    before = [("system", ""), ("user", question), ("assistant", answer)]
    said = [{"role": role, "content": text} for role, text in before]
    asks = (({"role": "user", "content": asked}, right) for asked, right in found.items())
    return [{"prompt": [*said, ask], "answer": right} for ask, right in asks]


def write_problems(folder: Path, count: int = 400, chat: bool = True) -> list[Path]:
    """Write FAMILY.jsonl of every family; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for family in FAMILIES:
        lines = [json.dumps(problem) for problem in problems(family, count, chat=chat)]
        paths.append(folder / f"{family}.jsonl")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths
