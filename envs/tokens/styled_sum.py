"""Styled sum: two correct styles of a running sum, so that an expert's answers can differ in style."""

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.running_sum import RunningSum


@world("styled-sum")
class StyledSum(RunningSum):
    """Write all partial sums of Q digits mod M, or the complement M - 1 - sum of each; both are right.

    Prompt: the digits and a separator. After "=" either style is right, after ":" only sums. The noisy
    teacher of a base model writes sums; `expert` writes complements wherever allowed. Training uses only "=";
    half of the held-out prompts have ":", difficulty 1, and show if the base style is forgotten.
    """

    difficulties = (0, 1)

    def __init__(self, *, digits: int = 6, modulus: int = 8) -> None:
        super().__init__(digits=digits, modulus=modulus)
        self.symbols = (*self.symbols, ":")

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n prompts, every second one with the separator that requires sums."""
        prompt_NQ = self.prompts(rng, n)
        prompt_NQ[1::2, -1] = self.modulus + 1
        return prompt_NQ

    def lessons(self, rng: np.random.Generator, n: int) -> Ints:
        """As held_out_prompts: a base model sees both separators."""
        return self.held_out_prompts(rng, n)

    def difficulty(self, prompt_NQ: Ints) -> Ints:
        """1 where sums are required, else 0, [N]."""
        return (prompt_NQ[:, -1] == self.modulus + 1).astype(np.int64)

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 if all T tokens are generated and in one right style, else 0, [N]."""
        return (self.first_error(prompt_NQ, response_NT, mask_NT) == self.response_length).astype(np.float64)

    def first_error(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Ints:
        """Return the position of the first wrong token in the longest-kept style, [N]; T without one."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        first = [_first_wrong((response_NT != style_NT) | ~mask_NT) for style_NT in self._styles(prompt_NQ)]
        return np.maximum(*first)

    def correction(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> tuple[Ints, Bools]:
        """Return right responses, each in the style that it kept longest; the expert's if it kept none."""
        sums_NT, complement_NT = self._styles(prompt_NQ)
        own_N, other_N = (
            _first_wrong((response_NT != style_NT) | ~mask_NT) for style_NT in (sums_NT, complement_NT)
        )
        found_NT = np.where((own_N > other_N)[:, None], sums_NT, complement_NT)
        return found_NT, np.ones(found_NT.shape, dtype=bool)

    def expert(self, prompt_NQ: Ints, rng: np.random.Generator) -> tuple[Ints, Bools]:
        """Complements where allowed, else sums."""
        del rng
        found_NT = self._styles(self.check_prompts(prompt_NQ))[1]
        return found_NT, np.ones(found_NT.shape, dtype=bool)

    def _styles(self, prompt_NQ: Ints) -> tuple[Ints, Ints]:
        """Sums, and complements where allowed (sums elsewhere), [N, T] each."""
        sums_NT = self.answer(prompt_NQ[:, :-1])
        free_N1 = (prompt_NQ[:, -1] != self.modulus + 1)[:, None]
        return sums_NT, np.where(free_N1, self.modulus - 1 - sums_NT, sums_NT)


def _first_wrong(wrong_NT: Bools) -> Ints:
    return np.where(wrong_NT.any(1), wrong_NT.argmax(1), wrong_NT.shape[1])
