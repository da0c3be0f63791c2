"""Graded sum: running sums of easy and hard prompts in any mix, to study transfer between the two."""

import numpy as np

from envs.arrays import Ints
from envs.catalog import world
from envs.tokens.running_sum import RunningSum


@world("graded-sum")
class GradedSum(RunningSum):
    """Running sums of Q digits; easy prompts have zeros after the first `easy` digits.

    share: of easy prompts in training. In lessons and held-out prompts every second one is easy, for any
    share, so that base models are alike; difficulties are the numbers of digits to add.
    """

    def __init__(self, *, digits: int = 8, modulus: int = 8, easy: int = 3, share: float = 0.5) -> None:
        super().__init__(digits=digits, modulus=modulus)
        if not 1 <= easy < digits or not 0 <= share <= 1:
            raise ValueError(
                f"easy must be from 1 to {digits - 1} digits and share in [0, 1], got {easy!r} and {share!r}."
            )
        self.easy, self.share, self.difficulties = easy, share, (easy, digits)

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n rows of Q digits and the separator, a share of them easy, [N, Q+1]."""
        prompt_NQ = super().prompts(rng, n)
        return self._eased(prompt_NQ, rng.random(n) < self.share)

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n prompts, every second one easy."""
        return self._eased(super().prompts(rng, n), np.arange(n) % 2 == 0)

    def lessons(self, rng: np.random.Generator, n: int) -> Ints:
        """As held_out_prompts."""
        return self.held_out_prompts(rng, n)

    def difficulty(self, prompt_NQ: Ints) -> Ints:
        """Return the number of digits to add: `easy` if only zeros follow them, else Q, [N]."""
        return np.where((prompt_NQ[:, self.easy : -1] == 0).all(1), self.easy, self.digits)

    def _eased(self, prompt_NQ: Ints, easy_N: np.ndarray) -> Ints:
        prompt_NQ[:, self.easy : -1] = np.where(easy_N[:, None], 0, prompt_NQ[:, self.easy : -1])
        return prompt_NQ
