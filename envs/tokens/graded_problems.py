"""Problems for small pretrained models, easy to hard, with answers that a ready verifier checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

Problem = dict[str, str]
Draw = Callable[[np.random.Generator], tuple[str, str]]


def _larger(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.choice(99, size=2, replace=False) + 1
    return f"Which number is larger, {a} or {b}? Answer with the number only.", str(max(a, b))


def _product(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.integers(2, 10, size=2)
    return f"What is {a} times {b}? Answer with the number only.", str(a * b)


def _sum(rng: np.random.Generator) -> tuple[str, str]:
    a, b = rng.integers(1, 10, size=2)
    return f"What is {a} plus {b}? Answer with the number only.", str(a + b)


def _letters(rng: np.random.Generator) -> tuple[str, str]:
    letters = rng.choice(list("abcde"), size=rng.integers(4, 9))
    wanted = str(rng.choice(letters))
    count = int((letters == wanted).sum())
    return f"How many times is the letter {wanted} in {''.join(letters)}? Answer with the number only.", str(
        count
    )


FAMILIES: dict[str, Draw] = {"larger": _larger, "product": _product, "sum": _sum, "letters": _letters}
"""Families by name; the verifier "number" takes a response whose last number is the answer."""


def problems(family: str, count: int, seed: int = 0) -> list[Problem]:
    """Return distinct problems {"prompt", "answer"} of a family; fewer than `count` where it has no more."""
    rng, found = np.random.default_rng(seed), {}
    for _ in range(50 * count):
        prompt, answer = FAMILIES[family](rng)
        found[prompt] = answer
        if len(found) == count:
            break
    return [{"prompt": prompt, "answer": answer} for prompt, answer in found.items()]


def write_problems(folder: Path, count: int = 400) -> list[Path]:
    """Write FAMILY.jsonl of every family; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for family in FAMILIES:
        lines = [json.dumps(problem) for problem in problems(family, count)]
        paths.append(folder / f"{family}.jsonl")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths
