"""Running sum: write every partial sum on the way to the total, a verifiable chain of thought."""

import numpy as np

from envs.arrays import Bools, Ints
from envs.catalog import world
from envs.tokens.digits import DigitTask
from envs.tokens.token_task import corruption


@world("running-sum")
class RunningSum(DigitTask):
    """Response token t is the sum of the first t+1 prompt digits mod M; reward 1 when all Q are right."""

    def __init__(self, *, digits: int = 12, modulus: int = 8) -> None:
        super().__init__(digits, modulus)

    def answer(self, digit_NT: Ints) -> Ints:
        """Partial sums mod M, [N, T]."""
        return np.cumsum(digit_NT, axis=1) % self.modulus

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Partial sums in which a corrupted step adds a wrong digit and later steps continue from it.

        Each step is right, given the response so far, with probability 1 - noise, so the expected score is
        (1-noise)^Q, and a student of this teacher learns to continue from its mistakes.
        """
        digit_NT = self.check_prompts(prompt_NQ)[:, :-1]
        wrong_NT = corruption(digit_NT.shape, rng, noise, self.modulus)
        return self.answer(digit_NT + wrong_NT), np.ones(digit_NT.shape, dtype=bool)
