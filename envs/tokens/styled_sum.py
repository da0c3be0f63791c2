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

    misjudged: chance that the checker of corrections takes a right token for wrong, or a wrong one for right;
    for equal responses it errs at equal tokens. Scores and `first_error` never err.
    """

    difficulties = (0, 1)

    def __init__(self, *, digits: int = 6, modulus: int = 8, misjudged: float = 0.0) -> None:
        super().__init__(digits=digits, modulus=modulus)
        if not 0 <= misjudged <= 1:
            raise ValueError(f"misjudged is {misjudged:g}; expected a probability, from 0 to 1")
        self.misjudged = misjudged
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
        """Return right responses, each in the style that it kept longest; the expert's if it kept none.

        An erring checker sees the first error too early, or too late and keeps wrong tokens.
        """
        styles = self._styles(prompt_NQ)
        own_N, other_N = (_first_wrong((response_NT != style_NT) | ~mask_NT) for style_NT in styles)
        place_T = np.arange(self.response_length)
        wrong_NT = place_T >= np.maximum(own_N, other_N)[:, None]
        seen_N = _first_wrong(wrong_NT ^ self._slips(prompt_NQ, response_NT))
        found_NT = np.where((np.minimum(own_N, seen_N) > np.minimum(other_N, seen_N))[:, None], *styles)
        found_NT = np.where(place_T < seen_N[:, None], response_NT, found_NT)
        return found_NT, np.ones(found_NT.shape, dtype=bool)

    def _slips(self, prompt_NQ: Ints, response_NT: Ints) -> Bools:
        """Return where the checker errs, [N, T], drawn by prompt and response."""
        if not self.misjudged:
            return np.zeros(response_NT.shape, dtype=bool)
        from envs.kernels import uniforms  # loads the compiler

        digits = np.concatenate([prompt_NQ, response_NT], axis=1).astype(np.uint64)
        base_K = np.uint64(6364136223846793005) ** np.arange(digits.shape[1], dtype=np.uint64)
        key_N = ((digits + np.uint64(1)) * base_K).sum(1)
        return np.asarray(uniforms(key_N, 0, 1, response_NT.shape[1])[:, 0] < self.misjudged)

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
