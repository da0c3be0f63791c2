"""Stated sum: graded running sums, followed by one token that states confidence."""

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.graded_sum import GradedSum


@world("stated-sum")
class StatedSum(GradedSum):
    """Response: Q partial sums, the only scored tokens, and a token v that states the confidence v / M.

    The teacher states a random confidence, whatever it wrote.
    """

    def __init__(self, *, digits: int = 6, modulus: int = 8, easy: int = 2, share: float = 0.5) -> None:
        super().__init__(digits=digits, modulus=modulus, easy=easy, share=share)
        self.response_length = digits + 1

    def stated(self, response_NT: Ints) -> Floats:
        """The stated confidence of each response, in [0, 1], [N]."""
        return np.asarray(response_NT[:, -1] / self.modulus)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 if all Q sums are generated and right, else 0, [N]."""
        return (self.first_error(prompt_NQ, response_NT, mask_NT) > self.digits).astype(np.float64)

    def first_error(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Ints:
        """Return the position of the first wrong or missing sum, [N]; Q + 1 for a right response."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        wrong_NT = (response_NT[:, :-1] != self.answer(prompt_NQ[:, :-1])) | ~mask_NT[:, :-1]
        return np.where(wrong_NT.any(1), wrong_NT.argmax(1), self.response_length)

    def correction(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Bools]:
        """Return the right sums with the stated confidence, [N, T]."""
        answer_NT, _ = super().correction(prompt_NQ, response_NT, mask_NT)
        found_NT = np.concatenate([answer_NT, response_NT[:, -1:]], axis=1)
        return found_NT, np.ones(found_NT.shape, dtype=bool)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Partial sums with errors that later ones inherit, and a uniform confidence."""
        answer_NT, _ = super().teacher(prompt_NQ, rng, noise)
        stated_N1 = rng.integers(0, self.modulus + 1, size=(len(answer_NT), 1))
        found_NT = np.concatenate([answer_NT, stated_N1], axis=1)
        return found_NT, np.ones(found_NT.shape, dtype=bool)
