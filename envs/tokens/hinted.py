"""Running sum with space for the solution in the prompt: the teacher sees it, the student does not."""

import numpy as np

from envs.arrays import Bools, Ints
from envs.catalog import world
from envs.tokens.running_sum import RunningSum
from envs.tokens.token_task import corruption


@world("hinted-sum")
class Hinted(RunningSum):
    """Running sum after Q blank tokens, which may show the partial sums.

    Prompts to answer have blanks. A share of those for supervised training shows the solution, and its
    response is then not corrupted, so a base model learns to read it. The blank is token M + 1.
    """

    def __init__(self, *, digits: int = 8, modulus: int = 8, share: float = 0.5) -> None:
        super().__init__(digits=digits, modulus=modulus)
        if not 0 < share < 1:
            raise ValueError(f"share is the part of lessons that show the solution, in (0, 1); got {share}.")
        self.share, self.symbols = share, (*self.symbols, "_")
        self.pad_token = modulus + 1
        self.prompt_length = 2 * digits + 1

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n rows of Q blanks, Q uniform digits and the separator, [N, 2Q+1]."""
        plain_NQ = super().prompts(rng, n)
        return np.concatenate([np.full((n, self.digits), self.pad_token), plain_NQ], axis=1)

    def lessons(self, rng: np.random.Generator, n: int) -> Ints:
        """As prompts, a share of them with the solution shown."""
        prompt_NQ = self.prompts(rng, n)
        return np.where(rng.random((n, 1)) < self.share, self.shown(prompt_NQ), prompt_NQ)

    def shown(self, prompt_NQ: Ints) -> Ints:
        """The prompts with the partial sums in place of the blanks, [N, 2Q+1]."""
        plain_NQ = self._plain(prompt_NQ)
        return np.concatenate([self.answer(plain_NQ[:, :-1]), plain_NQ], axis=1)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> np.ndarray:
        """1 if all Q tokens are generated and right, else 0, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        right_NT = (response_NT == self.answer(self._plain(prompt_NQ)[:, :-1])) & mask_NT
        return right_NT.all(axis=1).astype(np.float64)

    def first_error(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Ints:
        """Return the position of the first wrong or missing digit, [N]; Q for a right response."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        right_NT = (response_NT == self.answer(self._plain(prompt_NQ)[:, :-1])) & mask_NT
        return np.where(right_NT.all(1), self.digits, right_NT.argmin(1))

    def correction(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Bools]:
        """Return the only right response, [N, T], for any response."""
        del response_NT, mask_NT
        answer_NT = self.shown(prompt_NQ)[:, : self.digits]
        return answer_NT, np.ones(answer_NT.shape, dtype=bool)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """As RunningSum.teacher; without noise if the solution is shown."""
        prompt_NQ = self.check_prompts(prompt_NQ)
        digit_NT = self._plain(prompt_NQ)[:, :-1]
        wrong_NT = corruption(digit_NT.shape, rng, noise, self.modulus)
        wrong_NT[prompt_NQ[:, 0] != self.pad_token] = 0
        return self.answer(digit_NT + wrong_NT), np.ones(digit_NT.shape, dtype=bool)

    def _plain(self, prompt_NQ: Ints) -> Ints:
        return self.check_prompts(prompt_NQ)[:, self.digits :]
