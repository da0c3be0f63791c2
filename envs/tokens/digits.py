"""Tasks that read Q digits and a separator and must write Q digits."""

from abc import abstractmethod

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.tokens.token_task import TokenTask, check_counts, corruption


class DigitTask(TokenTask):
    """Prompt: Q digits mod M and the separator "="; response: exactly Q tokens, all right or wrong.

    The separator is token M. It may be generated but is always wrong, so V = M + 1 and a uniform policy
    succeeds with probability (M+1)^-Q.
    """

    def __init__(self, digits: int, modulus: int) -> None:
        check_counts(digits=digits, modulus=modulus)
        if modulus < 2:
            raise ValueError(f"modulus must be at least 2, or no digit can be wrong; got {modulus}.")
        self.digits, self.modulus = digits, modulus
        self.symbols = (*(str(d) for d in range(modulus)), "=")
        self.prompt_length, self.response_length = digits + 1, digits

    @abstractmethod
    def answer(self, digit_NT: Ints) -> Ints:
        """The only right response to each row of Q digits, [N, T]."""

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n rows of Q uniform digits and the separator, [N, Q+1]."""
        digit_NT = rng.integers(0, self.modulus, size=(n, self.digits))
        return np.concatenate([digit_NT, np.full((n, 1), self.modulus)], axis=1)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 if all T tokens are generated and right, else 0, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        right_NT = (response_NT == self.answer(prompt_NQ[:, :-1])) & mask_NT
        return right_NT.all(axis=1).astype(np.float64)

    def first_error(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Ints:
        """Return the position of the first wrong or missing digit, [N]; Q for a right response."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        wrong_NT = (response_NT != self.answer(prompt_NQ[:, :-1])) | ~mask_NT
        return np.where(wrong_NT.any(1), wrong_NT.argmax(1), self.response_length)

    def correction(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Bools]:
        """Return the only right response, [N, T], for any response."""
        del response_NT, mask_NT
        answer_NT = self.answer(self.check_prompts(prompt_NQ)[:, :-1])
        return answer_NT, np.ones(answer_NT.shape, dtype=bool)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the answer with each digit replaced with probability `noise`: it scores (1-noise)^Q."""
        answer_NT = self.answer(self.check_prompts(prompt_NQ)[:, :-1])
        wrong_NT = corruption(answer_NT.shape, rng, noise, self.modulus)
        return (answer_NT + wrong_NT) % self.modulus, np.ones(answer_NT.shape, dtype=bool)
