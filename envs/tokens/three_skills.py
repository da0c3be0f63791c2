"""Three skills: running sums, copies and sorted digits in one task; the first prompt token selects one."""

import numpy as np

from envs.arrays import Ints
from envs.catalog import world
from envs.tokens.digits import DigitTask


@world("three-skills")
class ThreeSkills(DigitTask):
    """Prompt: a mark, Q digits mod M and "="; response: their partial sums, themselves, or them sorted.

    Marks are drawn uniformly and are the prompt's difficulty: 0 sums, 1 copies, 2 sorts.
    """

    difficulties = (0, 1, 2)

    def __init__(self, *, digits: int = 6, modulus: int = 8) -> None:
        super().__init__(digits, modulus)
        self.symbols = (*self.symbols, "+", "&", "<")
        self.prompt_length = digits + 2

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n rows of a mark, Q uniform digits and the separator, [N, Q+2]."""
        mark_N1 = rng.integers(0, 3, size=(n, 1)) + self.modulus + 1
        return np.concatenate([mark_N1, super().prompts(rng, n)], axis=1)

    def difficulty(self, prompt_NQ: Ints) -> Ints:
        """Return the skill that each prompt requires, [N]."""
        return prompt_NQ[:, 0] - self.modulus - 1

    def answer(self, digit_NT: Ints) -> Ints:
        """Return the answer for the mark in the first column, [N, T]."""
        mark_N1, plain_NT = digit_NT[:, :1] - self.modulus - 1, digit_NT[:, 1:]
        sums_NT = np.cumsum(plain_NT, axis=1) % self.modulus
        other_NT = np.where(mark_N1 == 1, plain_NT, np.sort(plain_NT, axis=1))
        return np.where(mark_N1 == 0, sums_NT, other_NT)
