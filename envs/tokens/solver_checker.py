"""Solver and checker: one role writes a running sum, another reads it and writes the total."""

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.digits import DigitTask
from envs.tokens.token_task import corruption


@world("solver-checker")
class SolverChecker(DigitTask):
    """The solver writes the partial sums of Q digits mod M, then the checker writes the total in c tokens.

    Reward 1 if all tokens of the checker are the total: the solver's reward depends on the checker. Turn 0 is
    the solver's, turn 1 the checker's; nothing is masked. The checker writes the total `copies` times, which
    changes the weight of its tokens in a mean over tokens.
    """

    several_turns = True

    def __init__(self, *, digits: int = 4, modulus: int = 4, copies: int = 1) -> None:
        super().__init__(digits, modulus)
        if copies < 1:
            raise ValueError(f"copies must be a positive integer, got {copies!r}.")
        self.copies = copies
        self.response_length = digits + copies
        self.turn_T = (0,) * digits + (1,) * copies

    def answer(self, digit_NT: Ints) -> Ints:
        """Partial sums mod M, then the total, [N, T]."""
        sum_NT = np.cumsum(digit_NT, axis=1) % self.modulus
        return np.concatenate([sum_NT, sum_NT[:, -1:].repeat(self.copies, 1)], axis=1)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 if the checker's tokens are all generated and equal the total, else 0, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        right_NT = (response_NT == self.answer(prompt_NQ[:, :-1])) & mask_NT
        return right_NT[:, self.digits :].all(axis=1).astype(np.float64)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Partial sums with errors that later ones inherit, then the checker's total of them, with separate
        errors.

        Without noise it scores 1.
        """
        digit_NT = self.check_prompts(prompt_NQ)[:, :-1]
        shape = (len(digit_NT), self.response_length)
        wrong_NT = corruption(shape, rng, noise, self.modulus)
        answer_NT = self.answer(digit_NT + wrong_NT[:, : self.digits])
        answer_NT[:, self.digits :] = (
            answer_NT[:, self.digits :] + wrong_NT[:, self.digits :]
        ) % self.modulus
        return answer_NT, np.ones(shape, dtype=bool)
